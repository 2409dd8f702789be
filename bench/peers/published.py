"""Published models: facts read from the built model, and the resulting spec."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from bench.peers.counterpart import Counterpart
from bench.spec import ModelSpec, OptionValue, RequestError
from bench.tasks._info import Images, info_of
from models.layers.shape import Interface, Shape, patch_of

COLOUR_CHANNELS = 3
SIZES = ("width", "depth", "heads", "ffn_width")


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Facts of a published model.

    `seq_len`: its own length; 0 for a convolutional network, which reads images whole.
    `num_extra`: tokens besides data tokens (class token, registers).
    `patch_side`: pixels per side of a patch; 0 for a convolutional network.
    `sizes`: sizes that could be read from the model, by name.
    """

    seq_len: int
    num_extra: int
    patch_side: int
    num_classes: int
    sizes: Mapping[str, int]

    def extra_at(self, seq_len: int) -> int:
        """Return the tokens besides data tokens at this length.

        A convolutional network has no tokens: n says beside which models it stands, so one that is no square number counts their class token.
        """
        return self.num_extra if self.patch_side else int(math.isqrt(seq_len) ** 2 != seq_len)

    def pool_at(self, seq_len: int) -> str:
        return "cls" if self.extra_at(seq_len) == 1 else "mean"


@dataclass(frozen=True, kw_only=True, eq=False)
class Publisher:
    """A library of published models.

    `facts_of`: returns the facts of a model. Raises RequestError for an unknown name.
    `create`: returns the library's model of a config.
    `counterparts`: of published models, by name.
    """

    name: str
    facts_of: Callable[[str], Facts]
    create: Callable[[Published], nn.Module]
    counterparts: Mapping[str, Counterpart]

    def reads_whole(self, options: tuple[tuple[str, OptionValue], ...]) -> bool:
        """Return whether a model is a convolutional network, which reads images whole."""
        return not self.facts_of(str(dict(options)["model"])).patch_side

    def spec_of(
        self,
        name: str,
        options: tuple[tuple[str, OptionValue], ...],
        *,
        seq_len: int | None,
        sizes: Mapping[str, int | None],
        input: str,
        task: str,
    ) -> ModelSpec:
        """Return the spec of a published model, whatever `sizes` are asked.

        The interface is its own or a task's. Another `seq_len` changes the side of the images. Raises RequestError if the task or input is not
        images, if the length does not fit, or if a convolutional network has no task or length.
        """
        facts = self.facts_of(str(dict(options)["model"]))
        n = seq_len or facts.seq_len
        if not facts.patch_side:
            _require_place(name, n, task)
        if n <= facts.num_extra:
            raise RequestError(
                f"{name} has {facts.num_extra} tokens besides those of the image, so `seq={n}` is too short", f"try `seq={facts.seq_len}`"
            )
        interface = _task_interface(name, facts, n, task) if task else _own_interface(name, facts, input)
        shape = Shape(seq_len=n, **{size: facts.sizes.get(size, 1) for size in SIZES})
        return ModelSpec(name=name, family=self.name, options=options, shape=shape, interface=interface)


@dataclass(frozen=True, kw_only=True)
class Published:
    """Config of a published model.

    `shape`: only seq_len is used; the other sizes are as published.
    `model`: the library's name of the model.
    """

    publisher: Publisher
    shape: Shape
    interface: Interface
    model: str
    digest: ClassVar = ""
    reads_images: ClassVar = True

    def __post_init__(self) -> None:
        """Raise ValueError unless the interface maps images to one class."""
        given = self.interface
        if given.input == "tokens" or given.output != "class":
            raise ValueError(f"{self.model} reads images and answers with one class, not input={given.input}, output={given.output}")
        patch_of(given.patch_dim)

    @property
    def facts(self) -> Facts:
        return self.publisher.facts_of(self.model)

    @property
    def pool(self) -> str:
        return self.facts.pool_at(self.shape.seq_len)

    @property
    def data_tokens(self) -> int:
        return self.shape.seq_len - self.facts.extra_at(self.shape.seq_len)

    @property
    def unknown_sizes(self) -> tuple[str, ...]:
        return tuple(size for size in SIZES if size not in self.facts.sizes)

    @property
    def counterpart(self) -> Counterpart | None:
        return self.publisher.counterparts.get(self.model.partition(".")[0])

    def create(self) -> nn.Module:
        return self.publisher.create(self)


def unknown_model(library: str, model: str, known: Sequence[str], hint: str) -> RequestError:
    """Return an error for an unknown model, suggesting the nearest known one."""
    near = difflib.get_close_matches(model, known, n=1, cutoff=0.5)
    guess = f"did you mean {library}:{near[0]}? " if near else ""
    return RequestError(f"{library} has no model {model!r}", f"{guess}{hint}")


def _own_interface(name: str, facts: Facts, input: str) -> Interface:
    if input == "tokens":
        raise RequestError(f"{name} reads images, not `input=tokens`", "leave `input` out, or write `input=images`")
    if not facts.num_classes:
        raise RequestError(f"{name} has no output classes", "add a `task`, which defines them, or name another model")
    return Interface(input="images", patch_dim=COLOUR_CHANNELS * facts.patch_side**2, num_classes=facts.num_classes)


def _task_interface(name: str, facts: Facts, seq_len: int, task: str) -> Interface:
    info = info_of(task)
    if not isinstance(info.reads, Images):
        raise RequestError(f"{name} reads images; task {task} has none", "try `task=digits` or cifar10")
    if facts.num_extra > 1:
        raise RequestError(f"{name} has {facts.num_extra} tokens besides those of the image; tasks allow at most one", "leave `task` out")
    return info.interface(seq_len, facts.pool_at(seq_len))


def _require_place(name: str, seq_len: int, task: str) -> None:
    """Raise RequestError unless a convolutional network has a task, whose images it reads, and a length."""
    if not task:
        raise RequestError(
            f"{name} does not cut images into patches, so it has no seq_len, and needs a task of images",
            "add a `task` such as cifar10, or name a model that cuts patches, such as timm:gmlp_s16_224",
        )
    if not seq_len:
        raise RequestError(f"{name} has no seq_len: n says beside which models it stands", "add theirs, such as `seq=65`")
