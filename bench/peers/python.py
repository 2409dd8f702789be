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
import pickle
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import torch
from torch import nn

from bench.errors import one_line
from bench.peers import own_import
from bench.peers.counted import SAMPLES, build, cost, counted, is_lazy, sample_of, uses_attention, with_shapes
from bench.peers.counterpart import Counterpart
from bench.peers.names import LIBRARIES, Options, missing_library, read_arguments
from bench.peers.published import SIZES
from bench.progress import tell
from bench.spec import ModelSpec, RequestError
from bench.tasks._info import Images, info_of
from models.layers.shape import Interface, Shape, image_sides, num_data_tokens, require_one_of

__all__ = ["build", "cost", "uses_attention"]
COUNTED = True
USES_HEADS = True
INTERFACE_WORDS = ("input", "patch_dim", "num_classes", "vocab_size")
READS = "READS"
"""Attribute of a module, function or class: its models read `images`."""


@dataclass(frozen=True, kw_only=True)
class Factory:
    """What planning knows of a factory.

    `parameters`: names of its parameters, without those that a partial fixed; () for a built module.
    `counterpart`: ours that computes the same; None if unknown.
    """

    parameters: tuple[str, ...]
    reads_images: bool
    counterpart: Counterpart | None


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
    def reads_images(self) -> bool:
        return known(self.factory, self.digest).reads_images

    @property
    def unknown_sizes(self) -> tuple[str, ...]:
        return tuple(size for size in SIZES if size not in known(self.factory, self.digest).parameters)

    @property
    def counterpart(self) -> Counterpart | None:
        """The factory's counterpart; None if further arguments may change the model."""
        return None if self.arguments else known(self.factory, self.digest).counterpart

    def create(self) -> nn.Module:
        """Call the factory, or copy the built module. Raises ValueError if it refuses its arguments or returns another type."""
        target, called = _load(self.factory, self.digest)[0], self.factory if self.digest else f"python:{self.factory}"
        if isinstance(target, nn.Module):  # every call begins with the weights that it came with
            if self.arguments:
                raise ValueError(f"{self.factory} is a built module, which takes no arguments; leave +{self.arguments} out")
            if any(isinstance(part, torch.jit.ScriptModule) for part in target.modules()):
                raise ValueError(f"{called} holds TorchScript, which cannot be moved between devices; name a function that builds it")
            with torch.device("cpu"):
                own = with_shapes(_copied(target), self)
            return own.to(torch.get_default_device())
        named, offered = known(self.factory, self.digest).parameters, self._offered()
        try:
            model = target(**{name: value for name, value in offered.items() if name in named} | read_arguments(self.arguments))
        except ModuleNotFoundError as error:
            if error.name in LIBRARIES:
                raise missing_library(str(error.name), called) from error
            raise
        except SystemExit as error:
            raise ValueError(f"{called} ends the program: SystemExit: {one_line(error)}") from error
        except (TypeError, AssertionError) as error:
            raise ValueError(
                f"{called} refuses its arguments: {type(error).__name__}: {one_line(error)}; it takes {', '.join(named) or 'none'}"
            ) from error
        if not isinstance(model, nn.Module):
            raise ValueError(f"{called} must return a torch.nn.Module, not {type(model).__name__}")
        return with_shapes(model, self)

    def _offered(self) -> dict[str, Any]:
        """Return what a factory may name. `seq_len` is that of the data, but for peers, which count a class token as ours do."""
        offered = {size: getattr(self.shape, size) for size in ("seq_len", *SIZES)}
        offered |= {name: getattr(self.interface, name) for name in INTERFACE_WORDS}
        if not known(self.factory, self.digest).counterpart:
            offered["seq_len"] = self.data_tokens
        if self.reads_images or self.interface.input == "images":
            channels, side, _ = image_sides(self.data_tokens, self.interface.patch_dim)
            offered |= {"channels": channels, "image_size": side}
        return offered


def _copied(model: nn.Module) -> nn.Module:
    """Copy a model; a lazy layer's buffers can be pickled alone."""
    copied: nn.Module = pickle.loads(pickle.dumps(model)) if is_lazy(model) else copy.deepcopy(model)
    return copied


def spec_of(name: str, options: Options, *, seq_len: int | None, sizes: dict[str, int | None], input: str, task: str) -> ModelSpec:
    """Return the spec with the sizes that the factory names; a size without a value is 1.

    The input is images if the model reads only images. Raises RequestError if it cannot be loaded, or images of this length are not square.
    """
    assert seq_len is not None, "only published models have a default length"
    factory = _factory_of(options)
    pool, interface = _input_of(factory, dict(options), seq_len, input, task)
    return ModelSpec(
        name=name,
        family="python",
        options=tuple(sorted({**dict(options), "pool": pool}.items())),
        shape=Shape(seq_len=seq_len, **{size: (sizes.get(size) or 1) if size in factory.parameters else 1 for size in SIZES}),
        interface=interface,
    )


def takes(options: Options, size: str) -> bool:
    """Return whether a factory has a parameter of this name. Raises RequestError if it cannot be loaded."""
    return size in _factory_of(options).parameters


def wrong_answer(config: Config) -> str:
    """Return the shapes of a wrong answer, as `returned ...; ... is needed`; empty if its shape is right."""
    returned, interface = counted(config).answer, config.interface
    needed = (SAMPLES, *((config.data_tokens,) if interface.output == "tokens" else ()), interface.num_classes)
    if returned == needed:
        return ""
    return f"returned {_shape_text(returned) if returned else 'no tensor'}; {_shape_text(needed)} is needed"


def call_text(config: Config) -> str:
    """Say what the model is called with, as `called with one float tensor [batch, 65, 192]`."""
    if config.reads_images:  # patches are folded into images
        config = replace(config, interface=replace(config.interface, input="images"))
    with torch.device("meta"):
        sample = sample_of(config, SAMPLES)
    return f"called with one {'float' if sample.is_floating_point() else 'integer'} tensor {_shape_text(tuple(sample.shape))}"


def _shape_text(shape: tuple[int, ...]) -> str:
    first, *others = shape
    return f"[{', '.join(map(str, ('batch' if first == SAMPLES else first, *others)))}]"


def _input_of(factory: Factory, options: dict[str, Any], seq_len: int, input: str, task: str) -> tuple[str, Interface]:
    """Return whether the model has a class token, and what it is called with.

    A counterpart, or the user, may say how it pools. If not, images decide: n = 65 is 64 patches and a class token, n = 64 is patches alone. Other
    inputs have no class token.
    """
    pool = str(options.get("pool") or (factory.counterpart.options.get("pool", "") if factory.counterpart else ""))
    if task:
        reads = info_of(task).reads
        fits_cls = isinstance(reads, Images) and reads.patch_side(seq_len, "mean") is None and reads.patch_side(seq_len, "cls") is not None
        chosen = pool or ("cls" if fits_cls else "mean")
        return chosen, info_of(task).interface(seq_len, chosen)
    if factory.reads_images and input == "tokens":
        raise RequestError(f"{options['factory']} reads images, not `input=tokens`", "leave `input` out, or write `input=images`")
    if not (factory.reads_images or input == "images"):
        return pool or "mean", Interface(input=input)
    chosen = pool or ("cls" if _is_square(seq_len - 1) else "mean")
    if not factory.counterpart and not _is_square(num_data_tokens(seq_len, chosen)):
        raise _not_square(seq_len, extra=pool != "mean")
    return chosen, Interface(input="images")


def _is_square(number: int) -> bool:
    return number > 0 and math.isqrt(number) ** 2 == number


def _not_square(seq_len: int, *, extra: bool) -> RequestError:
    below = math.isqrt(seq_len - extra)
    near = [side**2 + extra for side in (below, below + 1) if side**2 + extra > 1]
    return RequestError(
        f"images are square, and n = {seq_len} gives no square number of patches; nearest lengths: {' and '.join(map(str, near))}"
        f"{' (a class token included)' if extra else ''}",
        f"try `seq={near[-1]}`",
    )


def _factory_of(options: Options) -> Factory:
    asked = dict(options)
    return known(str(asked["factory"]), str(asked.get("digest", "")))


@functools.lru_cache(maxsize=256)
def known(factory: str, digest: str) -> Factory:
    """Return what is known of a factory. Raises RequestError if it cannot be loaded, or is a builtin that names no parameters."""
    return own_import.ask(digest, _read, factory, digest)


def _read(factory: str, digest: str) -> Factory:
    target, module = _load(factory, digest)
    try:
        named = () if isinstance(target, nn.Module) else tuple(inspect.signature(target).parameters)
    except ValueError as error:
        raise RequestError(f"{factory}: {one_line(error)}", "write a function that names its parameters and returns the model") from error
    return Factory(
        parameters=tuple(name for name in named if name not in target.keywords) if isinstance(target, functools.partial) else named,
        reads_images=any(getattr(place, READS, "") == "images" for place in (target, module)),
        counterpart=None if digest else getattr(module, "COUNTERPARTS", {}).get(factory.partition(":")[2]),
    )


def _load(factory: str, digest: str) -> tuple[Callable[..., object], ModuleType | None]:
    """Return the function, class or built module, and its module. Raises RequestError if it cannot be loaded."""
    place, _, name = factory.rpartition(":")
    if digest:
        return own_import.load(digest, name)
    found = getattr(module := _module(place), name, None)
    if not callable(found):
        raise RequestError(f"{place} has no function {name}", "write python:package.module:factory")
    return found, module


@functools.cache
def _module(name: str) -> ModuleType:
    """Import the user's module; the current folder is searched too.

    Raises RequestError if importing fails.
    """
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.append(os.getcwd())  # last, so that it shadows no other module
    try:
        with own_import.prints_on_stderr():
            module = importlib.import_module(name)
    except (Exception, SystemExit) as error:
        raise RequestError(
            f"python:{name} cannot be imported: {type(error).__name__}: {one_line(error)}", "check the name and the code"
        ) from error
    if not name.startswith("bench."):
        tell(f"imported {name} from {getattr(module, '__file__', None) or 'an unknown file'}")
    return module
