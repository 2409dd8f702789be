"""The gated delta rule mixes tokens through a matrix that each token partly forgets and corrects.

Its cost is linear in n (Yang, Kautz and Hatamizadeh, "Gated Delta Networks", arXiv 2412.06464, Sec. 3). Products within chunks compute it
(Yang et al., arXiv 2406.06484, Sec. 3), in both directions unless `causal`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.layers.autocast import without_autocast
from models.layers.chunks import pairs_in_chunks, split_chunks, tokens_in_chunks
from models.layers.cost import ZERO, Cost, N, Polynomial, Term, constant, linear
from models.layers.initialise import initialise_linears
from models.layers.padding import zero_padding
from models.layers.shape import require_choices, require_heads
from models.layers.short_convolution import CONVOLUTIONS, ShortConvolution, short_convolution

REFERENCE_OPTIONS = {"convolution": "products"}
EPSILON = 1e-6
MIN_CHUNK = 16
"""Smaller chunks would be a loop over tokens: every chunk is a step."""
RATES, STEPS = (1.0, 16.0), (1e-3, 1e-1)
"""Ranges of the first decay rates, uniform, and step sizes, log-uniform, as in Mamba-2 (arXiv 2405.21060) and its published code."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """Sizes and options of the gated delta rule.

    `gated`: the state decays at each token by a learned factor. Without it this is the delta rule (arXiv 2406.06484).
    `causal`: no token reads a later one. Otherwise a second state runs from the last token to the first.
    `chunk`: tokens that are multiplied at once; a power of two, at least 16.
    `conv_width`: tokens that the convolution before the state reads, the current one included; at least 2.
    `convolution`: `native` or `products`; both give the same answers.

    Raises ValueError for an unknown value or an invalid size, or if the heads do not divide the width.
    """

    seq_len: int
    width: int
    heads: int = 1
    gated: bool = True
    causal: bool = False
    chunk: int = 64
    conv_width: int = 4
    convolution: str = "native"

    def __post_init__(self) -> None:
        require_heads(self, "chunk", "conv_width")
        if self.chunk < MIN_CHUNK or self.chunk.bit_count() > 1:
            raise ValueError(f"chunk must be a power of two and at least {MIN_CHUNK}, not {self.chunk}: a chunk is halved again and again")
        if self.conv_width < 2:
            raise ValueError(f"conv_width must be at least 2, not {self.conv_width}: a token reads at least the one before it")
        require_choices(self, convolution=CONVOLUTIONS)

    @property
    def directions(self) -> int:
        return 1 if self.causal else 2


class DeltaRule(nn.Module):
    """Write values into a state under their keys, and read it by queries.

    `(batch, n, width)` -> `(batch, n, width)`. With unit keys k, values v, strengths b in (0, 1) and decays a in (0, 1), the state of a head
    is S <- a S (I - b k k^T) + b v k^T, and its answer S q. Queries, keys and values pass a short convolution and SiLU.

    Both directions share the projections to queries, keys, values and gate, the norm and the output projection. Each has its own
    convolution, strengths and decays. Their answers are added before the norm.

    A padded token has strength 0 and decay 1, so it leaves the state unchanged. The convolution reads it as zero.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads, self.chunk = config.heads, config.chunk
        states = config.directions * config.heads
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.convolve = nn.ModuleList(
            ShortConvolution(3 * config.width, config.conv_width, convolution=config.convolution, backwards=backwards)
            for backwards in (False, True)[: config.directions]
        )
        self.strength = nn.Linear(config.width, states)
        self.decay = Decay(config.width, states) if config.gated else None
        self.gate = nn.Linear(config.width, config.width)
        self.norm = nn.Parameter(torch.ones(config.width // config.heads))
        self.project = nn.Linear(config.width, config.width)

    def forward(self, tokens: Tensor, valid: Tensor | None = None) -> Tensor:
        tokens = zero_padding(tokens, valid)
        # again, because biases make them nonzero
        qkv, strength = zero_padding(self.qkv(tokens), valid), zero_padding(self.strength(tokens).sigmoid(), valid)
        log_decay = None if self.decay is None else zero_padding(self.decay(tokens), valid)
        mixed = self._mix(qkv, strength, log_decay)
        normed = F.rms_norm(mixed, self.norm.shape, self.norm.to(mixed.dtype), EPSILON)
        return self.project(normed.flatten(2) * F.silu(self.gate(tokens)))

    def _mix(self, qkv: Tensor, strength: Tensor, log_decay: Tensor | None) -> Tensor:
        """Apply the rule in every direction: `(batch, n, ...)` -> `(batch, n, heads, width / heads)`."""
        batch, n, width = qkv.shape[0], qkv.shape[1], qkv.shape[2] // 3
        runs = F.silu(_in_order([convolve(qkv) for convolve in self.convolve]))
        # (directions x batch, n, 3 width) -> three of (chunks, directions x batch x heads, size, width / heads)
        parts = split_chunks(runs, self.chunk).unflatten(-1, (3, self.heads, -1)).permute(3, 1, 0, 4, 2, 5)
        query, key, value = parts.flatten(2, 3).unbind(0)
        query, key = unit(query, scale=(width // self.heads) ** -0.5), unit(key)
        decays = None if log_decay is None else self._per_head(log_decay)
        mixed = delta_rule(query, key, value, self._per_head(strength), decays)
        # (chunks, directions x batch x heads, size, width / heads) -> (directions x batch, n, heads, width / heads)
        found = mixed.unflatten(1, (-1, self.heads)).permute(1, 0, 3, 2, 4).flatten(1, 2)[:, :n]
        return found if len(self.convolve) == 1 else found[:batch] + found[batch:].flip(1)

    def _per_head(self, numbers: Tensor) -> Tensor:
        """`(batch, n, directions x heads)` -> `(chunks, directions x batch x heads, size)`."""
        runs = _in_order(numbers.chunk(len(self.convolve), dim=-1))
        return split_chunks(runs, self.chunk).permute(1, 0, 3, 2).flatten(1, 2)


class Decay(nn.Module):
    """The logarithm of the factor by which a token lets each state decay.

    `(batch, n, width)` -> `(batch, n, states)`, -rate x step, with one rate per state and steps softplus(linear). fp32 or wider.
    """

    def __init__(self, width: int, states: int) -> None:
        super().__init__()
        self.step = nn.Linear(width, states, bias=False)
        steps = torch.empty(states).uniform_(*map(math.log, STEPS)).exp()
        self.step_bias = nn.Parameter(steps.expm1().log())  # the inverse of softplus
        self.log_rate = nn.Parameter(torch.empty(states).uniform_(*RATES).log())

    def forward(self, tokens: Tensor) -> Tensor:
        step = self.step(tokens)
        wide = torch.promote_types(step.dtype, torch.float32)
        return -self.log_rate.to(wide).exp() * F.softplus(step.to(wide) + self.step_bias)


def _in_order(runs: Sequence[Tensor]) -> Tensor:
    """Join the directions along the batch, each in the order in which its state reads tokens."""
    return runs[0] if len(runs) == 1 else torch.cat((runs[0], runs[1].flip(1)))


def unit(vectors: Tensor, *, scale: float = 1.0) -> Tensor:
    """Return scale x / sqrt(|x|^2 + epsilon) for each vector x along the last dimension."""
    wide = torch.promote_types(vectors.dtype, torch.float32)
    squares = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True, dtype=wide).square()
    return vectors * (scale * (squares + EPSILON).rsqrt()).to(vectors.dtype)


def delta_rule(query: Tensor, key: Tensor, value: Tensor, strength: Tensor, log_decay: Tensor | None) -> Tensor:
    """Run the rule over chunks of tokens.

    `(chunks, items, size, channels)`, and `(chunks, items, size)` for `strength` and `log_decay`, -> as `value`. None: no decay.

    A token adds k u^T to the decayed state, where u = b (v - what that state answers to k). The u of a chunk solve a triangular system.
    Its inverse is applied to the values and, for the state at the start of the chunk, to the keys (arXiv 2412.06464, Sec. 3.3).
    Exponentials, the inverse and the state are fp32 or wider.
    """
    with without_autocast(query):
        return _delta_rule(query, key, value, strength, log_decay)


def _delta_rule(query: Tensor, key: Tensor, value: Tensor, strength: Tensor, log_decay: Tensor | None) -> Tensor:
    wide = torch.promote_types(query.dtype, torch.float32)
    strength = strength.to(query.dtype)[..., None]
    erasing = -strength * key
    overlaps, scores = erasing @ key.mT, query @ key.mT
    kept = None
    if log_decay is None:
        scores = scores.tril()
    else:
        since = log_decay.to(wide).cumsum(-1)  # the start of the chunk
        between = _decays_between(since)
        overlaps, scores = overlaps * between, (scores * between).to(query.dtype)
        decay, kept = since.exp()[..., None].to(query.dtype), since[..., -1, None, None].exp()
        query, erasing = query * decay, erasing * decay
        key = key * (since[..., -1:] - since).exp()[..., None].to(query.dtype)
    inverse = invert_unit_triangular(overlaps.to(wide)).to(query.dtype)
    changes = inverse @ (strength * value)
    if len(query) == 1:
        return scores @ changes
    states, changes = _carry(key, changes, inverse[1:] @ erasing[1:], kept)
    found = torch.baddbmm((query @ states).flatten(0, 1), scores.flatten(0, 1), changes.flatten(0, 1))
    return found.unflatten(0, (-1, query.shape[1]))


def _decays_between(since: Tensor) -> Tensor:
    """Return the decay from token j to token i, 0 if j is later: `(..., size)` -> `(..., size, size)`."""
    later = torch.ones(since.shape[-1], since.shape[-1], dtype=torch.bool, device=since.device).triu(1)
    # exponentials of positive differences could overflow
    return (since[..., :, None] - since[..., None, :]).masked_fill_(later, -math.inf).exp_()


def _carry(key: Tensor, changes: Tensor, erasing: Tensor, kept: Tensor | None) -> tuple[Tensor, Tensor]:
    """Carry the state from chunk to chunk.

    Returns the state before each chunk, `(chunks, items, channels, channels of the values)`, and the u of all tokens. `changes`: u as from
    a zero state. `erasing`: what the state adds to u, for all chunks but the first. `kept`: decay over a whole chunk.
    """
    # unbinding, because the gradient of an index is as large as the whole tensor
    keys, first, *others = key.mT.unbind(0), *changes.unbind(0)
    decays = (None,) * len(keys) if kept is None else kept.unbind(0)
    state = torch.zeros((), dtype=torch.promote_types(key.dtype, torch.float32), device=key.device)
    states, found = [first.new_zeros(len(first), key.shape[-1], first.shape[-1])], [first]
    for earlier, decay, change, erased in zip(keys, decays, others, erasing.unbind(0), strict=False):
        written = (earlier @ found[-1]).to(state.dtype)
        state = state + written if decay is None else torch.addcmul(written, state, decay)
        states.append(state.to(key.dtype))
        found.append(torch.baddbmm(change, erased, states[-1]))
    return torch.stack(states), torch.stack(found)


def invert_unit_triangular(matrices: Tensor) -> Tensor:
    """Return the inverse of I - M for the part M below the diagonal of each matrix; the rest is ignored.

    `(..., size, size)` -> `(..., size, size)`. The inverse of [[A, 0], [-B, D]] is [[A^-1, 0], [D^-1 B A^-1, D^-1]], so blocks double in
    size from level to level. This is as stable as substitution, unlike powers of M, which overflow if many keys are alike. A size that is
    not a power of two is filled up.
    """
    size = matrices.shape[-1]
    fill = padded_size(size) - size
    blocks = matrices.flatten(0, -3)
    if fill:  # padding by nothing would copy
        blocks = F.pad(blocks, (0, fill, 0, fill))
    block, inverse = 1, blocks.new_ones(len(blocks) * (size + fill), 1, 1)
    while block < size:
        first, last = inverse.unflatten(0, (-1, 2)).unbind(1)
        # (matrices, 2 blocks, 2 blocks) -> (matrices x pairs, block, block), below the diagonal
        pairs = blocks.unflatten(2, (-1, 2 * block)).unflatten(1, (-1, 2 * block)).diagonal(dim1=1, dim2=3).movedim(-1, 1)
        corner = pairs[:, :, block:, :block].flatten(0, 1)
        if block > 1:  # blocks of one are 1
            corner = last @ corner @ first
        inverse = torch.cat((F.pad(first, (0, block)), torch.cat((corner, last), dim=-1)), dim=-2)
        block *= 2
    return inverse[:, :size, :size].unflatten(0, matrices.shape[:-2])


def padded_size(size: int) -> int:
    """Return the least power of two that is at least `size`."""
    return 1 << (int(size) - 1).bit_length()  # tracing makes it a tensor


def build(config: Config) -> DeltaRule:
    return initialise_linears(DeltaRule(config))


def cost(config: Config) -> Cost:
    """Return the cost of `DeltaRule`.

    Each direction takes four products of chunk x width multiply-adds per token, two of them for the triangular system, and the inverse.
    With several chunks it also takes chunk x width for the inverse times the keys, and width x head width each for what the state erases,
    gains and answers; the first chunk has no state to erase from, and what the last one would add to it is not computed. Answers of the
    first state, which is zero, count.

    An inverse of size s takes 2 b^3 multiply-adds for each pair of blocks of size b = 2, 4, ..., s / 2, together s (s^2 - 4) / 3.

    Read token by token, each head keeps its matrix, and the convolution its last inputs.
    """
    width, states = config.width, config.directions * config.heads
    head_width = config.width // config.heads
    decay = (Term(name="decay", params=constant(states * (width + 2)), macs=N * (width * states)),) if config.gated else ()
    return Cost(
        (
            linear("qkv", width, 3 * width),
            short_convolution("convolution", 3 * width, config.conv_width).times(config.directions),
            linear("strength", width, states),
            *decay,
            *(Term(name=name, macs=macs * config.directions) for name, macs in _rule_macs(config).items()),
            Term(name="norm", params=constant(head_width), state=constant(width * head_width)),
            linear("gate", width, width),
            linear("project", width, width),
        )
    )


def _rule_macs(config: Config) -> dict[str, Polynomial]:
    """Return the multiply-adds of one direction by product."""
    n, chunk, width = config.seq_len, config.chunk, config.width
    pairs = pairs_in_chunks(n, chunk) * width
    within = {
        "overlaps": pairs,
        "scores": pairs,
        "inverse": _inverse_macs(n, chunk) * config.heads,
        "changes": pairs,
        "weighted_sum": pairs,
    }
    if n <= chunk:
        return within
    tokens = tokens_in_chunks(n, chunk)
    continued, state = tokens + constant(-chunk), width * (width // config.heads)
    return within | {
        "erasing": continued * (chunk * width),
        "erased": continued * state,
        "written": continued * state,
        "answers": tokens * state,
    }


def _inverse_macs(seq_len: int, chunk: int) -> Polynomial:
    """Return the multiply-adds of the inverses of all chunks in one head."""
    if seq_len <= chunk:
        size = padded_size(seq_len)
        return constant(size * (size * size - 4) // 3) if size > 1 else ZERO
    return tokens_in_chunks(seq_len, chunk) * ((chunk * chunk - 4) // 3)
