"""Build models from outside this repository, and count their cost, for lack of a closed form.

The count holds at the model's own length. The model is counted on the `meta` device, or on the CPU where it cannot run there.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from bench.flop_counter import CountError, TorchCount, count_train_with_torch, count_with_torch
from bench.peers import own_import
from bench.peers.adapter import adapted
from bench.spec import COUNTED
from models.layers.cost import FLOPS_PER_MAC, Cost, Term, constant
from models.layers.shape import Interface, image_sides

WRONG_DEVICE = ("not on the expected device meta", "on meta device", "attempted to run this operator with Meta tensors")
"""torch's words where a model holds constants on the CPU or makes tensors there, and where an operator takes no `meta` tensors."""
SAMPLES = 3
"""Samples of the call that shows the shape of an answer: a number that no size is likely to have."""


@dataclass(frozen=True, kw_only=True)
class Counted:
    """What counting a model shows.

    `cost`: without a backward pass where `has_backward` is false: then it is a lower bound of a training step's.
    `has_backward`: whether the backward pass could be counted.
    `recomputed`: FLOPs of the forward pass that run again in the backward pass.
    `uses_attention`: whether it calls torch's attention.
    `answer`: shape of its answer to SAMPLES samples; () if that is no tensor.
    """

    cost: Cost
    has_backward: bool
    recomputed: int
    uses_attention: bool
    answer: tuple[int, ...]


class Outside(Protocol):
    """Config of a model from outside this repository; equal configs build equal models.

    `digest`: of a user's own file or object; empty for other models.
    `reads_images`: whether the model reads images alone.
    """

    @property
    def interface(self) -> Interface: ...

    @property
    def data_tokens(self) -> int: ...

    @property
    def digest(self) -> str: ...

    @property
    def reads_images(self) -> bool: ...

    def create(self) -> nn.Module:
        """Return the library's or the user's model."""

    def __hash__(self) -> int: ...


def build(config: Outside) -> nn.Module:
    """Build the model on the default device. Threads stay as they are, whatever its code sets.

    Raises ValueError if its code refuses its arguments or returns another type.
    """
    threads = torch.get_num_threads()
    try:
        with own_import.beside(config.digest):
            model = build_on_device(config.create)
    finally:
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
    return adapted(model, config.interface, reads_images=config.reads_images)


def with_shapes(model: nn.Module, config: Outside) -> nn.Module:
    """Give lazy layers their shapes, by a first call on the default device, where the model must be."""
    if is_lazy(model):
        training = {part: part.training for part in model.modules()}
        with torch.no_grad():
            adapted(model, config.interface, reads_images=config.reads_images).eval()(sample_of(config))
        for part, was in training.items():
            part.training = was
    return model


def is_lazy(model: nn.Module) -> bool:
    return any(map(nn.parameter.is_lazy, itertools.chain(model.parameters(), model.buffers())))


def cost(config: Outside) -> Cost:
    return counted(config).cost


def uses_attention(config: Outside) -> bool:
    return counted(config).uses_attention


@functools.lru_cache(maxsize=512)
def counted(config: Outside) -> Counted:
    """Return the count of a model, once per config.

    Raises CountError if torch's counter would miss matrix work, and any error of building or calling the model.
    """
    return own_import.ask(config.digest, _count, config)


def _count(config: Outside) -> Counted:
    try:
        return _count_on("meta", config)
    except (RuntimeError, ValueError) as error:
        if not any(words in str(error) for words in WRONG_DEVICE):  # a model that reads values has no one count
            raise
        return _count_on("cpu", config)


def _count_on(device: str, config: Outside) -> Counted:
    with torch.device(device):
        model, data, samples = build(config).eval(), sample_of(config), sample_of(config, SAMPLES)
    with AttentionCalls() as calls:
        found = count_with_torch(model, data)
    with torch.device(device), torch.no_grad():
        answers = model(samples)
    answer = tuple(answers.shape) if isinstance(answers, Tensor) else ()
    step = _step(model, data) if answer else None
    backward = step.flops - found.flops if step else 0
    params = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    cost = _constant_cost(params, found.flops // FLOPS_PER_MAC, backward // FLOPS_PER_MAC, found.ffts)
    return Counted(
        cost=cost, has_backward=step is not None, recomputed=step.recomputed if step else 0, uses_attention=calls.found, answer=answer
    )


def _step(model: nn.Module, data: Tensor) -> TorchCount | None:
    """Count a training step of one sample; None if a counter would miss matrix work.

    It is the larger count of a model in training and one in evaluation. So a block that training skips at random counts as run, and a batch
    normalisation that refuses a single sample in training is counted too. Of a model that cannot answer a single sample it is None.
    """
    found = []
    for is_training in (True, False):
        try:
            found.append(count_train_with_torch(model.train(is_training), data))
        except CountError:
            return None
        except (IndexError, RuntimeError, ValueError):
            continue
    return max(found, key=lambda step: step.flops, default=None)


def _constant_cost(params: int, macs: int, backward_macs: int, ffts: Mapping[int, int]) -> Cost:
    """Return the cost as constant polynomials, in the scope `counted`.

    The growth with n is unknown. Most products have two backward products, but products with the model's input have one. So the total may need
    two terms with different numbers of backward products.

    `ffts`: number of real FFTs by length.
    """
    each, rest = divmod(backward_macs, max(1, macs))
    parts = {each + 1: rest, each: macs - rest}
    products = [(times, part) for times, part in parts.items() if part] or [(each, 0)]
    first, *others = (Term(name=COUNTED, scope=COUNTED, macs=constant(part), backward_products=times) for times, part in products)
    return Cost(
        (
            replace(first, params=constant(params)),
            *(replace(term, name=f"{COUNTED}.rest") for term in others),
            *(Term(name=f"{COUNTED}.fft_{length}", scope=COUNTED, ffts=ffts[length], fft_length=length) for length in sorted(ffts)),
        )
    )


def sample_of(config: Outside, num: int = 1) -> Tensor:
    """Return `num` samples on the current default device."""
    interface, tokens = config.interface, config.data_tokens
    if interface.input == "tokens":
        return torch.zeros(num, tokens, dtype=torch.long)
    return torch.zeros(num, *(image_sides(tokens, interface.patch_dim) if interface.input == "images" else (tokens, interface.patch_dim)))


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


class AttentionCalls(TorchFunctionMode):
    """Detects calls of `scaled_dot_product_attention`, including torch's own attention layer's, and whether they pass a mask."""

    found = masked = False

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        keywords = kwargs or {}
        if function is F.scaled_dot_product_attention:
            self.found = True
            self.masked = self.masked or (args[3] if len(args) > 3 else keywords.get("attn_mask")) is not None
        elif function is F.multi_head_attention_forward:
            self.found = self.found or not keywords.get("need_weights", True)
        return function(*args, **keywords)
