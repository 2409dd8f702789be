"""Any model's count is right, or refused by the name of what cannot be counted: random models, counted three ways.

BENCH_FUZZ_MODELS=3000 pytest tests/counting/test_composed.py tries three thousand.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, Phase, event, given, settings
from torch import nn

from bench.metrics import flops
from bench.peers.counted import counted
from bench.spec import RequestError
from tests.counting.composed import MADE, PATCH_DIM, TOKENS, models
from tests.counting.profiled import forward_flops, step_flops
from tests.made_jobs import small_job
from tests.planning.plans import plan_of

UNCOUNTED = ("cdist", "euclidean_dist", "linalg_matrix_exp", "linalg_householder_product")
"""Words in the names of operators that no counter knows."""


def columns_of(model: nn.Module) -> Mapping[str, Any] | RequestError:
    """The columns of `flops`, as a run has them; or why the model is refused."""
    MADE[:] = [model]
    counted.cache_clear()
    try:
        plan = plan_of(models="python:tests.counting.composed:made", seq=str(TOKENS), phase="train", metrics="params,flops")
    except RequestError as error:
        return error
    return flops.measure(small_job("flops", plan.cells[0].cell.model, work={"phase": "train", "attention": "math"})).values


@pytest.mark.slow
@settings(
    max_examples=int(os.environ.get("BENCH_FUZZ_MODELS", "60")),
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[phase for phase in Phase if phase is not Phase.explain],
)
@pytest.mark.filterwarnings("ignore")
@given(model=models())
def test_three_counts_of_a_random_model_agree(model: nn.Module) -> None:
    data = torch.zeros(1, TOKENS, PATCH_DIM)
    row = columns_of(model)
    if isinstance(row, RequestError):
        event("refused")
        assert any(word in str(row) for word in UNCOUNTED), row
        return
    event(f"counted by {row['flops_counted_by']}")
    assert row["flops"] == forward_flops(copy.deepcopy(model).eval(), data)
    assert row["flops_train"] + (row["flops_recompute"] or 0) == step_flops(model, data)
    assert row["flops_fvcore"] in (None, row["flops"])
