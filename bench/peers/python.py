"""A user's own model: `python:package.module:factory`, `FILE.py:NAME`, or a Python object.

It is a function or class that receives the sizes that its parameters name, or a built module.
"""

from __future__ import annotations

import copy
import functools
import importlib
import inspect
import math
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import ModuleType

import torch
from torch import nn

from bench.errors import one_line
from bench.peers import counted, own_import
from bench.peers.adapter import adapted
from bench.peers.counterpart import Counterpart
from bench.peers.names import LIBRARIES, missing_library, read_arguments
from bench.peers.published import SIZES
from bench.progress import tell
from bench.spec import ModelSpec, OptionValue, RequestError
from bench.tasks._info import Images, info_of
from models.layers.cost import Cost
from models.layers.shape import Interface, Shape, num_data_tokens, require_one_of

COUNTED = True
USES_HEADS = True
INTERFACE_WORDS = ("input", "patch_dim", "num_classes", "vocab_size")
READS = "READS"
"""Attribute of a module, function or class: its models read `images`."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """Config of a user's own model.

    `factory`: `package.module:function`, `FILE.py:NAME`, or the name of an object.
    `digest`: of the content of a file or object (`bench.peers.own_code`); empty for a module that is imported.
    `pool`: `cls` if one of the seq_len tokens is the model's own class token, otherwise `mean`.
    `arguments`: further arguments of the factory, `key=value+key=value`.
    """

    shape: Shape
    interface: Interface
    factory: str
    pool: str = "mean"
    arguments: str = ""
    digest: str = ""

    def __post_init__(self) -> None:
        require_one_of("pool", self.pool, ("cls", "mean"))
        if self.interface.output == "tokens" and self.pool == "cls":
            raise ValueError(f"{self.factory} has a class token, and cannot answer at every token")

    @property
    def data_tokens(self) -> int:
        return num_data_tokens(self.shape.seq_len, self.pool)

    @property
    def unknown_sizes(self) -> tuple[str, ...]:
        return tuple(size for size in SIZES if size not in _parameters(self.factory, self.digest))

    @property
    def counterpart(self) -> Counterpart | None:
        """The factory's counterpart; None if further arguments may change the model."""
        return None if self.arguments else _counterpart(self.factory, self.digest)


def spec_of(
    name: str, options: tuple[tuple[str, OptionValue], ...], *, seq_len: int | None, sizes: dict[str, int | None], input: str, task: str
) -> ModelSpec:
    """Return the spec with the sizes that the factory names; a size without a value is 1.

    The input is images if the model reads only images. Raises RequestError if it cannot be loaded, or images of this length are not square.
    """
    asked = dict(options)
    factory, digest = str(asked["factory"]), str(asked.get("digest", ""))
    named = _parameters(factory, digest)
    assert seq_len is not None, "only published models have a default length"
    pool, interface = _input_of(factory, digest, str(asked.get("pool", "")), seq_len, input, task)
    return ModelSpec(
        name=name,
        family="python",
        options=tuple(sorted({**asked, "pool": pool}.items())),
        shape=Shape(seq_len=seq_len, **{size: (sizes.get(size) or 1) if size in named else 1 for size in SIZES}),
        interface=interface,
    )


def takes(options: tuple[tuple[str, OptionValue], ...], size: str) -> bool:
    """Return whether a factory has a parameter of this name. Raises RequestError if it cannot be loaded."""
    asked = dict(options)
    return size in _parameters(str(asked["factory"]), str(asked.get("digest", "")))


def build(config: Config) -> nn.Module:
    """Build the model. Threads stay as they are, whatever its code sets.

    Raises ValueError if the factory refuses its arguments or returns another type.
    """
    threads = torch.get_num_threads()
    try:
        with own_import.beside(config.digest):
            model = counted.build_on_device(lambda: _create(config))
    finally:
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
    return adapted(model, config.interface, reads_images=_reads_images(config.factory, config.digest))


def cost(config: Config) -> Cost:
    return _counted(config).cost


def uses_attention(config: Config) -> bool:
    return _counted(config).uses_attention


def wrong_answer(config: Config) -> str:
    """Return the shapes of a wrong answer, as `returned ...; ... is needed`; empty if its shape is right."""
    returned, interface = _counted(config).answer, config.interface
    needed = (counted.SAMPLES, *((config.data_tokens,) if interface.output == "tokens" else ()), interface.num_classes)
    if returned == needed:
        return ""
    return f"returned {_shape_text(returned) if returned else 'no tensor'}; {_shape_text(needed)} is needed"


def call_text(config: Config) -> str:
    """Say what the model is called with, as `called with one float tensor [batch, 65, 192]`."""
    reads_images = _reads_images(config.factory, config.digest)
    interface = replace(config.interface, input="images") if reads_images else config.interface  # patches are folded into images
    with torch.device("meta"):
        sample = counted.sample_of(interface, config.data_tokens, counted.SAMPLES)
    return f"called with one {'float' if sample.is_floating_point() else 'integer'} tensor {_shape_text(tuple(sample.shape))}"


def _shape_text(shape: tuple[int, ...]) -> str:
    first, *others = shape
    return f"[{', '.join(map(str, ('batch' if first == counted.SAMPLES else first, *others)))}]"


@functools.lru_cache(maxsize=512)
def _counted(config: Config) -> counted.Counted:
    return own_import.ask(config.digest, counted.count_once, build, config)


def _input_of(factory: str, digest: str, pool: str, seq_len: int, input: str, task: str) -> tuple[str, Interface]:
    """Return whether the model has a class token, and what it is called with.

    A counterpart, or the user, may say how it pools. If not, images decide: n = 65 is 64 patches and a class token, n = 64 is patches alone. Other
    inputs have no class token.
    """
    counterpart = _counterpart(factory, digest)
    known = pool or (str(dict(counterpart.options).get("pool", "")) if counterpart else "")
    if task:
        reads = info_of(task).reads
        fits_cls = isinstance(reads, Images) and reads.patch_side(seq_len, "mean") is None and reads.patch_side(seq_len, "cls") is not None
        chosen = known or ("cls" if fits_cls else "mean")
        return chosen, info_of(task).interface(seq_len, chosen)
    reads_images = _reads_images(factory, digest)
    if reads_images and input == "tokens":
        raise RequestError(f"{factory} reads images, not `input=tokens`", "leave `input` out, or write `input=images`")
    if not (reads_images or input == "images"):
        return known or "mean", Interface(input=input)
    chosen = known or ("cls" if _is_square(seq_len - 1) else "mean")
    if not counterpart and not _is_square(num_data_tokens(seq_len, chosen)):
        extra = 1 - num_data_tokens(1, known or "cls")
        below = math.isqrt(seq_len - extra) ** 2
        near = [n + extra for n in (below, (math.isqrt(below) + 1) ** 2) if n > 1]
        raise RequestError(
            f"images are square, and n = {seq_len} gives no square number of patches; nearest lengths: {' and '.join(map(str, near))}"
            f"{' (a class token included)' if extra else ''}",
            f"try `seq={near[-1]}`",
        )
    return chosen, Interface(input="images")


def _is_square(number: int) -> bool:
    return number > 0 and math.isqrt(number) ** 2 == number


@functools.lru_cache(maxsize=256)
def _reads_images(factory: str, digest: str) -> bool:
    return own_import.ask(digest, _says_images, factory, digest)


def _says_images(factory: str, digest: str) -> bool:
    found = own_import.load(digest, _name(factory)) if digest else (_module(factory.partition(":")[0]),)
    return any(getattr(each, READS, "") == "images" for each in found)


def _counterpart(factory: str, digest: str) -> Counterpart | None:
    if digest:
        return None
    module, _, function = factory.partition(":")
    found: Counterpart | None = getattr(_module(module), "COUNTERPARTS", {}).get(function)
    return found


@functools.lru_cache(maxsize=256)
def _parameters(factory: str, digest: str) -> tuple[str, ...]:
    return own_import.ask(digest, _named_parameters, factory, digest)


def _named_parameters(factory: str, digest: str) -> tuple[str, ...]:
    """Return the names of a factory's parameters, without those that a partial fixed; () for a built module.

    Raises RequestError if it cannot be loaded, or is a builtin that names none.
    """
    target = _target(factory, digest)
    try:
        named = () if isinstance(target, nn.Module) else tuple(inspect.signature(target).parameters)
    except ValueError as error:
        raise RequestError(f"{factory}: {one_line(error)}", "write a function that names its parameters and returns the model") from error
    return tuple(name for name in named if name not in target.keywords) if isinstance(target, functools.partial) else named


def _name(factory: str) -> str:
    """Return the name after the file's, or an object's own."""
    return factory.rpartition(":")[2]


def _target(factory: str, digest: str) -> Callable[..., object]:
    """Return the function, class or built module. Raises RequestError if it cannot be loaded."""
    if digest:
        own: Callable[..., object] = own_import.load(digest, _name(factory))[0]
        return own
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
    except (Exception, SystemExit) as error:
        raise RequestError(
            f"python:{name} cannot be imported: {type(error).__name__}: {one_line(error)}", "check the name and the code"
        ) from error
    if not name.startswith("bench."):
        tell(f"imported {name} from {getattr(module, '__file__', None) or 'an unknown file'}")
    return module


def _create(config: Config) -> nn.Module:
    target = _target(config.factory, config.digest)
    if isinstance(target, nn.Module) and config.arguments:
        raise ValueError(f"{config.factory} is a built module, which takes no arguments; leave +{config.arguments} out")
    if isinstance(target, nn.Module):  # every call begins with the weights that it came with
        return copy.deepcopy(target).to(torch.get_default_device())
    words = {name: getattr(config.interface, name) for name in INTERFACE_WORDS}
    known = {"seq_len": config.shape.seq_len, **{size: getattr(config.shape, size) for size in SIZES}, **words}
    named = _parameters(config.factory, config.digest)
    given = {name: value for name, value in known.items() if name in named} | read_arguments(config.arguments)
    called = config.factory if config.digest else f"python:{config.factory}"
    try:
        model = target(**given)
    except ModuleNotFoundError as error:
        if error.name in LIBRARIES:
            raise missing_library(str(error.name), called) from error
        raise
    except SystemExit as error:
        raise ValueError(f"{called} ends the program: SystemExit: {one_line(error)}") from error
    except (TypeError, AssertionError) as error:
        raise ValueError(f"{called} refuses its arguments: {type(error).__name__}: {one_line(error)}") from error
    if not isinstance(model, nn.Module):
        raise ValueError(f"{called} must return a torch.nn.Module, not {type(model).__name__}")
    return model
