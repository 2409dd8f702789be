"""State space: the recurrence in a loop over tokens, in both directions, among padding and in hard cases; exact cost; fresh weights."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from models import metaformer
from models.layers.shape import Shape
from models.mixers.state_space import GROUP, Config, StateSpace, build, cost, mix_chunks, scan_states
from tests.contracts.checks import assert_close_to_largest, randomise

WIDTH, HEADS, STATE = 6, 2, 3
over_directions = pytest.mark.parametrize("causal", [False, True])


def mixer(n: int, *, seed: int = 0, std: float = 0.5, **options: Any) -> StateSpace:
    torch.manual_seed(seed)
    module = build(Config(seq_len=n, width=WIDTH, **{"heads": HEADS, "state": STATE, **options})).double()
    randomise(module, std=std)
    return module


def drawn(*sizes: int, seed: int = 0) -> Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def silu(value: Tensor) -> Tensor:
    return value / (1 + torch.exp(-value))


def by_formula(module: StateSpace, tokens: Tensor, valid: Tensor | None = None) -> Tensor:
    """`(n, width)`, one item: one token after another, as the paper writes it; padding is a zero token of no duration."""
    config = module.config
    valid = torch.ones(len(tokens), dtype=torch.bool) if valid is None else valid
    projected = torch.where(valid[:, None], tokens, 0) @ module.project_in.weight.T
    z, x, *rest = projected.split(
        [config.inner, config.inner, *[config.state] * 2 * config.directions, config.directions * config.heads], 1
    )
    answers = []
    for direction in range(config.directions):
        channels = torch.cat((x, rest[2 * direction], rest[2 * direction + 1]), dim=1)
        steps = rest[-1].view(len(tokens), config.directions, config.heads)[:, direction]
        order = range(len(tokens))[:: -1 if direction else 1]
        answers.append(run_direction(module, direction, channels[list(order)], steps[list(order)], valid[list(order)])[list(order)])
    gated = sum(answers, torch.zeros(())) * silu(z)
    normed = gated / (gated.square().mean(dim=1, keepdim=True) + 1e-5).sqrt() * module.norm.weight
    return normed @ module.project_out.weight.T


def run_direction(module: StateSpace, direction: int, channels: Tensor, steps: Tensor, valid: Tensor) -> Tensor:
    """One direction, in its own order of tokens: x, B, C `(n, convolved)` and dt `(n, heads)` as projected -> `(n, inner)`."""
    config, taps = module.config, module.config.conv_width
    own = slice(direction * config.convolved, (direction + 1) * config.convolved)
    weight, bias = module.convolution.weight[own], module.convolution.bias[own]
    state, answers = torch.zeros(config.heads, config.state, config.inner // config.heads, dtype=channels.dtype), []
    for place in range(len(channels)):
        read = [(tap, place - taps + 1 + tap) for tap in range(taps) if place - taps + 1 + tap >= 0]
        value, key, query = silu(bias + sum(weight[:, tap] * channels[at] for tap, at in read)).split(
            [config.inner, config.state, config.state]
        )
        value = value.view(config.heads, -1)
        dt = torch.log1p(torch.exp(steps[place] + module.step_bias[direction])) * valid[place]
        decay = torch.exp(-torch.exp(module.log_rate[direction]) * dt)
        state = decay[:, None, None] * state + dt[:, None, None] * key[None, :, None] * value[:, None]
        answers.append((torch.einsum("s,hsc->hc", query, state) + module.skip[direction][:, None] * value).flatten())
    return torch.stack(answers)


def in_turn(value: Tensor, key: Tensor, query: Tensor, log_decay: Tensor) -> Tensor:
    """`mix_chunks` on `(n, heads, channels)`, `(n, state)`, `(n, state)` and `(n, heads)`, one token after another."""
    state, answers = torch.zeros(value.shape[1], key.shape[1], value.shape[2], dtype=value.dtype), []
    for x, b, c, log in zip(value, key, query, log_decay, strict=True):
        state = log.exp()[:, None, None] * state + b[None, :, None] * x[:, None]
        answers.append(torch.einsum("s,hsc->hc", c, state))
    return torch.stack(answers)


@over_directions
@pytest.mark.parametrize("convolution", ["native", "products"])
@pytest.mark.parametrize(
    ("n", "chunk", "expand", "conv_width"),
    [(1, 4, 1, 4), (3, 4, 1, 2), (4, 4, 2, 4), (11, 4, 1, 3), (12, 3, 1, 4), (9, 1, 3, 4), (70, 64, 1, 4)],
)
def test_it_answers_as_the_loop_does(causal: bool, convolution: str, n: int, chunk: int, expand: int, conv_width: int) -> None:
    options: dict[str, Any] = {"causal": causal, "convolution": convolution, "chunk": chunk, "expand": expand, "conv_width": conv_width}
    module, tokens = mixer(n, **options), drawn(2, n, WIDTH)
    assert_close_to_largest(module(tokens), torch.stack([by_formula(module, item) for item in tokens]), 1e-12)


@over_directions
@pytest.mark.parametrize(("n", "chunk"), [(3, 4), (8, 4), (11, 4), (GROUP + 9, 1)])
@pytest.mark.parametrize("padding", [False, True])
def test_gradients_are_those_of_the_loop(causal: bool, n: int, chunk: int, padding: bool) -> None:
    module, tokens = mixer(n, causal=causal, chunk=chunk), drawn(2, n, WIDTH)
    valid = torch.ones(2, n, dtype=torch.bool)
    if padding:
        valid[0, n // 2], valid[1, 2:] = False, False
    upstream, found = drawn(2, n, WIDTH, seed=1) * valid[..., None], []
    for answer in (
        lambda x: module(x, valid if padding else None),
        lambda x: torch.stack([by_formula(module, *pair) for pair in zip(x, valid, strict=True)]),
    ):
        data = tokens.clone().requires_grad_()
        found.append(torch.autograd.grad(answer(data), (data, *module.parameters()), upstream))
    for ours, expected in zip(*found, strict=True):
        assert_close_to_largest(ours, expected, 1e-10)


@over_directions
@settings(max_examples=15)
@given(data=st.data())
def test_padding_decays_nothing_and_adds_nothing(causal: bool, data: st.DataObject) -> None:
    n = 11
    kept = data.draw(st.sets(st.integers(0, n - 1), min_size=1))
    module, tokens = mixer(n, causal=causal, chunk=data.draw(st.sampled_from([1, 3, 4, 64]))), drawn(2, n, WIDTH)
    valid = torch.ones(2, n, dtype=torch.bool)
    valid[0] = torch.tensor([place in kept for place in range(n)])
    found = module(tokens.masked_fill(~valid[..., None], float("nan")), valid)
    for item in range(2):
        expected = by_formula(module, tokens[item], valid[item])
        assert_close_to_largest(found[item, valid[item]], expected[valid[item]], 1e-12)


@over_directions
@pytest.mark.parametrize("first", [True, False])
def test_an_item_padded_at_either_end_answers_as_alone(causal: bool, first: bool) -> None:
    module, short = mixer(11, causal=causal, chunk=4), drawn(1, 6, WIDTH)
    fill = torch.full((1, 5, WIDTH), float("inf"), dtype=torch.float64)
    tokens = torch.cat((fill, short) if first else (short, fill), dim=1)
    valid = (torch.arange(11) >= 5 if first else torch.arange(11) < 6)[None]
    assert_close_to_largest(module(tokens, valid)[valid], module(short)[0], 1e-12)


@over_directions
@pytest.mark.parametrize("place", [0, 3, 4, 10])
def test_a_later_token_changes_an_earlier_answer_only_without_causal(causal: bool, place: int) -> None:
    module, tokens = mixer(11, causal=causal, chunk=4), drawn(1, 11, WIDTH)
    other = tokens.clone()
    other[:, place] += 1
    changed = (module(tokens) != module(other)).any(dim=-1)[0]
    assert changed[place:].all()
    assert changed[:place].tolist() == [not causal] * place
    assert module.config.causal is causal


def test_the_second_direction_is_the_first_on_reversed_tokens() -> None:
    module, swapped, tokens = mixer(11, chunk=4), mixer(11, chunk=4), drawn(2, 11, WIDTH)
    z, x, key_query, step = module.project_in.weight.split(module.config.projected)
    with torch.no_grad():
        swapped.project_in.weight.copy_(torch.cat((z, x, *key_query.chunk(2)[::-1], *step.chunk(2)[::-1])))
        for name in ("convolution.weight", "convolution.bias", "log_rate", "step_bias", "skip"):
            swapped.get_parameter(name).copy_(torch.cat(module.get_parameter(name).chunk(2)[::-1]))
    assert_close_to_largest(swapped(tokens.flip(1)), module(tokens).flip(1), 1e-12)
    assert (swapped(tokens) - module(tokens)).abs().max() > 0.01


@pytest.mark.parametrize("count", [1, 2, GROUP, GROUP + 1, 2 * GROUP, GROUP**2 + 3, GROUP**2 + GROUP])
def test_states_are_scanned_in_groups_as_one_after_another(count: int) -> None:
    states, log_decay = drawn(2, count, 3, 2, 4), -drawn(2, count, 2, seed=1).abs()
    expected = [states[:, 0]]
    for place in range(1, count):
        expected.append(log_decay[:, place].exp()[:, None, :, None] * expected[-1] + states[:, place])
    assert_close_to_largest(scan_states(states, log_decay), torch.stack(expected, dim=1), 1e-12)


HARD: dict[str, tuple[float, Callable[[Tensor], Tensor]]] = {
    "slow decay": (2e-6, lambda draw: -1e-4 * draw.abs()),
    "no decay": (2e-6, lambda draw: 0 * draw),
    "fast decay": (3e-4, lambda draw: -100 * draw.abs()),
    "forgetting at once, then slow": (5e-5, lambda draw: torch.where(draw > 1.5, -1e30, -1e-3 * draw.abs())),
    "forgetting in half of every chunk": (3e-4, lambda draw: torch.where(torch.arange(len(draw))[:, None] % 64 < 32, -1e4, -1e-2)),
}
"""Tolerance, and decays from random numbers. Strong decays cost a cumulative sum digits of the weak ones."""


@pytest.mark.parametrize("case", HARD)
@pytest.mark.parametrize(("scale", "repeated"), [(1.0, False), (1e6, True)])
def test_single_precision_stays_finite_and_equal(case: str, scale: float, repeated: bool) -> None:
    """Against the loop in float64, outputs and gradients."""
    n, (tolerance, decays) = 64 * 20, HARD[case]
    parts = [drawn(n, HEADS, 4, seed=1) * scale, drawn(n, STATE, seed=2), drawn(n, STATE, seed=3)]
    inputs = [*(part[:1].expand_as(part) if repeated else part for part in parts), decays(drawn(n, HEADS))]
    exact, single = ([part.to(dtype).clone().requires_grad_() for part in inputs] for dtype in (torch.float64, torch.float32))
    expected, found = in_turn(*exact), mix_chunks(*(part.unflatten(0, (-1, 64)) for part in single)).flatten(0, 1)
    assert found.isfinite().all()
    assert_close_to_largest(found.double(), expected, tolerance)
    upstream = drawn(n, HEADS, 4, seed=4)
    ours, theirs = (torch.autograd.grad(*pair, upstream.to(pair[0].dtype)) for pair in ((found, single[:3]), (expected, exact[:3])))
    for one, other in zip(ours, theirs, strict=True):
        assert_close_to_largest(one.double(), other, tolerance)


@over_directions
def test_huge_tokens_of_a_long_sequence_stay_finite(causal: bool) -> None:
    torch.manual_seed(0)
    module = build(Config(seq_len=3000, width=WIDTH, heads=HEADS, causal=causal))
    tokens = (1e4 * torch.randn(1, 3000, WIDTH)).requires_grad_()
    answers = module(tokens)
    answers.sum().backward()
    assert answers.isfinite().all()
    for parameter in (tokens, *module.parameters()):
        assert parameter.grad is not None
        assert parameter.grad.isfinite().all()


@over_directions
@pytest.mark.parametrize("how", ["weights", "autocast"])
def test_sixteen_bits_answer_nearly_the_same(causal: bool, how: str) -> None:
    torch.manual_seed(0)
    module, tokens = build(Config(seq_len=200, width=32, heads=2, causal=causal)), torch.randn(2, 200, 32)
    expected = module(tokens)
    with torch.autocast("cpu", torch.bfloat16, enabled=how == "autocast"):
        found = module.bfloat16()(tokens.bfloat16()) if how == "weights" else module(tokens)
    assert found.dtype == torch.bfloat16
    assert_close_to_largest(found.float(), expected, 5e-2)


@pytest.mark.parametrize(
    ("n", "chunk", "pairs", "carried"),
    [
        (17, 64, 17 * 17, 0),
        (64, 64, 64 * 64, 0),
        (65, 64, 128 * 64, 64),
        (257, 64, 320 * 64, 256),
        (12, 4, 12 * 4, 8),
        (65537, 64, 65600 * 64, 65536),
    ],
)
def test_products_within_chunks_and_between_them_are_counted(n: int, chunk: int, pairs: int, carried: int) -> None:
    """Width 8, state 5: one direction has 8 + 8 + 10 + 2 projected and 18 convolved channels."""
    terms = {term.name: term.macs.at(n) for term in cost(Config(seq_len=n, width=8, heads=2, state=5, chunk=chunk, causal=True)).terms}
    assert terms == {
        "project_in": n * 8 * 28,
        "convolution": n * 18 * 4,
        "decay_and_skip": 0,
        "scores": pairs * 5,
        "weighted_sum": pairs * 8,
        "states": carried * 5 * 8,
        "reads": carried * 5 * 8,
        "norm": 0,
        "project_out": n * 8 * 8,
    }


def test_a_second_direction_shares_gate_values_and_the_last_projection() -> None:
    """Inner width 16, state 5: a direction has 10 channels of B and C and 2 of dt, convolves 26 and holds 3 x 2 numbers."""
    n = 257
    sizes: dict[str, Any] = {"width": 8, "heads": 2, "state": 5, "expand": 2}
    one, both = (cost(Config(seq_len=n, causal=causal, **sizes)) for causal in (True, False))
    params = [8 * (16 + 16 + 10 + 2) + 26 * 5 + 6 + 16 + 16 * 8, 8 * (16 + 16 + 20 + 4) + 52 * 5 + 12 + 16 + 16 * 8]
    assert [one.params().at(n), both.params().at(n)] == params
    assert both.macs().at(n) - one.macs().at(n) == n * (8 * 12 + 26 * 4) + 320 * 64 * (5 + 16) + 2 * 256 * 5 * 16


def test_cost_is_linear_in_n() -> None:
    assert len(cost(Config(seq_len=257, width=8)).macs().coefficients) == 2


def test_fresh_decays_and_time_steps_are_in_the_published_ranges() -> None:
    """In a whole model too, which draws all of its linear layers again."""
    torch.manual_seed(0)
    shape = Shape(seq_len=17, width=512, depth=2, heads=128, ffn_width=64)
    model = metaformer.build(metaformer.Config(shape=shape, mixer="state_space"))
    for block in range(2):
        mixer = model.get_submodule(f"blocks.{block}.mixer")
        rate, step = mixer.get_parameter("log_rate").exp(), torch.log1p(mixer.get_parameter("step_bias").exp())
        assert 1 <= rate.min() < 2 < 15 < rate.max() <= 16
        assert rate.mean().item() == pytest.approx(8.5, abs=1)
        assert 1e-3 * 0.999 <= step.min() < 2e-3 < 5e-2 < step.max() <= 1e-1 * 1.001
        assert step.log().mean().item() == pytest.approx(math.log(1e-2), abs=0.4)
        assert mixer.get_parameter("skip").eq(1).all()


@pytest.mark.parametrize(
    ("sizes", "rule"),
    [
        ({"heads": 3}, "width must be a multiple of heads"),
        ({"conv_width": 1}, "conv_width must be at least 2, not 1"),
        ({"convolution": "dense"}, "convolution must be one of native, products"),
        *(({name: 0}, f"{name} must be a positive whole number") for name in ("state", "expand", "chunk", "conv_width")),
    ],
)
def test_impossible_sizes_are_refused(sizes: dict[str, Any], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        Config(seq_len=17, width=8, **sizes)
