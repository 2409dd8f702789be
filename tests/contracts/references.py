"""Plain references of mixers: what each computes for one item, token by token, written from the papers and not from the modules.

A reference takes the config, the parameters by name, the tokens `(n, width)` and which of them are valid `(n,)`. It returns the answers
`(n, width out)`, of which only those of valid tokens count, and the token weights `(heads, n, n)`, or None where the module tells none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

Weights = Mapping[str, Tensor]
Answer = tuple[Tensor, Tensor | None]
Score = Callable[[Tensor, Tensor], Tensor]
"""One query and several keys -> a number per key."""


def part(w: Weights, name: str) -> Weights:
    """The parameters below a module."""
    return {key.removeprefix(f"{name}."): value for key, value in w.items() if key.startswith(f"{name}.")}


def dense(w: Weights, name: str, x: Tensor) -> Tensor:
    found = x @ w[f"{name}.weight"].T
    return found + w[f"{name}.bias"] if f"{name}.bias" in w else found


def layer_norm(w: Weights, name: str, x: Tensor) -> Tensor:
    centred = x - x.mean(dim=-1, keepdim=True)
    scale = (centred.square().mean(dim=-1, keepdim=True) + 1e-5).sqrt()
    return centred / scale * w[f"{name}.weight"] + w[f"{name}.bias"]


def zeroed(x: Tensor, valid: Tensor) -> Tensor:
    return torch.where(valid.view(-1, *(1 for _ in x.shape[1:])), x, 0)


def sigmoid(x: Tensor) -> Tensor:
    return 1 / (1 + torch.exp(-x))


def silu(x: Tensor) -> Tensor:
    return x * sigmoid(x)


def gelu(x: Tensor) -> Tensor:
    return x * (1 + torch.erf(x / 2**0.5)) / 2


def softplus(x: Tensor) -> Tensor:
    return torch.log1p(torch.exp(x))


def reading(query: Tensor, key: Tensor, score: Score, valid: Tensor, *, causal: bool = False, window: int = 0) -> Tensor:
    """`(queries, keys)`: exp(score) divided by its sum over the valid keys, with `causal` none later than the query, with `window` none farther."""
    rows = []
    for i, q in enumerate(query):
        places = [j for j in range(len(key)) if valid[j] and (j <= i or not causal) and (abs(i - j) <= window or not window)]
        row = torch.zeros(len(key), dtype=query.dtype)
        if places:
            exponentials = score(q, key[places]).exp()
            row = row.index_put((torch.tensor(places),), exponentials / exponentials.sum())
        rows.append(row)
    return torch.stack(rows)


def dot(scale: Tensor | float) -> Score:
    return lambda query, keys: scale * keys @ query


def gaussian(square: Tensor | float) -> Score:
    return lambda query, keys: -(query - keys).square().sum(dim=1) / (2 * square)


def mixed(weights: Tensor, values: tuple[Tensor, ...]) -> Tensor:
    """Each head's weighted sum of its values, side by side."""
    return torch.cat([each @ value for each, value in zip(weights, values, strict=True)], dim=-1)


def query_key_value(c: Any, w: Weights, x: Tensor) -> tuple[tuple[Tensor, ...], ...]:
    """Queries, keys and values of each head."""
    return tuple(each.chunk(c.heads, dim=-1) for each in dense(w, "qkv", x).chunk(3, dim=-1))


def attention(c: Any, w: Weights, x: Tensor, valid: Tensor) -> Answer:
    """arXiv 1706.03762, Sec. 3.2."""
    query, key, value = query_key_value(c, w, x)
    fixed = (c.inner / c.heads) ** -0.5 if c.scaling == "sqrt" else 1.0
    scores = [dot(w["head_scales"][head] if c.scaling == "learned" else fixed) for head in range(c.heads)]
    allowed = {"causal": c.causal, "window": c.window}
    weights = torch.stack([reading(q, k, score, valid, **allowed) for q, k, score in zip(query, key, scores, strict=True)])
    return dense(w, "project", mixed(weights, value)), weights


def window_attention(c: Any, w: Weights, x: Tensor, valid: Tensor) -> Answer:
    """Attention of each block by itself (arXiv 2103.14030, Sec. 3.2, in one dimension)."""
    whole = SimpleNamespace(inner=c.width, heads=c.heads, scaling="sqrt", causal=False, window=0)
    blocks = zip(x.split(c.window), valid.split(c.window), strict=True)
    return torch.cat([attention(whole, w, tokens, among)[0] for tokens, among in blocks]), None


def additive_attention(c: Any, w: Weights, x: Tensor, valid: Tensor) -> Answer:
    """arXiv 1409.0473, App. A.1.2."""
    query, key = (dense(w, name, x) if f"{name}.weight" in w else x for name in ("query", "key"))
    weights = reading(query, key, lambda a, keys: additive_scores(part(w, "score"), a, keys), valid)[None]
    return dense(w, "project", mixed(weights, (dense(w, "value", x),))), weights


def additive_scores(w: Weights, query: Tensor, keys: Tensor) -> Tensor:
    return torch.tanh(w["query.weight"] @ query + keys @ w["key.weight"].T) @ w["combine.weight"][0]


def kernel_attention(c: Any, w: Weights, x: Tensor, valid: Tensor) -> Answer:
    """A Gaussian of the distance between query and key (Nadaraya 1964, Watson 1964)."""
    query, key, value = query_key_value(c, w, x)
    fixed = torch.full((c.heads,), math.sqrt(c.width / c.heads), dtype=x.dtype)
    squares = w["log_bandwidths"].exp().square() if c.bandwidth == "learned" else fixed
    weights = torch.stack([reading(q, k, gaussian(square), valid) for q, k, square in zip(query, key, squares, strict=True)])
    return dense(w, "project", mixed(weights, value)), weights


def linear_attention(c: Any, w: Weights, x: Tensor, valid: Tensor) -> Answer:
    """arXiv 2006.16236, Sec. 3.2: every pair weighed, none through a state."""
    query, key, value = query_key_value(c, w, x)
    weights = torch.stack([reading(elu(q), elu(k), product, valid, causal=c.causal) for q, k in zip(query, key, strict=True)])
    return dense(w, "project", mixed(weights, value)), weights


def elu(x: Tensor) -> Tensor:
    """elu(x) + 1."""
    return torch.where(x > 0, x + 1, x.clamp(max=0).exp())


def product(query: Tensor, keys: Tensor) -> Tensor:
    return (keys @ query).log()


def low_rank_attention(c: Any, w: Weights, x: Tensor, valid: Tensor) -> Answer:
    """arXiv 2006.04768, Eq. 7: keys E (X W_k) and values F (X W_v), summed token by token."""
    of_keys, of_values = w["compress"][0], w["compress"][-1]
    columns = torch.stack([of_values[:, j] * valid[j] for j in range(len(x))], dim=1)
    places = [j for j in range(len(x)) if valid[j]]
    keys = torch.stack([of_keys[:, j, None] * (x[j] @ w["key.weight"].T) for j in places]).sum(dim=0)
    values = torch.stack([of_values[:, j, None] * (x[j] @ w["value.weight"].T) for j in places]).sum(dim=0) + w["value.bias"]
    query, key, value = (each.chunk(c.heads, dim=-1) for each in (dense(w, "query", x), keys, values))
    score, rows = dot((c.width / c.heads) ** -0.5), torch.ones(c.rank, dtype=torch.bool)
    shares = torch.stack([reading(q, k, score, rows) for q, k in zip(query, key, strict=True)])
    return dense(w, "project", mixed(shares, value)), shares @ columns


def mean_pooling(c: Any, w: Weights, x: Tensor, valid: Tensor) -> Answer:
    n = len(x)
    return zeroed(x, valid).sum(dim=0).expand(n, -1) / valid.sum(), torch.full((1, n, n), 1 / n, dtype=x.dtype)


def identity(c: Any, w: Weights, x: Tensor, valid: Tensor) -> Answer:
    return x, None


def taps(x: Tensor, weight: Tensor, bias: Tensor, first: int) -> Tensor:
    """Each token's sum of weight[:, k] x[i + first + k] over the tokens that there are; `(n, channels)`, `(channels, size)`."""
    rows = []
    for i in range(len(x)):
        read = [(k, i + first + k) for k in range(weight.shape[1]) if 0 <= i + first + k < len(x)]
        rows.append(sum((weight[:, k] * x[j] for k, j in read), start=bias))
    return torch.stack(rows)


def depthwise_convolution(c: Any, w: Weights, x: Tensor, valid: Tensor) -> Answer:
    return taps(zeroed(x, valid), w["weight"][:, 0], w["bias"], -(c.kernel_size // 2)), None


def gru(c: Any, w: Weights, x: Tensor, valid: Tensor) -> Answer:
    """arXiv 1409.1259, Sec. 3.2, in the form of torch.nn.GRU; padding leaves the state alone."""
    found, size = [], c.width // c.directions
    for suffix in ("_l0", "_l0_reverse")[: c.directions]:
        state, states = torch.zeros(size, dtype=x.dtype), {}
        for i in reversed(range(len(x))) if suffix.endswith("reverse") else range(len(x)):
            state = gru_step(part(w, "gru"), suffix, x[i], state) if valid[i] else state
            states[i] = state
        found.append(torch.stack([states[i] for i in range(len(x))]))
    return torch.cat(found, dim=-1), None


def gru_step(w: Weights, suffix: str, token: Tensor, state: Tensor) -> Tensor:
    read = (w[f"weight_ih{suffix}"] @ token + w[f"bias_ih{suffix}"]).chunk(3)
    recalled = (w[f"weight_hh{suffix}"] @ state + w[f"bias_hh{suffix}"]).chunk(3)
    reset, update = (sigmoid(read[gate] + recalled[gate]) for gate in (0, 1))
    return (1 - update) * torch.tanh(read[2] + reset * recalled[2]) + update * state


def token_mlp(c: Any, w: Weights, x: Tensor, valid: Tensor) -> Answer:
    """arXiv 2105.01601, Sec. 2, channel by channel."""
    columns = zeroed(x, valid).T
    return torch.stack([dense(w, "contract", gelu(dense(w, "expand", column))) for column in columns], dim=1), None


def spatial_gating(c: Any, w: Weights, z: Tensor, valid: Tensor, extra: Tensor | float = 0.0) -> Answer:
    """arXiv 2105.08050, Sec. 2.1: f on the second half of Z or on all of it."""
    u, v = z.chunk(2, dim=-1) if c.gating == "spatial" else (z, z)
    v = zeroed(layer_norm(w, "norm", v) if c.gate_norm else v, valid)
    matrices = torch.stack([spatial_matrix(c, w, head, len(z)) for head in range(c.heads)])
    groups = v.chunk(c.heads, dim=-1) if c.head_mix == "split" else [v] * c.heads
    heads = [
        torch.stack([m[i] @ group + w[f"biases.{head}"][i] for i in range(len(z))])
        for head, (m, group) in enumerate(zip(matrices, groups, strict=True))
    ]
    f = (torch.cat(heads, dim=-1) if c.head_mix == "split" else torch.stack(heads).mean(dim=0)) + extra
    gated: Tensor = {"spatial": u * f, "linear": f, "additive": u + f, "multiplicative": u * f}[c.gating]
    return gated, matrices if c.head_mix == "split" else matrices.mean(dim=0, keepdim=True)


def spatial_matrix(c: Any, w: Weights, head: int, n: int) -> Tensor:
    """W, entry by entry from its diagonals: the main one first, then by distance, below before above."""
    held = w[f"weights.{head}"]
    if c.toeplitz:
        held = torch.stack([torch.stack([held[0, 0 if i == j else 2 * abs(i - j) - (i > j)] for j in range(n)]) for i in range(n)])
    elif c.rank:
        held = held @ w[f"inner_weights.{head}"]
    earlier = torch.tensor([[float(j <= i or not c.causal) for j in range(n)] for i in range(n)], dtype=held.dtype)
    return held * earlier


def gated_projection(c: Any, w: Weights, x: Tensor, valid: Tensor) -> Answer:
    """arXiv 2105.08050, Fig. 1, without norm and residual."""
    return dense(w, "contract", spatial_gating(c.spatial, part(w, "gating"), gelu(dense(w, "expand", x)), valid)[0]), None


def long_convolution(c: Any, w: Weights, x: Tensor, valid: Tensor) -> Answer:
    """Hyena's operator of order 2 (arXiv 2302.10866, Sec. 3); padding is zeros between the projections and the convolutions."""
    projected = zeroed(dense(w, "expand", x), valid)
    first, second, value = taps(projected, w["short.weight"], w["short.bias"], -2 if c.causal else -1).chunk(3, dim=-1)
    value, n = zeroed(first * value, valid), len(x)
    filters = {distance: filter_tap(c, part(w, "filter"), distance) for distance in range(0 if c.causal else 1 - n, n)}
    rows = [torch.stack([filters[i - j] * value[j] for j in range(n) if i - j in filters]).sum(dim=0) for i in range(n)]
    return dense(w, "contract", second * torch.stack(rows)), None


def filter_tap(c: Any, w: Weights, distance: int) -> Tensor:
    """`(width,)`: window x network of the features of one distance, plus the skip at zero (Sec. 3.3)."""
    period = c.seq_len
    angles = [2 * math.pi * k * distance / period for k in range(1, 17)]
    hidden = torch.tensor([distance / period, *map(math.cos, angles), *map(math.sin, angles)], dtype=torch.float64)
    for name in ("expand", "inner"):
        hidden = torch.sin(10 * dense(w, name, hidden))
    reach = torch.tensor([0.3 + 1.2 * channel / (c.width - 1) for channel in range(c.width)], dtype=torch.float64)
    decay = math.log(100) / reach / period
    energy = torch.exp(-2 * decay * torch.arange(100 * period)[:, None]).sum(dim=0)
    window = torch.exp(-decay * abs(distance)) / (energy if c.causal else 2 * energy - 1).sqrt()
    return dense(w, "contract", hidden) * window + (w["skip"] if distance == 0 else 0)


def delta_rule(c: Any, w: Weights, x: Tensor, valid: Tensor) -> Answer:
    """arXiv 2412.06464, Sec. 3.1: one head, direction and token after another; padding is a zero token of strength 0 and decay 1."""
    x, n, size = zeroed(x, valid), len(x), c.width // c.heads
    qkv, strengths = zeroed(dense(w, "qkv", x), valid), zeroed(sigmoid(dense(w, "strength", x)), valid)
    decays = torch.ones_like(strengths)
    if c.gated:
        steps = softplus(dense(w, "decay.step", x) + w["decay.step_bias"])
        decays = torch.exp(zeroed(-w["decay.log_rate"].exp() * steps, valid))
    answers = []
    for direction in range(c.directions):
        convolve, first = part(w, f"convolve.{direction}"), 0 if direction else 1 - c.conv_width
        runs = silu(taps(qkv, convolve["weight"], convolve["bias"], first)).view(n, 3, c.heads, size)
        places = range(direction * c.heads, (direction + 1) * c.heads)
        heads = [delta_head(runs[:, :, h], strengths[:, place], decays[:, place], direction) for h, place in enumerate(places)]
        answers.append(torch.stack(heads, dim=1))
    found = torch.stack(answers).sum(dim=0)
    normed = w["norm"] * found / (found.square().mean(dim=-1, keepdim=True) + 1e-6).sqrt()
    return dense(w, "project", normed.flatten(1) * silu(dense(w, "gate", x))), None


def delta_head(run: Tensor, strength: Tensor, decay: Tensor, direction: int) -> Tensor:
    """`(n, 3, channels)`, `(n,)` -> `(n, channels)`: S_t = a_t S_{t-1} (I - b_t k_t k_t^T) + b_t v_t k_t^T, o_t = S_t q_t."""
    state, answers = run.new_zeros(run.shape[2], run.shape[2]), {}
    for i in reversed(range(len(run))) if direction else range(len(run)):
        q, k, v = run[i]
        q, k = (z / (z.square().sum() + 1e-6).sqrt() for z in (q, k))
        state = decay[i] * (state - strength[i] * torch.outer(state @ k, k)) + strength[i] * torch.outer(v, k)
        answers[i] = state @ q / len(q) ** 0.5
    return torch.stack([answers[i] for i in range(len(run))])


def state_space(c: Any, w: Weights, x: Tensor, valid: Tensor) -> Answer:
    """arXiv 2405.21060, Sec. 7, one token after another; padding is a zero token of no duration."""
    z, value, *rest = dense(w, "project_in", zeroed(x, valid)).split(
        [c.inner, c.inner, *[c.state] * 2 * c.directions, c.directions * c.heads], 1
    )
    answers = torch.zeros_like(value)
    for direction in range(c.directions):
        channels = torch.cat((value, rest[2 * direction], rest[2 * direction + 1]), dim=1)
        steps = rest[-1].view(len(x), c.directions, c.heads)[:, direction]
        answers = answers + state_direction(c, w, channels, steps, valid, direction)
    gated = answers * silu(z)
    normed = gated / (gated.square().mean(dim=1, keepdim=True) + 1e-5).sqrt() * w["norm.weight"]
    return dense(w, "project_out", normed), None


def state_direction(c: Any, w: Weights, channels: Tensor, steps: Tensor, valid: Tensor, direction: int) -> Tensor:
    """x, B, C `(n, convolved)` and dt `(n, heads)` as projected -> `(n, inner)`."""
    own = slice(direction * c.convolved, (direction + 1) * c.convolved)
    weight, bias = w["convolution.weight"][own], w["convolution.bias"][own]
    # the second direction convolves in its own order of tokens
    run = silu(taps(channels, weight.flip(1), bias, 0) if direction else taps(channels, weight, bias, 1 - c.conv_width))
    state, answers = torch.zeros(c.heads, c.state, c.inner // c.heads, dtype=channels.dtype), {}
    for i in reversed(range(len(run))) if direction else range(len(run)):
        value, key, query = run[i].split([c.inner, c.state, c.state])
        value = value.view(c.heads, -1)
        dt = softplus(steps[i] + w["step_bias"][direction]) * valid[i]
        decay = torch.exp(-torch.exp(w["log_rate"][direction]) * dt)
        state = decay[:, None, None] * state + dt[:, None, None] * key[None, :, None] * value[:, None]
        answers[i] = (torch.einsum("s,hsc->hc", query, state) + w["skip"][direction][:, None] * value).flatten()
    return torch.stack([answers[i] for i in range(len(run))])


MIXERS: dict[str, Callable[..., Answer]] = {
    reference.__name__: reference
    for reference in (
        additive_attention,
        attention,
        delta_rule,
        depthwise_convolution,
        gated_projection,
        gru,
        identity,
        kernel_attention,
        linear_attention,
        long_convolution,
        low_rank_attention,
        mean_pooling,
        spatial_gating,
        state_space,
        token_mlp,
        window_attention,
    )
}
