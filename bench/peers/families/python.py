"""`python:package.module:factory`: a model built by the user's function.

The function receives the sizes that its parameters name.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

from torch import nn

from bench.errors import one_line
from bench.peers import counted
from bench.peers.adapter import adapted, unadapted
from bench.peers.counterpart import Counterpart
from bench.peers.names import LIBRARIES, missing_library, read_arguments
from bench.peers.published import SIZES
from bench.progress import tell
from bench.spec import ModelSpec, OptionValue, RequestError
from bench.tasks._info import info_of
from models.layers.cost import Cost
from models.layers.shape import Interface, Shape, num_data_tokens, require_one_of

COUNTED = True
USES_HEADS = True
REFERENCE_OPTIONS: dict[str, str] = {}
REQUIRED_SIZES = ("width", "ffn_width")
INTERFACE_WORDS = ("input", "patch_dim", "num_classes", "vocab_size")
SIZE_FLAGS = "--width 192 --depth 6 --heads 6 --ffn-width 768"


@dataclass(frozen=True, kw_only=True)
class Config:
    """Config of a model built by a function.

    `factory`: `package.module:function`.
    `pool`: `cls` if one of the seq_len tokens is the model's own class token, otherwise `mean`.
    `arguments`: further arguments of the factory, `key=value+key=value`.
    """

    shape: Shape
    interface: Interface
    factory: str
    pool: str = "mean"
    arguments: str = ""

    def __post_init__(self) -> None:
        require_one_of("pool", self.pool, ("cls", "mean"))
        if self.interface.output == "tokens" and self.pool == "cls":
            raise ValueError(f"python:{self.factory} has a class token, and cannot answer at every token")

    @property
    def data_tokens(self) -> int:
        return num_data_tokens(self.shape.seq_len, self.pool)


def spec_of(
    name: str, options: tuple[tuple[str, OptionValue], ...], *, seq_len: int | None, sizes: dict[str, int | None], input: str, task: str
) -> ModelSpec:
    """Return the spec with the sizes that the factory names.

    The input is images if the factory reads only images. Raises RequestError if the factory cannot be imported, or names a size without a value.
    """
    asked = dict(options)
    factory = str(asked["factory"])
    named = _parameters(factory)
    if missing := [size for size in REQUIRED_SIZES if size in named and not sizes.get(size)]:
        raise RequestError(f"python:{factory} takes {missing[0]}, so its sizes must be given", f"add {SIZE_FLAGS}")
    counterpart = _counterpart(factory)
    pool = str(asked.get("pool") or (dict(counterpart.options).get("pool") if counterpart else "") or "mean")
    assert seq_len is not None, "only published models have a default length"
    known = {size: sizes.get(size) or 1 for size in SIZES}
    return ModelSpec(
        name=name,
        family="python",
        options=tuple(sorted({**asked, "pool": pool}.items())),
        shape=Shape(seq_len=seq_len, **{size: known[size] if size in named else 1 for size in SIZES}),
        interface=info_of(task).interface(seq_len, pool) if task else _own_interface(factory, input),
    )


def build(config: Config) -> nn.Module:
    """Build the model.

    Raises ValueError if the factory refuses its arguments or returns another type.
    """
    return adapted(counted.build_on_device(lambda: _create(config)), config.interface, reads_images=_reads_images(config.factory))


def cost(config: Config) -> Cost:
    return counted.count_once(build, config).cost


def uses_attention(config: Config) -> bool:
    return counted.count_once(build, config).uses_attention


def unknown_sizes(config: Config) -> tuple[str, ...]:
    return tuple(size for size in SIZES if size not in _parameters(config.factory))


def counterpart_of(config: Config) -> Counterpart | None:
    """Return the factory's counterpart; None if further arguments may change the model."""
    return None if config.arguments else _counterpart(config.factory)


own_model = unadapted


def _own_interface(factory: str, input: str) -> Interface:
    if not _reads_images(factory):
        return Interface(input=input)
    if input == "tokens":
        raise RequestError(f"python:{factory} reads images, not --input tokens", "leave --input out, or write --input images")
    return Interface(input="images")


def _reads_images(factory: str) -> bool:
    return getattr(_module(factory.partition(":")[0]), "READS", "") == "images"


def _counterpart(factory: str) -> Counterpart | None:
    module, _, function = factory.partition(":")
    found: Counterpart | None = getattr(_module(module), "COUNTERPARTS", {}).get(function)
    return found


def _parameters(factory: str) -> tuple[str, ...]:
    return tuple(inspect.signature(_function(factory)).parameters)


def _function(factory: str) -> Callable[..., object]:
    module, _, name = factory.partition(":")
    found = getattr(_module(module), name, None)
    if not callable(found):
        raise RequestError(f"{module} has no function {name}", "write python:package.module:factory")
    function: Callable[..., object] = found
    return function


@functools.cache
def _module(name: str) -> ModuleType:
    """Import the user's module; the current folder is searched too.

    Raises RequestError if importing fails.
    """
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.append(os.getcwd())  # last, so that it shadows no other module
    try:
        module = importlib.import_module(name)
    except Exception as error:
        raise RequestError(
            f"python:{name} cannot be imported: {type(error).__name__}: {one_line(error)}", "check the name and the code"
        ) from error
    if not name.startswith("bench."):
        tell(f"imported {name} from {getattr(module, '__file__', None) or 'an unknown file'}")
    return module


def _create(config: Config) -> nn.Module:
    words = {name: getattr(config.interface, name) for name in INTERFACE_WORDS}
    known = {"seq_len": config.shape.seq_len, **{size: getattr(config.shape, size) for size in SIZES}, **words}
    named = _parameters(config.factory)
    given = {name: value for name, value in known.items() if name in named} | read_arguments(config.arguments)
    try:
        model = _function(config.factory)(**given)
    except ModuleNotFoundError as error:
        if error.name in LIBRARIES:
            raise missing_library(str(error.name), f"python:{config.factory}") from error
        raise
    except (TypeError, AssertionError) as error:
        raise ValueError(f"python:{config.factory} refuses its arguments: {type(error).__name__}: {one_line(error)}") from error
    if not isinstance(model, nn.Module):
        raise ValueError(f"python:{config.factory} must return a torch.nn.Module, not {type(model).__name__}")
    return model
