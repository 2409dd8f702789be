"""An outside model behind the call of ours: patches folded back to images, and no padding."""

from __future__ import annotations

import inspect

from torch import Tensor, nn

from models.layers.patches import fold_patches
from models.layers.shape import Interface, patch_of


class Adapter(nn.Module):
    """`(batch, data tokens, patch_dim)`, or what the model takes, -> what the model answers. A model of images has no padding."""

    takes_padding = False

    def __init__(self, model: nn.Module, *, folds: tuple[int, int] | None) -> None:
        super().__init__()
        self.model = model
        self.folds = folds

    def forward(self, data: Tensor, valid: Tensor | None = None) -> Tensor:
        """`valid` must be None: raises ValueError for data with padding."""
        if valid is not None:
            raise ValueError("valid must be None for a model that is not ours: it cannot mask padding")
        answers: Tensor = self.model(data if self.folds is None else fold_patches(data, *self.folds))
        return answers


def adapted(model: nn.Module, interface: Interface, *, reads_images: bool) -> nn.Module:
    """The model itself where it can be called as it is: with images, or with data and `valid`."""
    if interface.input == "images":
        return model
    if reads_images:
        return Adapter(model, folds=patch_of(interface.patch_dim))
    return model if "valid" in inspect.signature(model.forward).parameters else Adapter(model, folds=None)


def unadapted(model: nn.Module) -> nn.Module:
    return model.model if isinstance(model, Adapter) else model
