"""Normalisation of tokens: LayerNorm and BatchNorm.

LayerNorm normalises over the channels of each token (arXiv 1607.06450), BatchNorm over all tokens of a batch (arXiv 1502.03167).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.layers.padding import zero_padding

EPSILON = 1e-5
MOMENTUM = 0.1


class LayerNorm(nn.LayerNorm):
    """LayerNorm that accepts and ignores `valid`.

    `(batch, n, width)` -> the same. Each token is normalised by itself, so padding does not matter.
    """

    def forward(self, tokens: Tensor, valid: Tensor | None = None) -> Tensor:  # noqa: ARG002 - every norm takes `valid`
        return F.layer_norm(tokens, self.normalized_shape, self.weight, self.bias, self.eps)


class BatchNorm(nn.Module):
    """Normalise each channel over the valid tokens of the batch.

    `(batch, n, width)` -> the same (arXiv 1502.03167, Sec. 3); evaluation uses the running statistics. Equals `torch.nn.BatchNorm1d` on
    `(tokens, width)`; has a scale and a shift per channel, like LayerNorm.
    """

    running_mean: Tensor
    running_variance: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.register_buffer("running_mean", torch.zeros(width))
        self.register_buffer("running_variance", torch.ones(width))

    def forward(self, tokens: Tensor, valid: Tensor | None = None) -> Tensor:
        if valid is not None and self.training:
            return self._over_valid(tokens, valid)
        # (batch x n, width)
        flat = tokens.reshape(-1, tokens.shape[-1])
        means, variances = self.running_mean, self.running_variance
        return F.batch_norm(flat, means, variances, self.weight, self.bias, self.training, MOMENTUM, EPSILON).view_as(tokens)

    def _over_valid(self, tokens: Tensor, valid: Tensor) -> Tensor:
        """Normalise over valid tokens only, in training, in fp32 or wider.

        Indexing by `valid` would synchronise the device to learn the number of tokens, so padding is zeroed instead.
        """
        count = valid.sum()
        wide = zero_padding(tokens, valid).to(torch.promote_types(tokens.dtype, torch.float32))
        mean = wide.sum(dim=(0, 1)) / count
        centred = zero_padding(wide - mean, valid)
        squares = centred.square().sum(dim=(0, 1))
        with torch.no_grad():
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), MOMENTUM)
            # a single token has no variance: use zero
            self.running_variance.lerp_((squares / (count - 1).clamp(min=1)).to(self.running_variance.dtype), MOMENTUM)
        normed = centred * torch.rsqrt(squares / count + EPSILON) * self.weight + self.bias
        return normed.to(tokens.dtype)


NORMS: dict[str, type[LayerNorm] | type[BatchNorm]] = {"layer": LayerNorm, "batch": BatchNorm}
"""Norms by name.

`NORMS[name](width)` is a module called as `(tokens, valid)`, with a scale and a shift per channel.
"""
