"""Counted cost of a model without a closed form.

The count holds at the model's own length. The model is counted on the `meta` device.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from bench.flop_counter import CountError, count_train_with_torch, count_with_torch
from bench.spec import COUNTED
from models.layers.cost import FLOPS_PER_MAC, Cost, Term, constant
from models.layers.shape import Interface, image_sides

SAMPLES = 3
"""Samples of the call that shows the shape of an answer: a number that no size is likely to have."""


@dataclass(frozen=True, kw_only=True)
class Counted:
    """Counted cost of a model.

    `params`: trained parameters.
    `macs`: multiply-adds of one sample's forward pass.
    `backward_macs`: multiply-adds of the sample's backward pass; None if it cannot run at batch 1.
    `ffts`: number and length of the real FFTs of one sample's forward pass.
    `uses_attention`: whether it calls torch's attention.
    `answer`: shape of its answer to SAMPLES samples; () if that is no tensor.
    """

    params: int
    macs: int
    backward_macs: int | None
    ffts: tuple[tuple[int, int], ...]
    uses_attention: bool
    answer: tuple[int, ...]

    @property
    def cost(self) -> Cost:
        """Return the cost as constant polynomials, in the scope `counted`.

        The growth with n is unknown. Most products have two backward products, but products with the model's input have one. So the total may need
        two terms with different numbers of backward products.
        """
        each, rest = divmod(2 * self.macs if self.backward_macs is None else self.backward_macs, max(1, self.macs))
        parts = {each + 1: rest, each: self.macs - rest}
        found = [(times, macs) for times, macs in parts.items() if macs] or [(each, 0)]
        terms = [
            Term(name=COUNTED if place == 0 else f"{COUNTED}.rest", scope=COUNTED, macs=constant(macs), backward_products=times)
            for place, (times, macs) in enumerate(found)
        ]
        ffts = [Term(name=f"{COUNTED}.fft_{length}", scope=COUNTED, ffts=number, fft_length=length) for number, length in self.ffts]
        return Cost((replace(terms[0], params=constant(self.params)), *terms[1:], *ffts))


class Countable(Protocol):
    """Config of a counted model; equal configs build equal models."""

    @property
    def interface(self) -> Interface: ...

    @property
    def data_tokens(self) -> int: ...

    def __hash__(self) -> int: ...


@functools.lru_cache(maxsize=512)
def count_once(build: Callable[[Any], nn.Module], config: Countable) -> Counted:
    """Count the model that `build` makes from a config, once per config."""
    return count(lambda: build(config), config.interface, config.data_tokens)


def count(build: Callable[[], nn.Module], interface: Interface, data_tokens: int) -> Counted:
    """Count a model's parameters and multiply-adds.

    Raises CountError if torch's counter would miss matrix work, and any error of building or calling the model.
    """
    with torch.device("meta"):
        model, data = build(), sample_of(interface, data_tokens)
    with _AttentionCalls() as calls:
        counted = count_with_torch(model.eval(), data)
    answer = _answer(model, interface, data_tokens)
    backward = None
    with contextlib.suppress(CountError, RuntimeError, ValueError):
        backward = None if not answer else (count_train_with_torch(model.train(), data).flops - counted.flops) // FLOPS_PER_MAC
    params = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    return Counted(
        params=params,
        macs=counted.flops // FLOPS_PER_MAC,
        backward_macs=backward,
        ffts=tuple((number, length) for length, number in sorted(counted.ffts.items())),
        uses_attention=calls.found,
        answer=answer,
    )


def _answer(model: nn.Module, interface: Interface, data_tokens: int) -> tuple[int, ...]:
    with torch.device("meta"), torch.no_grad():
        found = model.eval()(sample_of(interface, data_tokens, SAMPLES))
    return tuple(found.shape) if isinstance(found, Tensor) else ()


def sample_of(interface: Interface, data_tokens: int, num: int = 1) -> Tensor:
    """Return `num` samples on the current default device."""
    if interface.input == "tokens":
        return torch.zeros(num, data_tokens, dtype=torch.long)
    is_image = interface.input == "images"
    return torch.zeros(num, *(image_sides(data_tokens, interface.patch_dim) if is_image else (data_tokens, interface.patch_dim)))


def build_on_device(build: Callable[[], nn.Module]) -> nn.Module:
    """Build a model on the default device.

    If that fails on `meta`, builds it on the CPU and moves it: some models read tensor values while they are built, and `meta` tensors have none.
    """
    try:
        return build()
    except (NotImplementedError, RuntimeError):
        if torch.get_default_device().type != "meta":
            raise
    with torch.device("cpu"):
        return build().to("meta")


class _AttentionCalls(TorchFunctionMode):
    """Detects calls of `scaled_dot_product_attention`, including torch's own attention layer's."""

    def __init__(self) -> None:
        super().__init__()
        self.found = False

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        keywords = kwargs or {}
        if function is F.scaled_dot_product_attention:
            self.found = True
        elif function is F.multi_head_attention_forward:
            self.found = self.found or not keywords.get("need_weights", True)
        return function(*args, **keywords)
