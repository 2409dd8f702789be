"""Computations that need more precision than autocast leaves them."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def without_autocast(tensor: Tensor) -> AbstractContextManager[object]:
    """Return a context in which operators on this tensor's device keep their types."""
    device = tensor.device.type
    return torch.autocast(device, enabled=False) if torch.amp.is_autocast_available(device) else nullcontext()
