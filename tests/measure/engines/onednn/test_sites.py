"""A site takes the fastest implementation, keeps it, and leaves no trace of the choosing."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.measure.engines.onednn import site
from bench.measure.engines.onednn.rewrite import attention_candidates, baddbmm_candidates, conv1d_candidates, linear_candidates
from bench.measure.engines.onednn.site import ORIGINAL, Site


def slow(data: Tensor) -> Tensor:
    time.sleep(0.01)
    return data * 2


def quick(data: Tensor) -> Tensor:
    return data * 2


@pytest.mark.parametrize(("original", "other", "choice"), [(slow, quick, "other"), (quick, slow, ORIGINAL)])
def test_the_faster_stays(original: site.Implementation, other: site.Implementation, choice: str) -> None:
    chosen = Site("double", original, lambda _: {"other": other}, {})
    assert chosen(torch.ones(3)).tolist() == [2.0, 2.0, 2.0]
    assert chosen.choice == choice
    assert chosen.run is (other if choice == "other" else original)


def test_sites_of_equal_sizes_are_timed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    timed: list[object] = []

    def note(*call: object) -> str:
        timed.append(call)
        return "other"

    monkeypatch.setattr(site, "fastest", note)
    choices: dict[object, str] = {}
    for length in (3, 3, 4):
        Site("double", slow, lambda _: {"other": quick}, choices)(torch.ones(length))
    assert len(timed) == 2


def test_what_answers_otherwise_is_not_taken() -> None:
    chosen = Site("double", slow, lambda _: {"wrong": lambda data: data * 2.1}, {})
    chosen(torch.ones(3))
    assert chosen.choice == ORIGINAL


def test_choosing_leaves_no_gradient() -> None:
    data = torch.ones(3, requires_grad=True)
    chosen = Site("double", slow, lambda _: {"other": quick}, {})
    out = chosen(data)
    assert data.grad is None
    out.sum().backward()
    assert data.grad is not None
    assert data.grad.tolist() == [2.0, 2.0, 2.0]


@torch.no_grad()
def test_what_has_no_other_implementation() -> None:
    data, heads = torch.randn(2, 5, 8), torch.randn(1, 2, 128, 8)
    bias, shared = torch.randn(5, 1), torch.randn(5, 5).expand(2, -1, -1)
    calls: list[tuple[site.Candidates, tuple[object, ...], dict[str, Any]]] = [
        (linear_candidates, (data.double(), torch.randn(6, 8).double()), {}),
        (linear_candidates, (data, torch.randn(6, 16)[:, ::2]), {}),
        (attention_candidates, (heads[:, :, :9],) * 3, {}),
        (attention_candidates, (heads, heads, heads, torch.ones(128, 128, dtype=torch.bool)), {}),
        (attention_candidates, (heads, heads, heads, None, 0.1), {}),
        (attention_candidates, (heads,) * 3, {"is_causal": True}),
        (attention_candidates, (heads,) * 3, {"enable_gqa": True}),
        (baddbmm_candidates, (bias, torch.randn(2, 5, 5), data), {}),
        (baddbmm_candidates, (bias, shared, data), {"beta": 2.0}),
        (conv1d_candidates, (data, torch.randn(5, 5, 3), torch.randn(5)), {}),
        (conv1d_candidates, (data, torch.randn(5, 5, 1), torch.randn(5), 2), {}),
    ]
    for candidates, arguments, options in calls:
        assert not candidates(*arguments, **options), (candidates, options)


def test_bf16_has_another_implementation_without_gradients_alone() -> None:
    data, heads = torch.randn(2, 5, 8).bfloat16(), torch.randn(1, 2, 9, 8).bfloat16()
    calls: list[tuple[site.Candidates, tuple[Tensor, ...]]] = [
        (linear_candidates, (data, torch.randn(6, 8).bfloat16())),
        (attention_candidates, (heads, heads, heads)),
    ]
    for candidates, arguments in calls:
        assert not candidates(*arguments)
        with torch.no_grad():
            assert set(candidates(*arguments)) == {"onednn"}
    with torch.no_grad():
        assert not linear_candidates(data, torch.randn(6, 8))  # one in fp32


@torch.no_grad()
def test_every_other_implementation_computes_the_same() -> None:
    torch.manual_seed(0)
    data, heads = torch.randn(2, 5, 8), torch.randn(1, 2, 128, 8)
    calls: list[tuple[site.Implementation, site.Candidates, tuple[Tensor, ...], set[str]]] = [
        (F.linear, linear_candidates, (data, nn.Parameter(torch.randn(6, 8)), torch.randn(6)), {"onednn", "packed"}),
        (F.linear, linear_candidates, (data, torch.randn(6, 8)), {"onednn"}),
        (F.scaled_dot_product_attention, attention_candidates, (heads, heads + 1, heads * 2), {"onednn"}),
        (torch.baddbmm, baddbmm_candidates, (torch.randn(5, 1), torch.randn(5, 5).expand(2, -1, -1), data), {"onednn"}),
        (torch.conv1d, conv1d_candidates, (data, torch.randn(5, 5, 1), torch.randn(5)), {"onednn"}),
    ]
    for original, candidates, arguments, names in calls:
        found = candidates(*arguments)
        assert set(found) == names
        for run in found.values():
            torch.testing.assert_close(run(*arguments), original(*arguments), rtol=1e-5, atol=1e-5)
