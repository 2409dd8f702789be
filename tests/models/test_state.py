"""The closed-form state is what a decoder carries that takes one token after another, answers as the whole model does, and computes nothing twice."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bench import catalog
from bench.contracts.architectures import assert_close_to_largest, randomise
from bench.contracts.subjects import Subject, mixer_subject, mixers
from bench.measure.model import state_of
from models import encoder_decoder, gmlp, metaformer, recurrent_attention
from models.layers.shape import Interface, Shape
from tests.contracts.reference_checks import FORMULA_TOLERANCE
from tests.contracts.references import (
    Weights,
    dense,
    elu,
    filter_tap,
    gelu,
    gru_step,
    layer_norm,
    part,
    sigmoid,
    silu,
    softplus,
    spatial_matrix,
)
from tests.planning.test_budget import unsized

State = dict[str, Tensor]
Step = Callable[[Any, Weights, State, Tensor, int], tuple[Tensor, State]]
"""Config, parameters, what was carried (empty before the first token), one token `(width,)` and its place -> its answer, what is carried on."""
LENGTHS = (5, 9, 18)


def appended(state: State, name: str, row: Tensor) -> Tensor:
    return torch.cat((state[name], row[None])) if name in state else row[None]


def convolved(state: State, row: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """A short convolution of one token; the inputs that it keeps, zeros at first."""
    size = weight.shape[-1]
    read = torch.cat((state.get("recent", row.new_zeros(size - 1, len(row))), row[None]))
    return (weight.T * read).sum(dim=0) + bias, read[1:]


def attention(c: Any, w: Weights, state: State, x: Tensor, place: int) -> tuple[Tensor, State]:
    query, key, value = dense(w, "qkv", x).chunk(3)
    keys, values = appended(state, "keys", key), appended(state, "values", value)
    if c.window:
        keys, values = keys[-c.window - 1 :], values[-c.window - 1 :]
    fixed = (c.inner / c.heads) ** -0.5 if c.scaling == "sqrt" else 1.0
    heads = []
    for head, (q, k, v) in enumerate(zip(query.chunk(c.heads), keys.chunk(c.heads, 1), values.chunk(c.heads, 1), strict=True)):
        scores = (k @ q) * (w["head_scales"][head] if c.scaling == "learned" else fixed)
        heads.append(scores.exp() / scores.exp().sum() @ v)
    kept = -c.window if c.window else 0
    return dense(w, "project", torch.cat(heads)), {"keys": keys[kept:], "values": values[kept:]}


def linear_attention(c: Any, w: Weights, state: State, x: Tensor, place: int) -> tuple[Tensor, State]:
    query, key, value = (each.view(c.heads, -1) for each in dense(w, "qkv", x).chunk(3))
    total = state.get("total", 0) + elu(key)
    sums = state.get("sums", 0) + elu(key)[:, :, None] * value[:, None]
    read = torch.einsum("hk,hkv->hv", elu(query), sums) / (elu(query) * total).sum(dim=1, keepdim=True)
    return dense(w, "project", read.flatten()), {"total": total, "sums": sums}


def delta_rule(c: Any, w: Weights, state: State, x: Tensor, place: int) -> tuple[Tensor, State]:
    found, recent = convolved(state, dense(w, "qkv", x), w["convolve.0.weight"], w["convolve.0.bias"])
    query, key, value = silu(found).view(3, c.heads, -1)
    query, key = (each / (each.square().sum(dim=1, keepdim=True) + 1e-6).sqrt() for each in (query, key))
    memory = state.get("memory", x.new_zeros(c.heads, value.shape[1], key.shape[1]))
    strength = sigmoid(dense(w, "strength", x))[:, None, None]
    if c.gated:
        step = softplus(dense(w, "decay.step", x) + w["decay.step_bias"])
        memory = memory * torch.exp(-w["decay.log_rate"].exp() * step)[:, None, None]
    change = value - torch.einsum("hvk,hk->hv", memory, key)
    memory = memory + strength * change[:, :, None] * key[:, None]
    answer = torch.einsum("hvk,hk->hv", memory, query) / query.shape[1] ** 0.5
    normed = w["norm"] * answer / (answer.square().mean(dim=1, keepdim=True) + 1e-6).sqrt()
    return dense(w, "project", normed.flatten() * silu(dense(w, "gate", x))), {"recent": recent, "memory": memory}


def state_space(c: Any, w: Weights, state: State, x: Tensor, place: int) -> tuple[Tensor, State]:
    z, channels, step = dense(w, "project_in", x).split([c.inner, c.inner + 2 * c.state, c.heads])
    found, recent = convolved(state, channels, w["convolution.weight"], w["convolution.bias"])
    value, key, query = silu(found).split([c.inner, c.state, c.state])
    value, dt = value.view(c.heads, -1), softplus(step + w["step_bias"][0])
    decay = torch.exp(-w["log_rate"][0].exp() * dt)[:, None, None]
    hidden = decay * state.get("hidden", 0) + dt[:, None, None] * key[None, :, None] * value[:, None]
    answer = (torch.einsum("s,hsc->hc", query, hidden) + w["skip"][0][:, None] * value).flatten() * silu(z)
    normed = answer / (answer.square().mean() + 1e-5).sqrt() * w["norm.weight"]
    return dense(w, "project_out", normed), {"recent": recent, "hidden": hidden}


def gru(c: Any, w: Weights, state: State, x: Tensor, place: int) -> tuple[Tensor, State]:
    hidden = gru_step(part(w, "gru"), "_l0", x, state.get("hidden", torch.zeros_like(x)))
    return hidden, {"hidden": hidden}


def identity(c: Any, w: Weights, state: State, x: Tensor, place: int) -> tuple[Tensor, State]:
    return x, {}


def long_convolution(c: Any, w: Weights, state: State, x: Tensor, place: int) -> tuple[Tensor, State]:
    found, recent = convolved(state, dense(w, "expand", x), w["short.weight"], w["short.bias"])
    first, second, value = found.chunk(3)
    values = appended(state, "values", first * value)
    taps = torch.stack([filter_tap(c, part(w, "filter"), place - j) for j in range(place + 1)])
    return dense(w, "contract", second * (taps * values).sum(dim=0)), {"recent": recent, "values": values}


def spatial_gating(c: Any, w: Weights, state: State, x: Tensor, place: int) -> tuple[Tensor, State]:
    u, v = x.chunk(2) if c.gating == "spatial" else (x, x)
    kept = appended(state, "mixed", layer_norm(w, "norm", v) if c.gate_norm else v)
    groups = kept.chunk(c.heads, dim=1) if c.head_mix == "split" else [kept] * c.heads
    rows = [spatial_matrix(c, w, head, c.seq_len)[place, : place + 1] for head in range(c.heads)]
    found = [row @ group + w[f"biases.{head}"][place] for head, (row, group) in enumerate(zip(rows, groups, strict=True))]
    f = torch.cat(found) if c.head_mix == "split" else torch.stack(found).mean(dim=0)
    return {"spatial": u * f, "linear": f, "additive": u + f, "multiplicative": u * f}[c.gating], {"mixed": kept}


def gated_projection(c: Any, w: Weights, state: State, x: Tensor, place: int) -> tuple[Tensor, State]:
    gated, state = spatial_gating(c.spatial, part(w, "gating"), state, gelu(dense(w, "expand", x)), place)
    return dense(w, "contract", gated), state


STEPS: Mapping[str, Step] = {
    step.__name__: step
    for step in (attention, delta_rule, gated_projection, gru, identity, linear_attention, long_convolution, spatial_gating, state_space)
}
WIDE_WINDOW = [mixer_subject("attention", {"causal": True, "window": 40})]
CAUSAL = [subject for subject in (*mixers(catalog.names("mixers")), *WIDE_WINDOW) if getattr(subject.config(17), "causal", False)]
ALWAYS = {"causal": True}
CHOSEN = [
    mixer_subject(name, options) for name, options in (("attention", {**ALWAYS, "heads": 4}), ("state_space", {**ALWAYS, "heads": 4}))
]


@pytest.mark.parametrize("subject", [*CAUSAL, *CHOSEN], ids=lambda subject: subject.label)
def test_a_decoder_token_by_token_carries_the_closed_form_and_needs_all_of_it(subject: Subject) -> None:
    for n in LENGTHS:
        torch.manual_seed(n)
        model = subject.build(n).double().eval()
        randomise(model, std=0.3)
        tokens = torch.randn_like(subject.data(n)[0], dtype=torch.float64)
        config, weights, step = subject.config(n), dict(model.named_parameters()), STEPS[subject.name]
        answers, state = [], State()
        for place, token in enumerate(tokens):
            before = {name: held.detach().requires_grad_() for name, held in state.items()}
            answer, state = step(config, weights, before, token, place)
            answers.append(answer.detach())
        assert_close_to_largest(torch.stack(answers), model(tokens[None])[0].detach(), FORMULA_TOLERANCE, f"n = {n}")
        assert sum(held.numel() for held in state.values()) == subject.cost(n).state().at(n)
        needed = torch.autograd.grad((answer * torch.randn_like(answer)).sum(), list(before.values())) if before else ()
        assert all(gradient.ne(0).all() for gradient in needed), "the last token does not need all that is carried"


def test_every_mixer_that_can_be_causal_is_decoded() -> None:
    assert {subject.name for subject in CAUSAL} == set(STEPS)


SHAPE = Shape(seq_len=17, width=16, depth=2, heads=2, ffn_width=32)
TOKENS = Interface(input="tokens", output="tokens")


def test_a_metaformer_carries_that_of_its_mixers_its_short_convolution_and_its_mean() -> None:
    at_tokens, to_class = (
        metaformer.cost(metaformer.Config(shape=SHAPE, interface=each, mixer="linear_attention:causal=true", short_convolution=3))
        for each in (TOKENS, Interface())
    )
    assert at_tokens.state().coefficients == (2 * (2 * 8 * 8 + 16) + 2 * 16,)
    assert to_class.state().at(17) - at_tokens.state().at(17) == 16


def test_an_amlp_carries_what_its_gate_mixes_and_the_keys_and_values_of_its_attention() -> None:
    cost = gmlp.cost(gmlp.Config(shape=SHAPE, interface=TOKENS, causal=True, tiny_attention=4))
    assert cost.state().coefficients == (0, 2 * (16 + 2 * 4))


@pytest.mark.parametrize("n", [2, 9, 18])
def test_a_recurrent_encoder_decoder_keeps_the_source_its_keys_and_a_state_per_layer(n: int) -> None:
    config = recurrent_attention.Config(shape=dataclasses.replace(SHAPE, seq_len=n), interface=TOKENS)
    model = recurrent_attention.build(config)
    memory, states = model.encode(torch.zeros(1, n - n // 2, dtype=torch.long))
    keys = model.get_submodule("blocks.decoder.score.key")(memory)
    assert recurrent_attention.cost(config).state().at(n) == sum(held.numel() for held in (memory, keys, *states))


@pytest.mark.parametrize("n", [2, 9, 18])
def test_an_encoder_decoder_keeps_keys_and_values_of_source_and_target(n: int) -> None:
    config = encoder_decoder.Config(shape=dataclasses.replace(SHAPE, seq_len=n), interface=TOKENS)
    model, kept = encoder_decoder.build(config), []

    def of_share(parts: int) -> Callable[[nn.Module, Any, Tensor], None]:
        return lambda _module, _inputs, found: kept.append(2 * found.numel() // parts)

    for name, module in model.blocks[config.shape.depth :].named_modules():
        if name.endswith(("qkv", "key_value")):
            module.register_forward_hook(of_share(3 if name.endswith("qkv") else 2))
    model(torch.zeros(1, n, dtype=torch.long))
    assert encoder_decoder.cost(config).state().at(n) == sum(kept)


@pytest.mark.parametrize("text", ["vit", "gmlp", "metaformer+mixer=mean_pooling", "metaformer+mixer=gru:bidirectional=true"])
def test_what_reads_ahead_has_no_state(text: str) -> None:
    assert state_of(unsized(text, 1, 17)) is None


@pytest.mark.parametrize("text", ["metaformer+mixer=identity", "gmlp+causal=true", "encoder_decoder"])
def test_what_generates_has_one(text: str) -> None:
    assert state_of(unsized(text, 1, 17)) is not None
