"""Weight initialisation, the same for every family so that none is favoured."""

from __future__ import annotations

from torch import nn

EMBEDDING_STD = 0.02


def initialise_linears(module: nn.Module) -> None:
    """Xavier-uniform weights and zero biases in every linear layer below `module` (Glorot and Bengio 2010)."""
    for child in module.modules():
        if isinstance(child, nn.Linear):
            nn.init.xavier_uniform_(child.weight)
            if child.bias is not None:
                nn.init.zeros_(child.bias)
