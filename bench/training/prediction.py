"""Apply a trained model to images: probabilities of the classes, and where the model looks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bench.measure.model import num_data_tokens_of
from bench.measure.weights import Trained, build_trained
from bench.tasks import Split
from bench.tasks.readers.images import read_images
from bench.training.inspection import see_mixing
from bench.training.reading import Reader
from models.layers.shape import image_grid, image_sides, patch_of


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """A model's answer to one image.

    `probabilities`: of all classes, `(classes,)`.
    `size`: (height, width) in pixels of the image as the model read it.
    `map`: how much each patch is mixed in by the last mixer of the whole sequence, `(rows, columns)`, the largest 1: the row of the class token, or
        the mean over rows where there is none; of absolute weights, mean over heads. None for a model whose mixers have no weights to show.
    """

    trained: Trained
    probabilities: NDArray[np.float64]
    size: tuple[int, int]
    map: NDArray[np.float64] | None

    def best(self, num: int) -> list[tuple[str, float]]:
        """Return the likeliest classes, by name, with their probabilities."""
        order = np.argsort(-self.probabilities, kind="stable")[:num]
        names = self.trained.classes or [f"class {place}" for place in range(len(self.probabilities))]
        return [(names[place], float(self.probabilities[place])) for place in order]


@torch.no_grad()
def predict(path: Path, images: Sequence[Path]) -> list[Prediction]:
    """Return the answer of saved weights to each image, which is read and normalised as in training.

    Raises RequestError for an unreadable image or file of weights.
    """
    trained, model = build_trained(path)
    spec = trained.cell.model
    num_tokens = num_data_tokens_of(spec)
    channels, height, width = image_sides(num_tokens, spec.interface.patch_dim, spec.interface.rows)
    reader = Reader(patch_side=patch_of(spec.interface.patch_dim)[1], mean=torch.tensor(trained.mean), spread=torch.tensor(trained.spread))
    found = []
    for pixels in read_images(images, height=height, width=width, channels=channels):
        data = reader.read(Split(inputs=pixels[None], targets=torch.zeros(1, dtype=torch.int64))).data
        matrices: dict[torch.nn.Module, NDArray[Any]] = {}
        answers = see_mixing(model, data, spec.shape.seq_len, matrices.__setitem__)
        found.append(
            Prediction(
                trained=trained,
                probabilities=answers[0].double().softmax(dim=0).numpy(),
                size=(height, width),
                map=_map_of(list(matrices.values())[-1], image_grid(num_tokens, spec.interface.rows)) if matrices else None,
            )
        )
    return found


def _map_of(matrices: NDArray[Any], grid: tuple[int, int]) -> NDArray[np.float64]:
    """Return the map of one layer's matrices, `(heads, n, n)`; `grid`: rows and columns of patches."""
    mixed = np.abs(matrices).mean(axis=0)
    has_class_token = len(mixed) > math.prod(grid)
    row: NDArray[np.float64] = (mixed[0, 1:] if has_class_token else mixed.mean(axis=0)).astype(np.float64)
    return (row / (row.max() or 1.0)).reshape(grid)
