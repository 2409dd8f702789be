"""A state space mixes tokens through a state that decays from token to token, computed as matrix products over chunks.

Its cost is linear in n. This is Mamba-2 (Dao and Gu, arXiv 2405.21060): Sec. 5 shows that the recurrence is a masked matrix product, Sec. 6
splits that product into chunks, Sec. 7 describes the layer. In its terms, x, B and C are the values, keys and queries of linear attention.
The second direction is Vision Mamba's (Zhu et al., arXiv 2401.09417, Algorithm 1), with B, C and time steps projected as in Mamba-2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.layers.chunks import join_chunks, pairs_in_chunks, split_chunks, tokens_in_chunks
from models.layers.cost import ZERO, Cost, Term, constant, linear
from models.layers.initialise import initialise_linears
from models.layers.padding import zero_padding
from models.layers.shape import require_choices, require_heads
from models.layers.short_convolution import CONVOLUTIONS, ShortConvolution, short_convolution

REFERENCE_OPTIONS = {"convolution": "products"}
EPSILON = 1e-5
RATES, STEPS = (1.0, 16.0), (1e-3, 1e-1)
"""Ranges of fresh decay rates, drawn uniformly, and of fresh time steps, drawn uniformly in their logarithm.

These are the defaults of the authors' code, github.com/state-spaces/mamba.
"""
GROUP = 32
"""States that one loop runs through; more are scanned in groups."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """Sizes and options of the state space.

    `heads`: heads of `expand * width / heads` channels, each with its own decay; the authors' models use 64.
    `state`: numbers in the state of one channel.
    `expand`: inner channels over width. Mamba-2 uses 2 without feed-forward layers; with 1, the projections are about as large as those of
        attention, and the block has its feed-forward layer.
    `causal`: read earlier tokens only; otherwise both directions.
    `chunk`: tokens that are mixed by one product; it changes the cost, not the answers.
    `conv_width`: tokens that the short convolution reads, at least 2.
    `convolution`: `native` or `products`; both give the same answers.

    Raises ValueError for an unknown value or an invalid size, or if the heads do not divide the width.
    """

    seq_len: int
    width: int
    heads: int = 1
    state: int = 64
    expand: int = 1
    causal: bool = False
    chunk: int = 64
    conv_width: int = 4
    convolution: str = "native"

    def __post_init__(self) -> None:
        require_heads(self, "state", "expand", "chunk", "conv_width")
        if self.conv_width < 2:
            raise ValueError(f"conv_width must be at least 2, not {self.conv_width}: a convolution over one token mixes nothing")
        require_choices(self, convolution=CONVOLUTIONS)

    @property
    def inner(self) -> int:
        return self.expand * self.width

    @property
    def directions(self) -> int:
        return 1 if self.causal else 2

    @property
    def convolved(self) -> int:
        """Channels that one direction convolves: x, B and C."""
        return self.inner + 2 * self.state

    @property
    def projected(self) -> tuple[int, int, int, int]:
        """Channels of z, of x, of B and C in all directions, and of the time steps in all directions."""
        return self.inner, self.inner, self.directions * 2 * self.state, self.directions * self.heads


class StateSpace(nn.Module):
    """Run h_t = a_t h_{t-1} + dt_t B_t x_t and y_t = C_t h_t + D x_t, then gate, normalise and project y.

    `(batch, n, width)` -> `(batch, n, width)`, with a_t = exp(-rate dt_t), one dt_t and rate per head, and one B_t and C_t for all heads.

    The second direction runs over the reversed tokens; both answers are added. The directions share z, the projection to x, the norm and
    the output projection. Each has its own B, C, dt, convolution, rate and D. Convolution and state start at zero at either end.
    """

    NOT_DECAYED = ("log_rate", "step_bias", "skip")
    """One number of each head, as biases are: weight decay leaves them alone (so does Mamba-2)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        of_heads = (config.directions, config.heads)
        self.project_in = nn.Linear(config.width, sum(config.projected), bias=False)
        self.convolution = ShortConvolution(config.directions * config.convolved, config.conv_width, convolution=config.convolution)
        self.log_rate = nn.Parameter(torch.empty(of_heads).uniform_(*RATES).log())
        steps = torch.empty(of_heads).uniform_(*map(math.log, STEPS)).exp()
        self.step_bias = nn.Parameter(steps + torch.log(-torch.expm1(-steps)))  # the inverse of softplus
        self.skip = nn.Parameter(torch.ones(of_heads))
        self.norm = nn.RMSNorm(config.inner, eps=EPSILON)
        self.project_out = nn.Linear(config.inner, config.width, bias=False)

    def forward(self, tokens: Tensor, valid: Tensor | None = None) -> Tensor:
        gate, value, key_query, step = self.project_in(zero_padding(tokens, valid)).split(self.config.projected, dim=-1)
        mixed = self._mix(self._convolve(value, key_query), self._time_steps(step, valid))
        return self.project_out(self.norm(mixed * F.silu(gate)))

    def _convolve(self, value: Tensor, key_query: Tensor) -> Tensor:
        """Return x, B and C of each direction in its order of tokens, `(directions, batch, n, convolved)`."""
        forward, *backward = key_query.chunk(self.config.directions, dim=-1)
        backward = [part.flip(1) for part in (value, *backward)] if backward else []
        convolved = F.silu(self.convolution(torch.cat((value, forward, *backward), dim=-1)))
        return convolved.unflatten(-1, (self.config.directions, -1)).movedim(2, 0)

    def _time_steps(self, step: Tensor, valid: Tensor | None) -> Tensor:
        """Return dt of each direction in its order of tokens, `(directions, batch, n, heads)`, in fp32 or wider; zero at padded tokens."""
        wide = step.to(torch.promote_types(step.dtype, torch.float32)).unflatten(-1, (self.config.directions, -1))
        steps = F.softplus(wide + self.step_bias)
        if valid is not None:
            steps = steps.masked_fill(~valid[..., None, None], 0.0)
        return torch.stack([one if place == 0 else one.flip(1) for place, one in enumerate(steps.unbind(2))])

    def _mix(self, convolved: Tensor, step: Tensor) -> Tensor:
        """Run the state through the tokens of each direction and add the answers: -> `(batch, n, inner)`."""
        config, n = self.config, step.shape[2]
        value, key, query = split_chunks(convolved, config.chunk).split((config.inner, config.state, config.state), dim=-1)
        value, step = value.unflatten(-1, (config.heads, -1)), split_chunks(step, config.chunk)
        log_decay = -self.log_rate.to(step.dtype).exp()[:, None, None, None] * step
        answers = mix_chunks(value * step.to(value.dtype)[..., None], key, query, log_decay)
        answers = value * self.skip[:, None, None, None, :, None] + answers
        forward, *backward = join_chunks(answers.flatten(-2), n)
        return forward + backward[0].flip(1) if backward else forward


def mix_chunks(value: Tensor, key: Tensor, query: Tensor, log_decay: Tensor) -> Tensor:
    """Return y_t = C_t h_t of h_t = exp(log_decay_t) h_{t-1} + B_t x_t, from a state of zero.

    `value`: x, `(..., chunks, size, heads, channels)`, as is the result.
    `key`, `query`: B and C, `(..., chunks, size, state)`.
    `log_decay`: `(..., chunks, size, heads)`, at most zero, in fp32 or wider.

    Tokens of one chunk meet in a masked product. Earlier chunks are read from the state at the chunk's start. The first chunk reads no
    state, and the last one's is read by none.
    """
    dtype = value.dtype
    since_start = log_decay.clamp(min=_lowest(log_decay.dtype)).cumsum(dim=-2)
    # (..., chunks, 1, size, size), the later tokens zero
    scores = (query @ key.mT).tril().unsqueeze(-3)
    weights = scores * _decays_between(since_start.mT.contiguous())
    # (..., chunks, size, heads, channels)
    mixed = (weights.to(dtype) @ value.transpose(-3, -2)).transpose(-3, -2)
    if value.shape[-4] == 1:
        return mixed
    sent, reached = since_start[..., :-1, :, :], since_start[..., 1:, :, :]
    left = value[..., :-1, :, :, :] * _decay(sent[..., -1:, :] - sent).to(dtype)[..., None]
    states = (key[..., :-1, :, :].mT @ left.flatten(-2)).unflatten(-1, left.shape[-2:])
    states = scan_states(states.to(since_start.dtype), sent[..., -1, :]).to(dtype)
    read = (query[..., 1:, :, :] @ states.flatten(-2)).unflatten(-1, left.shape[-2:])
    mixed[..., 1:, :, :, :] += read * _decay(reached).to(dtype)[..., None]
    return mixed


def scan_states(states: Tensor, log_decay: Tensor) -> Tensor:
    """Return h_c = exp(log_decay_c) h_{c-1} + states_c for every c.

    `states`: `(..., c, state, heads, channels)`, as is the result.
    `log_decay`: `(..., c, heads)`.

    Many states are split into groups, which are scanned side by side. The last states of the groups are scanned in turn and reach the
    groups after them. So the work is linear in their number, and the number of steps logarithmic.
    """
    count, each = states.shape[-4], states.shape[-3:]
    if count <= GROUP:
        decay, found = _decay(log_decay)[..., None, :, None], [states.select(-4, 0)]
        for place in range(1, count):
            found.append(torch.addcmul(states.select(-4, place), decay.select(-4, place), found[-1]))
        return torch.stack(found, dim=-4)
    grouped, log_decay = split_chunks(states.flatten(-3), GROUP).unflatten(-1, each), split_chunks(log_decay, GROUP)
    within, since_start = scan_states(grouped, log_decay), log_decay.cumsum(dim=-2)
    last = scan_states(within[..., :-1, -1, :, :, :], since_start[..., :-1, -1, :])
    # (..., groups, 1, state, heads, channels), zero before the first group
    before = F.pad(last, (0, 0, 0, 0, 0, 0, 1, 0)).unsqueeze(-4)
    scanned = torch.addcmul(within, _decay(since_start)[..., None, :, None], before)
    return join_chunks(scanned.flatten(-3), count).unflatten(-1, each)


def _decays_between(since_start: Tensor) -> Tensor:
    """Return the decay from token j to token i, `(..., i)` -> `(..., i, j)`, and ones for a later j."""
    between = since_start.unsqueeze(-1) - since_start.unsqueeze(-2)
    with torch.no_grad():  # no gradient is lost: scores of later tokens are zero, and a decay below the smallest one has none
        between.clamp_(_lowest(between.dtype), 0.0)
    return between.exp_()


def _decay(log_decay: Tensor) -> Tensor:
    return log_decay.clamp(min=_lowest(log_decay.dtype)).exp()


def _lowest(dtype: torch.dtype) -> float:
    """Return the logarithm of the smallest decay: 3e-27 in fp32.

    A smaller one would change no sum, but in products it yields subnormal numbers, which are many times slower on a CPU.
    """
    return 0.7 * math.log(torch.finfo(dtype).tiny)


def build(config: Config) -> StateSpace:
    return initialise_linears(StateSpace(config))


def cost(config: Config) -> Cost:
    """Return the cost of `StateSpace`.

    Per token and direction, the products within a chunk take `chunk` (state + inner) multiply-adds, and those that leave and read a state
    2 state x inner, except in the first chunk and the last one. Convolution and projections take one per weight and token. The decays and
    the scan over states are element-wise.

    Read token by token, it keeps `state` numbers for each inner channel, and the convolution its last inputs.
    """
    inner, state = config.inner, config.state * config.directions
    pairs = pairs_in_chunks(config.seq_len, config.chunk)
    # all tokens but one chunk's leave a state to a later chunk
    carried = tokens_in_chunks(config.seq_len, config.chunk) + constant(-config.chunk)
    carried = (carried if config.seq_len > config.chunk else ZERO) * (state * inner)
    return Cost(
        (
            linear("project_in", config.width, sum(config.projected), bias=False),
            short_convolution("convolution", config.directions * config.convolved, config.conv_width),
            Term(name="decay_and_skip", params=constant(3 * config.directions * config.heads), state=constant(state * inner)),
            Term(name="scores", macs=pairs * state),
            Term(name="weighted_sum", macs=pairs * (config.directions * inner)),
            Term(name="states", macs=carried),
            Term(name="reads", macs=carried),
            Term(name="norm", params=constant(inner)),
            linear("project_out", inner, config.width, bias=False),
        )
    )
