"""Looking into a model: how its mixers mix the tokens of a few test items, and how alike its positions are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.mixing import POSITIONS, LayerMixing, TokenLayout, reduce_layer
from bench.training.data import TrainingData
from bench.training.examples import Examples
from bench.training.reading import Batch
from models.layers.embedding import Embedding

MAX_ITEMS = 64
MAX_TOKENS = 16_384
"""Over all items: of longer sequences, fewer are looked at."""
MAX_SEQ_LEN = 2_049
MAX_ENTRIES = 1 << 24
"""Entries of n x n matrices per sample that are held at once, unless one sample has more."""


@torch.no_grad()
def mixing_of(model: nn.Module, data: TrainingData, layout: TokenLayout) -> dict[str, tuple[LayerMixing, ...]]:
    """By kind, layer by layer in the order in which they run: a mixer's kind is the name of its file, and the positions are one of a single layer.

    What attention weighs is the mean over the first test items that fill the length. Only mixers with `token_weights` are seen. Empty where no item
    fills the length, or the model is longer than MAX_SEQ_LEN. The model is left in evaluation mode, its weights and all random states alone.
    """
    batch = _whole_items(data, layout)
    if batch is None or layout.seq_len > MAX_SEQ_LEN:
        return {}
    found: dict[str, list[LayerMixing]] = {}

    def keep(mixer: Any, arguments: tuple[Tensor, ...]) -> None:
        weights = _mean_weights(mixer.token_weights, arguments[0])
        found.setdefault(_kind(mixer), []).append(reduce_layer(weights.cpu().numpy(), layout, measured=True))

    mixers = [module for module in model.modules() if hasattr(module, "token_weights")]
    hooks = [mixer.register_forward_pre_hook(keep) for mixer in mixers]
    try:
        model.eval()
        model(batch.data.to(next(model.parameters()).device))
    finally:
        for hook in hooks:
            hook.remove()
    if (alike := _position_similarity(model)) is not None:
        found[POSITIONS] = [reduce_layer(alike.cpu().numpy()[None], layout, measured=False)]
    return {kind: tuple(layers) for kind, layers in found.items()}


def _kind(mixer: nn.Module) -> str:
    return type(mixer).__module__.rpartition(".")[2]


def _whole_items(data: TrainingData, layout: TokenLayout) -> Batch | None:
    """A few test items without padding, always the same ones."""
    whole = _filling(data.test, layout.num_data_tokens)[: max(1, min(MAX_ITEMS, MAX_TOKENS // layout.seq_len))]
    if not len(whole):
        return None
    return data.reader.read(data.test.select(whole))


def _filling(examples: Examples, num_tokens: int) -> Tensor:
    if examples.lengths is None:
        return torch.arange(len(examples))
    return (examples.lengths >= num_tokens).nonzero()[:, 0]


def _mean_weights(token_weights: Callable[[Tensor], Tensor], tokens: Tensor) -> Tensor:
    """The mean over items, taken a few at a time: the n x n matrices of all of them would not fit."""
    first = token_weights(tokens[:1])
    at_once = max(1, MAX_ENTRIES // first.numel())
    parts = tokens[1:].split(at_once) if len(tokens) > 1 else ()
    total = first
    for part in parts:
        total = total + token_weights(part) * len(part)
    return total / len(tokens)


def _position_similarity(model: nn.Module) -> Tensor | None:
    """`(n, n)`: the cosine of the angle between the vectors of two positions; None for a model without any."""
    for module in model.modules():
        if isinstance(module, Embedding) and module.positions is not None:
            unit = F.normalize(module.positions[0], dim=-1)
            return unit @ unit.T
    return None
