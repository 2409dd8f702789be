"""Kernels of attention get a mask only where one is asked for or needed; what fresh scales, bandwidths and rows of low rank are."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from bench.contracts.architectures import assert_close_to_largest
from models.mixers import attention, kernel_attention, low_rank_attention, window_attention

N, WIDTH, BATCH = 7, 8, 3


def padded() -> Tensor:
    """One item of full length, one padded at its end, one with padding in front, in between and behind."""
    valid = torch.ones(BATCH, N, dtype=torch.bool)
    valid[1, N // 2 :] = False
    valid[2, [0, 2, N - 1]] = False
    return valid


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int, tuple[int, ...] | None, bool]]:
    """Of each call of the kernel: batch, keys, the mask's shape, and whether it is told to be causal."""
    attend, found = F.scaled_dot_product_attention, []

    def watched(query: Tensor, key: Tensor, value: Tensor, **given: Any) -> Tensor:
        mask = given.get("attn_mask")
        assert mask is None or mask.any(dim=-1).all(), "a query may read nothing, for which some kernels answer NaN"
        found.append((len(query), key.shape[2], None if mask is None else tuple(mask.shape), given.get("is_causal", False)))
        return attend(query, key, value, **given)

    monkeypatch.setattr(F, "scaled_dot_product_attention", watched)
    return found


@pytest.mark.parametrize(
    ("options", "padding", "shape", "is_causal"),
    [
        ({}, False, None, False),
        ({}, True, (BATCH, 1, 1, N), False),
        ({"causal": True}, False, None, True),
        ({"causal": True}, True, (BATCH, 1, N, N), False),
        ({"mask": "sample"}, False, (BATCH, 1, 1, N), False),
        ({"mask": "query"}, False, (N, N), False),
        ({"mask": "query"}, True, (BATCH, 1, N, N), False),
    ],
)
def test_attention_masks_what_it_must(calls: list[Any], options: dict[str, Any], padding: bool, shape: Any, is_causal: bool) -> None:
    module = attention.build(attention.Config(seq_len=N, width=WIDTH, heads=2, **options))
    module(torch.randn(BATCH, N, WIDTH), padded() if padding else None)
    assert calls == [(BATCH, N, shape, is_causal)]


@pytest.mark.parametrize(("n", "blocks"), [(11, [(6, 4), (3, 3)]), (3, [(3, 3)])])
def test_full_windows_share_one_call_and_only_padding_is_masked(calls: list[Any], n: int, blocks: list[tuple[int, int]]) -> None:
    module, tokens = window_attention.build(window_attention.Config(seq_len=n, width=8, window=4)), torch.randn(3, n, 8)
    module(tokens)
    assert calls == [(*block, None, False) for block in blocks]
    calls.clear()
    module(tokens, torch.ones(3, n, dtype=torch.bool))
    assert calls == [(batch, keys, (batch, 1, 1, keys), False) for batch, keys in blocks]


def test_rows_of_low_rank_are_not_masked(calls: list[Any]) -> None:
    module = low_rank_attention.build(low_rank_attention.Config(seq_len=N, width=WIDTH, rank=3))
    module(torch.randn(BATCH, N, WIDTH), padded())
    assert calls == [(BATCH, 3, None, False)]


def test_learned_scales_and_bandwidths_start_at_the_fixed_ones() -> None:
    for mixer, option, fixed in ((attention, "scaling", "sqrt"), (kernel_attention, "bandwidth", "fixed")):
        first, learned = (mixer.build(mixer.Config(seq_len=N, width=WIDTH, heads=2, **{option: name})) for name in (fixed, "learned"))
        learned.load_state_dict(first.state_dict(), strict=False)
        tokens = torch.randn(BATCH, N, WIDTH)
        assert_close_to_largest(learned(tokens), first(tokens), 1e-5)


@pytest.mark.parametrize("n", [17, 4097])
@pytest.mark.parametrize("share", [False, True])
def test_fresh_rows_of_low_rank_are_of_the_size_of_a_token(n: int, share: bool) -> None:
    torch.manual_seed(0)
    module = low_rank_attention.build(low_rank_attention.Config(seq_len=n, width=64, heads=4, share=share))
    with torch.no_grad():
        assert 0.9 < (module.compress.flatten(0, 1) @ torch.randn(4, n, 64)).std() < 1.1
