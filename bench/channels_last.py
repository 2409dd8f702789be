"""Channels-last memory: what it changes in a model, and what that came to."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def in_channels_last(model: nn.Module, data: Tensor) -> str:
    """Lay out the weights of convolutions, and images, with the channels of a pixel together, in place. Returns what was changed, in words."""
    filters = [parameter for parameter in model.parameters() if parameter.dim() == 4]
    for parameter in filters:
        parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)
    if data.dim() == 4:
        data.data = data.data.contiguous(memory_format=torch.channels_last)
    return f"channels last: {len(filters)} convolutions{' and the images' if data.dim() == 4 else ''}"
