"""Plain references of families: what each answers for one item, built from the references of mixers.

A reference takes the config, the parameters by name, the item's data and which of its data tokens are valid; it returns `(num_classes,)`, or
`(data tokens, num_classes)`, of which only those of valid tokens count, and no token weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from models.layers.halves import num_source_tokens
from models.layers.stem import grid_of
from tests.contracts.references import (
    MIXERS,
    Answer,
    Weights,
    additive_scores,
    attention,
    dense,
    dot,
    gelu,
    gru_step,
    layer_norm,
    part,
    reading,
    spatial_gating,
    taps,
    zeroed,
)

Update = Callable[[Tensor], Tensor]
RESIDUALS: dict[str, Callable[[Tensor, Update, Update], Tensor]] = {
    "pre": lambda x, f, norm: x + f(norm(x)),
    "post": lambda x, f, norm: norm(x + f(x)),
    "inner": lambda x, f, norm: x + norm(f(x)),
    "none": lambda x, f, norm: f(norm(x)),
}
ACTIVATIONS: dict[str, Update] = {"gelu": gelu, "relu": lambda x: x.clamp(min=0)}


def embedding(c: Any, w: Weights, data: Tensor, pool: str) -> Tensor:
    """Patches or ids of one item -> `(n, width)`."""
    positions, width = getattr(c, "positions", "none"), c.shape.width
    if not data.is_floating_point():
        x = w["project.weight"][data] * (math.sqrt(width) if positions == "sinusoidal" else 1.0)
    else:
        x = stem(part(w, "project"), data) if getattr(c, "stem", "linear") == "convolution" else dense(w, "project", data)
    if pool == "cls":
        x = torch.cat((w["class_token"][0], x))
    if positions == "learned":
        return x + w["positions"][0]
    return x + sinusoids(len(x), width) if positions == "sinusoidal" else x


def sinusoids(n: int, width: int) -> Tensor:
    """arXiv 1706.03762, Sec. 3.5, as exact as the table that the module holds in fp32."""
    angles = [[place / 10_000 ** (channel // 2 * 2 / width) for channel in range(width)] for place in range(n)]
    table = [[math.cos(angle) if channel % 2 else math.sin(angle) for channel, angle in enumerate(row)] for row in angles]
    return torch.tensor(table, dtype=torch.float64).float().double()


def stem(w: Weights, patches: Tensor) -> Tensor:
    """arXiv 2106.14881, Sec. 3: every second pixel's nine neighbours, each by its own matrix over channels; zeros beyond the border."""
    (rows, columns), side = grid_of(len(patches)), math.isqrt(patches.shape[1] // 3)
    image = patches.view(rows, columns, 3, side, side).permute(2, 0, 3, 1, 4).reshape(3, rows * side, columns * side)
    for stage in range(side.bit_length() - 1):
        weight, bias = w[f"convolutions.{stage}.weight"], w[f"convolutions.{stage}.bias"]
        channels, height, width = image.shape
        padded = image.new_zeros(channels, height + 2, width + 2)
        padded[:, 1:-1, 1:-1] = image
        pixels = [
            [torch.einsum("ocyx,cyx->o", weight, padded[:, y : y + 3, x : x + 3]) + bias for x in range(0, width, 2)]
            for y in range(0, height, 2)
        ]
        image = torch.stack([torch.stack(row, dim=-1) for row in pixels], dim=-2).clamp(min=0)
    return dense(w, "project", image.flatten(1).T)


def head(w: Weights, x: Tensor, valid: Tensor, pool: str) -> Answer:
    pooled = {"cls": lambda: x[0], "mean": lambda: zeroed(x, valid).sum(dim=0) / valid.sum(), "none": lambda: x}[pool]()
    return dense(w, "classify", gelu(dense(w, "hidden", pooled)) if "hidden.weight" in w else pooled), None


def started(c: Any, w: Weights, data: Tensor, valid: Tensor) -> tuple[Tensor, Tensor, str]:
    """Embedded tokens, which of them are valid, and the pooling."""
    pool = c.interface.pooling(c.pool)
    extended = torch.cat((torch.tensor([True]), valid)) if pool == "cls" else valid
    return embedding(c, part(w, "embedding"), data, pool), extended, pool


def feed_forward(w: Weights, x: Tensor, activation: str) -> Tensor:
    return dense(w, "contract", ACTIVATIONS[activation](dense(w, "expand", x)))


def gmlp(c: Any, w: Weights, data: Tensor, valid: Tensor) -> Answer:
    """arXiv 2105.08050, Fig. 1."""
    x, valid, pool = started(c, w, data, valid)
    for block in (part(w, f"blocks.{i}") for i in range(c.shape.depth)):
        normed = layer_norm(block, "norm", x)
        z = gelu(dense(block, "expand", normed))
        extra = attention(c.attention, part(block, "attention"), normed, valid)[0] if c.attention else 0.0
        gated = spatial_gating(c.spatial, part(block, "gating"), z, valid, extra)[0] if c.spatial else z
        update = dense(block, "contract", gated)
        x = x + (gelu(update) if c.activation_after else update)
    return head(part(w, "head"), layer_norm(w, "norm", x), valid, pool)


def encoder(
    c: Any, w: Weights, data: Tensor, valid: Tensor, *, name: str, mixer: Callable[..., Answer], mixing: Any, residual: str, activation: str
) -> Answer:
    """Blocks of a mixer and a feed-forward layer; `name`: what the mixer is called in a block."""
    x, valid, pool = started(c, w, data, valid)
    norm = batch_norm if getattr(c, "norm", "layer") == "batch" else layer_norm
    if getattr(c, "short_convolution", 0):
        x = taps(zeroed(x, valid), w["short_convolution.weight"], w["short_convolution.bias"], 1 - c.short_convolution)

    def updated(x: Tensor, block: Weights, layer: str, update: Update) -> Tensor:
        return RESIDUALS[residual](x, update, lambda t: norm(block, f"norm_{layer}", t))

    def through(x: Tensor, block: Weights) -> Tensor:
        x = updated(x, block, name, lambda t: mixer(mixing, part(block, name), t, valid)[0])
        return updated(x, block, "feed_forward", lambda t: feed_forward(part(block, "feed_forward"), t, activation))

    for i in range(c.shape.depth):
        x = through(x, part(w, f"blocks.{i}"))
    return head(part(w, "head"), x if residual == "post" else norm(w, "norm", x), valid, pool)


def batch_norm(w: Weights, name: str, x: Tensor) -> Tensor:
    """In evaluation, of a fresh model: mean 0 and variance 1."""
    return x / math.sqrt(1 + 1e-5) * w[f"{name}.weight"] + w[f"{name}.bias"]


def vit(c: Any, w: Weights, data: Tensor, valid: Tensor) -> Answer:
    """arXiv 2010.11929, Sec. 3.1."""
    return encoder(c, w, data, valid, name="attention", mixer=attention, mixing=c.attention, residual="pre", activation="gelu")


def transformer(c: Any, w: Weights, data: Tensor, valid: Tensor) -> Answer:
    """arXiv 1706.03762, Sec. 3.1."""
    return encoder(c, w, data, valid, name="attention", mixer=attention, mixing=c.attention, residual="post", activation="relu")


def metaformer(c: Any, w: Weights, data: Tensor, valid: Tensor) -> Answer:
    """arXiv 2111.11418, Sec. 3.1."""
    chosen = {"mixer": MIXERS[c.mixer_name], "mixing": c.mixing, "residual": c.residual, "activation": c.activation}
    return encoder(c, w, data, valid, name="mixer", **chosen)


def encoder_decoder(c: Any, w: Weights, data: Tensor, valid: Tensor) -> Answer:
    """arXiv 1706.03762, Sec. 3.1: source and target are the halves of the sequence; a half of padding alone is read as zeros."""
    depth, middle = c.shape.depth, num_source_tokens(len(data))
    source, target = ((data[half], valid[half]) for half in (slice(middle), slice(middle, None)))
    memory = run_half(c, w, "source", *source, blocks=range(depth), mixing=c.encoder_attention)
    answers = run_half(c, w, "target", *target, blocks=range(depth, 2 * depth), mixing=c.decoder_attention, memory=(memory, source[1]))
    return head(part(w, "head"), torch.cat((memory, answers)), valid, c.interface.pooling(c.pool))


def run_half(
    c: Any,
    w: Weights,
    half: str,
    data: Tensor,
    valid: Tensor,
    *,
    blocks: range,
    mixing: Any,
    memory: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """`memory`: what the other half answered, and which of its tokens are valid."""
    x = zeroed(embedding(c, part(w, f"embedding.{half}"), data, "none"), valid)

    def updated(x: Tensor, block: Weights, layer: str, update: Update) -> Tensor:
        return RESIDUALS["post"](x, update, lambda t: layer_norm(block, f"{layer}.norm", t))

    def through(x: Tensor, block: Weights) -> Tensor:
        x = updated(x, block, "attention", lambda t: attention(mixing, part(block, "attention.update"), t, readable(valid))[0])
        if memory:
            x = updated(x, block, "cross_attention", lambda t: cross_attention(c, part(block, "cross_attention.update"), t, *memory))
        return updated(x, block, "feed_forward", lambda t: feed_forward(part(block, "feed_forward.update"), t, c.activation))

    for i in blocks:
        x = through(x, part(w, f"blocks.{i}"))
    return x


def readable(valid: Tensor) -> Tensor:
    return valid | ~valid.any()


def cross_attention(c: Any, w: Weights, x: Tensor, memory: Tensor, valid: Tensor) -> Tensor:
    query, key, value = (
        each.chunk(c.shape.heads, dim=-1) for each in (dense(w, "query", x), *dense(w, "key_value", zeroed(memory, valid)).chunk(2, dim=-1))
    )
    score, among = dot((c.shape.width / c.shape.heads) ** -0.5), readable(valid)
    return dense(w, "project", torch.cat([reading(q, k, score, among) @ v for q, k, v in zip(query, key, value, strict=True)], dim=-1))


def recurrent_attention(c: Any, w: Weights, data: Tensor, valid: Tensor) -> Answer:
    """arXiv 1409.0473, Sec. 3: units over the source, and units over the target that attend to it before each step.

    A source of padding alone is read as zeros.
    """
    depth, middle = c.shape.depth, num_source_tokens(len(data))
    encode, decode = part(w, "blocks.encoder"), part(w, "blocks.decoder")
    states, found = [torch.zeros(c.shape.width, dtype=torch.float64) for _ in range(depth)], []
    source, among_source = (
        zeroed(embedding(c, part(w, "embedding.source"), data[:middle], "none"), valid[:middle]),
        readable(valid[:middle]),
    )
    for token, among in zip(source, among_source, strict=True):
        read = token
        for layer in range(depth):
            if among:
                states[layer] = gru_step(part(encode, f"layers.{layer}"), "_l0", read, states[layer])
            read = states[layer]
        found.append(read)
    memory, score = zeroed(torch.stack(found), valid[:middle]), part(decode, "score")
    for token, among in zip(embedding(c, part(w, "embedding.target"), data[middle:], "none"), valid[middle:], strict=True):
        weights = reading(states[-1][None], memory, lambda a, keys: additive_scores(score, a, keys), among_source)
        read = torch.cat((token, weights[0] @ memory))
        for layer in range(depth):
            if among:
                states[layer] = gru_step(part(decode, f"layers.{layer}"), "", read, states[layer])
            read = states[layer]
        found.append(read)
    return head(part(w, "head"), torch.stack(found), valid, c.interface.pooling(c.pool))


def kernel_regression(c: Any, w: Weights, data: Tensor, valid: Tensor) -> Answer:
    """sum K((x - x_i) / h) y_i / sum K((x - x_i) / h) over the observed points (Nadaraya 1964, Watson 1964)."""
    bandwidth = w["blocks.0.log_bandwidth"].exp()[0] if c.bandwidth == "learned" else torch.tensor(c.bandwidth_percent / 100)
    x, y, asked = data.unbind(dim=-1)
    known = (asked == 0) & valid
    weights = reading(x, x, lambda a, keys: -((a - keys) / bandwidth).square() / 2, known)
    return weights @ zeroed(y, known)[:, None], None


FAMILIES: dict[str, Callable[..., Answer]] = {
    reference.__name__: reference
    for reference in (encoder_decoder, gmlp, kernel_regression, metaformer, recurrent_attention, transformer, vit)
}
