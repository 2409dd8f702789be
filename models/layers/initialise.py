"""All families share one weight initialisation, so that none has an advantage."""

from __future__ import annotations

from typing import TypeVar

from torch import nn

M = TypeVar("M", bound=nn.Module)
EMBEDDING_STD = 0.02


def initialise_linears(module: M) -> M:
    """Initialise every linear layer below `module`, and return it.

    Weights are Xavier-uniform (Glorot and Bengio 2010), biases zero.
    """
    for child in module.modules():
        if isinstance(child, nn.Linear):
            nn.init.xavier_uniform_(child.weight)
            if child.bias is not None:
                nn.init.zeros_(child.bias)
    return module
