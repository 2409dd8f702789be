"""Load tiles of v and normalise them on the fly.

The forward product and the gradient of its weight both read such tiles. Statistics are `(2, batch, n)` in fp32: means, then inverse
standard deviations. None means no normalisation.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def load_channels(vector, columns, channels):
    """Load entries of a vector over channels as fp32, zero outside."""
    return tl.load(vector + columns, mask=columns < channels, other=0.0).to(tl.float32)


@triton.jit
def standardised(v, means, inverses, tokens, within):
    """Return (v - mean) / deviation as fp32.

    `means`, `inverses`: pointers to the statistics of token 0.
    """
    mean = tl.load(means + tokens, mask=within, other=0.0)
    inverse = tl.load(inverses + tokens, mask=within, other=0.0)
    return (v.to(tl.float32) - mean[:, None]) * inverse[:, None]


@triton.jit
def without_padding(values, valid, tokens, within):
    """Replace padded tokens by zeros.

    They are filled, not multiplied, because padding may hold NaN. `valid` is None if no token is padded.
    """
    if valid is not None:
        values = tl.where(tl.load(valid + tokens, mask=within, other=0)[:, None] != 0, values, 0.0)
    return values


@triton.jit
def load_normalised(v, means, inverses, norm_weight, norm_bias, valid, first_token, tokens, columns, n, channels, row_stride):
    """Load norm(v) of one item: `(tokens, columns)`, rounded once to v's type.

    `first_token`: offset of the item's first token in the statistics.
    """
    within = tokens < n
    inside = within[:, None] & (columns < channels)[None, :]
    raw = tl.load(v + tokens[:, None] * row_stride + columns[None, :], mask=inside, other=0.0)
    normed = raw
    if means is not None:
        normed = standardised(raw, means, inverses, first_token + tokens, within)
        normed = normed * load_channels(norm_weight, columns, channels)[None, :] + load_channels(norm_bias, columns, channels)[None, :]
    return without_padding(normed, valid, first_token + tokens, within).to(v.dtype.element_ty)


@triton.jit
def as_operand(values, kind, in_fp32: tl.constexpr):
    """Round to the type of the product's operands.

    `in_fp32`: store the rounded values as fp32, because the interpreter multiplies bf16 as integers.
    """
    values = values.to(kind)
    if in_fp32:
        values = values.to(tl.float32)
    return values
