"""Inspect a model and its data: token mixing, positions, alignments, curve fits, and an image as it is read."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from bench.tasks import IGNORED
from bench.training.curve_fits import Fit
from bench.training.data import TrainingData
from bench.training.pictures import Picture, shrinkage
from bench.training.reading import PIXEL_SCALE, Batch
from bench.training.weight_maps import ALIGNMENT, POSITIONS, LayerMixing, TokenLayout, average_blocks, reduce_layer
from models.layers.embedding import Embedding
from models.layers.patches import fold_patches
from models.layers.shape import image_grid

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
    test items of full length. Only mixers with `token_weights` that mix the whole sequence are included; mixers of half sequences are not. Positions
    are a kind with their vectors. A decoder's `alignment` is a kind with the first of those items alone. Empty if no item has full length or the
    model is longer than MAX_SEQ_LEN. Leaves the model in evaluation mode; weights and random states stay unchanged.
    """
    lengths = data.test.lengths
    whole = torch.arange(len(data.test)) if lengths is None else (lengths >= layout.num_data_tokens).nonzero()[:, 0]
    chosen = whole[: max(1, min(MAX_ITEMS, MAX_TOKENS // layout.seq_len))]
    if not len(chosen) or layout.seq_len > MAX_SEQ_LEN:
        return {}
    batch = data.reader.read(data.test.select(chosen))
    found: dict[str, list[LayerMixing]] = {}

    def keep(mixer: Any, weights: NDArray[Any]) -> None:
        kind = type(mixer).__module__.rpartition(".")[2]
        found.setdefault(kind, []).append(reduce_layer(weights, layout, order=getattr(mixer, "TOKEN_ORDER", "")))

    steps: list[Tensor] = []

    def keep_step(_module: nn.Module, _arguments: Any, weights: Tensor) -> None:
        steps.append(weights[0])

    aligned = (module for name, module in model.named_modules() if name.rpartition(".")[2] == "alignment")
    hooks = [module.register_forward_hook(keep_step) for module in aligned]
    try:
        see_mixing(model, batch.data, layout.seq_len, keep)
    finally:
        for hook in hooks:
            hook.remove()
    if steps:
        found[ALIGNMENT] = [_alignment(torch.cat(steps), batch, layout)]
    if (vectors := _position_vectors(model)) is not None and len(vectors) == layout.seq_len:
        unit = F.normalize(vectors, dim=-1)
        maps = average_blocks((unit @ unit.T).cpu().numpy()[None], layout)
        found[POSITIONS] = [LayerMixing(maps=maps, vectors=vectors.cpu().numpy().copy())]  # not the weights, which training changes
    return {kind: tuple(layers) for kind, layers in found.items()}


@torch.no_grad()
def see_mixing(model: nn.Module, data: Tensor, seq_len: int, see: Callable[[nn.Module, NDArray[Any]], None]) -> Tensor:
    """Return the model's answers to a batch; show `see` each mixer and its mean matrix over the items, `(heads, n, n)`, in order of execution.

    Only mixers of the whole sequence are shown. Leaves the model in evaluation mode.
    """

    def show(mixer: Any, arguments: tuple[Tensor, ...]) -> None:
        if arguments[0].shape[1] == seq_len:
            see(mixer, _mean_weights(mixer.token_weights, arguments[0]).cpu().numpy())

    hooks = [mixer.register_forward_pre_hook(show) for mixer in model.modules() if hasattr(mixer, "token_weights")]
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


def picture_of(data: TrainingData, rows: int = 0) -> Picture | None:
    """Return the first test image as it was before normalising, or stretched to 0..255 if that is unknown; None if items are no images.

    `rows`: of patches, as in `Interface`.
    """
    reader = data.reader
    if reader.patch_side is None:
        return None
    patches = reader.read(data.test.select(torch.zeros(1, dtype=torch.int64))).data
    image = fold_patches(patches.float(), patches.shape[2] // reader.patch_side**2, reader.patch_side, rows)
    if data.mean is None or data.spread is None:
        image = (image - image.min()) / (image.max() - image.min()).clamp(min=1e-9)
    else:
        image = image * data.spread.to(image)[:, None, None] + data.mean.to(image)[:, None, None]
    pixels = F.avg_pool2d(image, shrinkage(max(image.shape[2:]), reader.patch_side))[0].mul(PIXEL_SCALE).round().clamp(0, PIXEL_SCALE)
    return Picture(pixels=pixels.to(torch.uint8).cpu().numpy(), grid=image_grid(patches.shape[1], rows), patch_side=reader.patch_side)


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


def _alignment(weights: Tensor, batch: Batch, layout: TokenLayout) -> LayerMixing:
    """Return a decoder's weights, `(output steps, source tokens)`, with the ids of the first item's tokens, if it has ids."""
    ids, targets = batch.data[0], batch.targets[0]
    has_ids = ids.ndim == 1 and targets.ndim == 1 and not targets.is_floating_point()
    answers = targets[-len(weights) :] if has_ids else targets[:0]
    source, answers = (ids[: weights.shape[1]], answers) if has_ids and bool((answers != IGNORED).all()) else (ids[:0], targets[:0])
    return LayerMixing(
        maps=average_blocks(weights.cpu().numpy()[None], layout), source=tuple(source.tolist()), answers=tuple(answers.tolist())
    )


def _position_vectors(model: nn.Module) -> Tensor | None:
    """Return the position vectors of a model, `(n, width)`; None if it has none."""
    for module in model.modules():
        if isinstance(module, Embedding) and module.positions is not None:
            return module.positions[0]
    return None
