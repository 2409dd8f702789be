"""Gated recurrent units: products answer as torch's own, with the same last states, and nothing where tokens are padded."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from models.layers.recurrence import run_gru, run_gru_in_products
from tests.contracts.checks import assert_close_to_largest


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_states_agree(bidirectional: bool, masked: bool) -> None:
    torch.manual_seed(0)
    gru = nn.GRU(6, 5, batch_first=True, bidirectional=bidirectional).double()
    tokens = torch.randn(4, 11, 6).double()
    valid = (torch.rand(4, 11) < 0.6).index_fill(1, torch.tensor([2]), True) if masked else None
    products, native = run_gru_in_products(gru, tokens, valid), run_gru(gru, tokens, valid)
    for found, expected in zip(products, native, strict=True):
        assert_close_to_largest(found, expected, 1e-12)
    assert valid is None or not native[0][~valid].any()
