"""Inspect a model: token mixing, similarity of positions, and curve fits."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from bench.training.curve_fits import Fit
from bench.training.data import TrainingData
from bench.training.weight_maps import POSITIONS, LayerMixing, TokenLayout, reduce_layer
from models.layers.embedding import Embedding

MAX_ITEMS = 64
MAX_TOKENS = 16_384
"""Tokens over all items: fewer items of longer sequences are inspected."""
MAX_SEQ_LEN = 2_049
CURVE_POINTS = 101
MAX_ENTRIES = 1 << 24
"""Entries of n x n matrices held at once.

A single sample may have more.
"""


@torch.no_grad()
def mixing_of(model: nn.Module, data: TrainingData, layout: TokenLayout) -> dict[str, tuple[LayerMixing, ...]]:
    """Return the token mixing of a model's mixers, by kind and layer.

    Layers are in execution order. A mixer's kind is its file name; positions are a kind with one layer. Attention weights are means over the first
    test items of full length. Only mixers with `token_weights` that mix the whole sequence are included; mixers of half sequences are not. Empty if
    no item has full length or the model is longer than MAX_SEQ_LEN. Leaves the model in evaluation mode; weights and random states stay unchanged.
    """
    lengths = data.test.lengths
    whole = torch.arange(len(data.test)) if lengths is None else (lengths >= layout.num_data_tokens).nonzero()[:, 0]
    chosen = whole[: max(1, min(MAX_ITEMS, MAX_TOKENS // layout.seq_len))]
    if not len(chosen) or layout.seq_len > MAX_SEQ_LEN:
        return {}
    batch = data.reader.read(data.test.select(chosen))
    found: dict[str, list[LayerMixing]] = {}

    def keep(kind: str, weights: NDArray[Any]) -> None:
        found.setdefault(kind, []).append(reduce_layer(weights, layout, measured=True))

    see_mixing(model, batch.data, layout.seq_len, keep)
    if (alike := _position_similarity(model)) is not None and len(alike) == layout.seq_len:
        found[POSITIONS] = [reduce_layer(alike.cpu().numpy()[None], layout, measured=False)]
    return {kind: tuple(layers) for kind, layers in found.items()}


@torch.no_grad()
def see_mixing(model: nn.Module, data: Tensor, seq_len: int, see: Callable[[str, NDArray[Any]], None]) -> Tensor:
    """Return the model's answers to a batch; show `see` each mixer's kind and mean matrix over the items, `(heads, n, n)`, in order of execution.

    Only mixers of the whole sequence are shown. Leaves the model in evaluation mode.
    """

    def keep(mixer: Any, arguments: tuple[Tensor, ...]) -> None:
        if arguments[0].shape[1] == seq_len:
            see(type(mixer).__module__.rpartition(".")[2], _mean_weights(mixer.token_weights, arguments[0]).cpu().numpy())

    mixers = [module for module in model.modules() if hasattr(module, "token_weights")]
    hooks = [mixer.register_forward_pre_hook(keep) for mixer in mixers]
    try:
        answers: Tensor = model.eval()(data.to(_device_of(model)))
    finally:
        for hook in hooks:
            hook.remove()
    return answers


@torch.no_grad()
def fit_of(model: nn.Module, data: TrainingData, curve: Callable[[NDArray[Any]], NDArray[Any]]) -> Fit | None:
    """Return the model's predictions for the first test item, with its points.

    None if an answer is not finite. The task must ask for values at tokens and have a curve (`TaskInfo.curve`). Leaves the model in evaluation mode.
    """
    batch = data.reader.read(data.test.select(torch.zeros(1, dtype=torch.int64)))
    device = _device_of(model)
    model.eval()
    valid = None if batch.valid is None else batch.valid.to(device)
    prediction = model(batch.data.to(device), valid)[0, :, 0].float().cpu()
    vectors, truth = batch.data[0].float(), batch.targets[0].float()
    is_asked = ~truth.isnan()
    is_observed = ~is_asked if batch.valid is None else ~is_asked & batch.valid[0]
    if not bool(prediction[is_asked].isfinite().all()):
        return None
    x, y = vectors[:, 0], vectors[:, 1]
    curve_x = np.linspace(float(x.min()), float(x.max()), CURVE_POINTS)
    return Fit(
        observed_x=tuple(x[is_observed].tolist()),
        observed_y=tuple(y[is_observed].tolist()),
        asked_x=tuple(x[is_asked].tolist()),
        truth=tuple(truth[is_asked].tolist()),
        prediction=tuple(prediction[is_asked].tolist()),
        curve_x=tuple(curve_x.tolist()),
        curve_y=tuple(curve(curve_x).tolist()),
    )


def _device_of(model: nn.Module) -> torch.device:
    """Return the device of a model; the CPU without tensors."""
    tensor = next(itertools.chain(model.parameters(), model.buffers()), None)
    return torch.device("cpu") if tensor is None else tensor.device


def _mean_weights(token_weights: Callable[[Tensor], Tensor], tokens: Tensor) -> Tensor:
    """Return the mean token weights over items.

    Items are processed a few at a time, because all n x n matrices would not fit in memory.
    """
    first = token_weights(tokens[:1])
    at_once = max(1, MAX_ENTRIES // first.numel())
    parts = tokens[1:].split(at_once) if len(tokens) > 1 else ()
    total = first
    for part in parts:
        total = total + token_weights(part) * len(part)
    return total / len(tokens)


def _position_similarity(model: nn.Module) -> Tensor | None:
    """Return the cosine similarity of position vectors, `(n, n)`.

    None for a model without position vectors.
    """
    for module in model.modules():
        if isinstance(module, Embedding) and module.positions is not None:
            unit = F.normalize(module.positions[0], dim=-1)
            return unit @ unit.T
    return None
