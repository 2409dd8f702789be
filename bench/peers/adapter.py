"""Adapter that lets an outside model be called like ours.

It folds patches back into images and refuses padding.
"""

from __future__ import annotations

import inspect

from torch import Tensor, nn

from models.layers.patches import fold_patches
from models.layers.shape import Interface, patch_of


class Adapter(nn.Module):
    """An outside model that is called like ours.

    It maps `(batch, data tokens, patch_dim)` to its answers.

    `folds`: channels and patch side of the images to fold patches into; None to pass data unchanged.
    """

    takes_padding = False

    def __init__(self, model: nn.Module, *, folds: tuple[int, int] | None) -> None:
        super().__init__()
        self.model = model
        self.folds = folds

    def forward(self, data: Tensor, valid: Tensor | None = None) -> Tensor:
        """Call the model.

        Raises ValueError unless `valid` is None, because the model cannot mask padding.
        """
        if valid is not None:
            raise ValueError("valid must be None for an outside model, which cannot mask padding")
        answers: Tensor = self.model(data if self.folds is None else fold_patches(data, *self.folds))
        return answers


def adapted(model: nn.Module, interface: Interface, *, reads_images: bool) -> nn.Module:
    """Wrap a model in an `Adapter` if it needs one.

    A model needs none if it accepts images, or data and `valid`, itself.
    """
    if interface.input == "images":
        return model
    if reads_images:
        return Adapter(model, folds=patch_of(interface.patch_dim))
    return model if "valid" in inspect.signature(model.forward).parameters else Adapter(model, folds=None)


def unadapted(model: nn.Module) -> nn.Module:
    return model.model if isinstance(model, Adapter) else model
