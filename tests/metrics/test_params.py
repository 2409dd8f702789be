"""The metric `params`: what the built model holds."""

from __future__ import annotations

import pytest

from bench.flop_counter import CountError
from bench.measure import model
from bench.metrics import params
from models.layers.cost import Cost, N, Term
from tests.made_jobs import small_job, small_model

JOB = small_job("params", small_model("gmlp", width=32, depth=2, heads=4, ffn_width=64))
BLOCK = 64 + (32 * 64 + 64) + 64 + (17 * 17 + 17) + (32 * 32 + 32)
"""Norm, expansion, norm of the gate, spatial matrix, contraction; by hand."""


def test_a_gmlp_by_hand() -> None:
    outside = (192 * 32 + 32) + 32 + 64 + (32 * 10 + 10)
    expected = {"params": 2 * BLOCK + outside, "params_seq": 2 * (17 * 17 + 17), "params_blocks": 2 * BLOCK}
    assert params.measure(JOB).values == expected


def test_a_disagreement_is_one_line_with_both_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    true = model.cost_of(JOB.cell.model)
    monkeypatch.setattr(model, "cost_of", lambda _: true + Cost((Term(name="extra", params=N),)))
    right = true.params().at(17)
    with pytest.raises(CountError, match=f"^parameters of gmlp at seq_len 17 disagree: closed form {right + 17}, counted {right}$"):
        params.measure(JOB)
