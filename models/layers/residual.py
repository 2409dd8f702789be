"""Blocks add updates to a residual; a training recipe may drop them."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


class ResidualBlock(nn.Module):
    """A module whose updates can be dropped before they are added (`models.layers.dropout`).

    `dropout`: probability of an entry of an update.
    `stochastic_depth`: probability of a sample's whole update; None without a residual, which alone would be left.
    """

    def __init__(self, *, adds: bool = True) -> None:
        super().__init__()
        self.dropout = 0.0
        self.stochastic_depth = 0.0 if adds else None

    def drop(self, update: Tensor) -> Tensor:
        """Drop entries and samples of an update, `(batch, n, width)`, in training; what is left keeps its expected value."""
        if self.dropout:
            update = F.dropout(update, self.dropout, self.training)
        if self.stochastic_depth:
            update = update * F.dropout(update.new_ones(len(update), 1, 1), self.stochastic_depth, self.training)
        return update
