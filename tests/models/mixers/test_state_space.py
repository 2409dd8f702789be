"""State space where numbers are hard: states scanned in groups, decays of every size in single precision, and fresh decays and steps."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from bench.contracts.architectures import assert_close_to_largest
from models import metaformer
from models.layers.shape import Shape
from models.mixers.state_space import GROUP, mix_chunks, scan_states

HEADS, STATE, CHUNK = 2, 3, 64


def drawn(*sizes: int, seed: int = 0) -> Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def in_turn(value: Tensor, key: Tensor, query: Tensor, log_decay: Tensor) -> Tensor:
    """`mix_chunks` on `(n, heads, channels)`, `(n, state)`, `(n, state)` and `(n, heads)`, one token after another."""
    state, answers = torch.zeros(value.shape[1], key.shape[1], value.shape[2], dtype=value.dtype), []
    for x, b, c, log in zip(value, key, query, log_decay, strict=True):
        state = log.exp()[:, None, None] * state + b[None, :, None] * x[:, None]
        answers.append(torch.einsum("s,hsc->hc", c, state))
    return torch.stack(answers)


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
    n, (tolerance, decays) = CHUNK * 10, HARD[case]
    parts = [drawn(n, HEADS, 4, seed=1) * scale, drawn(n, STATE, seed=2), drawn(n, STATE, seed=3)]
    inputs = [*(part[:1].expand_as(part) if repeated else part for part in parts), decays(drawn(n, HEADS))]
    exact, single = ([part.to(dtype).clone().requires_grad_() for part in inputs] for dtype in (torch.float64, torch.float32))
    expected, found = in_turn(*exact), mix_chunks(*(part.unflatten(0, (-1, CHUNK)) for part in single)).flatten(0, 1)
    assert found.isfinite().all()
    assert_close_to_largest(found.double(), expected, tolerance)
    upstream = drawn(n, HEADS, 4, seed=4)
    ours, theirs = (torch.autograd.grad(*pair, upstream.to(pair[0].dtype)) for pair in ((found, single[:3]), (expected, exact[:3])))
    for one, other in zip(ours, theirs, strict=True):
        assert_close_to_largest(one.double(), other, tolerance)


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
