"""A tile of norm(v), normalised while it is loaded: what the forward product and the gradient of its weight both read.

Statistics are `(2, batch, n)` in fp32, means and then the inverses of the deviations; None stands for no normalisation.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def load_channels(vector, columns, channels):
    """Entries of a vector over channels as fp32, zero outside."""
    return tl.load(vector + columns, mask=columns < channels, other=0.0).to(tl.float32)


@triton.jit
def standardised(v, means, inverses, tokens, within):
    """(v - mean) / deviation as fp32; `means` and `inverses` point at those of token 0."""
    mean = tl.load(means + tokens, mask=within, other=0.0)
    inverse = tl.load(inverses + tokens, mask=within, other=0.0)
    return (v.to(tl.float32) - mean[:, None]) * inverse[:, None]


@triton.jit
def without_padding(values, valid, tokens, within):
    """Zero where a token is padding: filled, not multiplied, because padding may hold NaN. `valid` None: there is none."""
    if valid is not None:
        values = tl.where(tl.load(valid + tokens, mask=within, other=0)[:, None] != 0, values, 0.0)
    return values


@triton.jit
def load_normalised(v, means, inverses, norm_weight, norm_bias, valid, first_token, tokens, columns, n, channels, row_stride):
    """norm(v) of one item: `(tokens, columns)` in v's own type, rounded once. `first_token` is where the item's statistics begin."""
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
    """Rounded to the type in which a product is taken. `in_fp32`: and held as fp32, for the interpreter, which multiplies bf16 as integers."""
    values = values.to(kind)
    if in_fp32:
        values = values.to(tl.float32)
    return values
