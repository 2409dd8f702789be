"""What a model costs that has no closed form: counted at its own length, on the `meta` device."""

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


@dataclass(frozen=True, kw_only=True)
class Counted:
    """Trained parameters; multiply-adds of one sample's forward, and of its backward (None where it cannot run at batch 1)."""

    params: int
    macs: int
    backward_macs: int | None
    uses_attention: bool

    @property
    def cost(self) -> Cost:
        """Constant polynomials, in the scope `counted`: nothing is known of other lengths.

        Of the backward products some are for the weight alone, as where the data come in, so there may be two terms, told apart by their number.
        """
        each, rest = divmod(2 * self.macs if self.backward_macs is None else self.backward_macs, max(1, self.macs))
        parts = {each + 1: rest, each: self.macs - rest}
        found = [(times, macs) for times, macs in parts.items() if macs] or [(each, 0)]
        terms = [
            Term(name=COUNTED if place == 0 else f"{COUNTED}.rest", scope=COUNTED, macs=constant(macs), backward_products=times)
            for place, (times, macs) in enumerate(found)
        ]
        return Cost((replace(terms[0], params=constant(self.params)), *terms[1:]))


class Countable(Protocol):
    """The config of a model that is counted; equal ones make equal models."""

    @property
    def interface(self) -> Interface: ...

    @property
    def data_tokens(self) -> int: ...

    def __hash__(self) -> int: ...


@functools.lru_cache(maxsize=512)
def of(build: Callable[[Any], nn.Module], config: Countable) -> Counted:
    """That of the model which `build` makes of the config, once for each."""
    return count(lambda: build(config), config.interface, config.data_tokens)


def count(build: Callable[[], nn.Module], interface: Interface, data_tokens: int) -> Counted:
    """Raises CountError where torch's counter would miss matrix work, and whatever building or calling the model raises."""
    with torch.device("meta"):
        model, data = build(), sample_of(interface, data_tokens)
    with _AttentionCalls() as calls:
        forward = count_with_torch(model.eval(), data).flops
    backward = None
    with contextlib.suppress(CountError, RuntimeError, ValueError):
        backward = (count_train_with_torch(model.train(), data).flops - forward) // FLOPS_PER_MAC
    params = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    return Counted(params=params, macs=forward // FLOPS_PER_MAC, backward_macs=backward, uses_attention=calls.found)


def sample_of(interface: Interface, data_tokens: int) -> Tensor:
    """One sample, on the current default device."""
    if interface.input == "tokens":
        return torch.zeros(1, data_tokens, dtype=torch.long)
    is_image = interface.input == "images"
    return torch.zeros(1, *(image_sides(data_tokens, interface.patch_dim) if is_image else (data_tokens, interface.patch_dim)))


def built_anywhere(build: Callable[[], nn.Module]) -> nn.Module:
    """What `build` makes; where it reads numbers while it builds, which `meta` has not, made on the CPU and moved."""
    try:
        return build()
    except (NotImplementedError, RuntimeError):
        if torch.get_default_device().type != "meta":
            raise
    with torch.device("cpu"):
        return build().to("meta")


class _AttentionCalls(TorchFunctionMode):
    """Whether `scaled_dot_product_attention` is called, by the model or by torch's own attention layer."""

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
