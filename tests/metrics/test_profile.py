"""The trace of one step: it is a file of the run, and shows operators under the modules that called them."""

from __future__ import annotations

import dataclasses
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from bench.metrics import profile
from bench.planning.fields import read
from bench.planning.request import Request, checked
from tests.made_jobs import small_job, small_model


def traced(folder: Path, **work: Any) -> list[dict[str, Any]]:
    work = {"batch_size": 2, "attention": "none", **work}
    job = small_job("profile", small_model("gmlp"), work=work, scratch=str(folder / "checkpoints"))
    name = profile.measure(job).values["trace"]
    assert name == f"traces/{job.cell.cell_id}.json.gz"
    events: list[dict[str, Any]] = json.loads(gzip.decompress((folder / name).read_bytes()))["traceEvents"]
    return [event for event in events if event.get("ph") == "X"]


def test_operators_lie_within_the_ranges_of_their_modules_and_a_training_step_shows_its_backward_and_optimizer(tmp_path: Path) -> None:
    events = traced(tmp_path)
    (gating,) = (event for event in events if event["name"].endswith(": SpatialGating"))
    inside = {e["name"] for e in events if gating["ts"] <= e["ts"] and e["ts"] + e["dur"] <= gating["ts"] + gating["dur"]}
    assert "aten::layer_norm" in inside
    assert "aten::baddbmm" in inside
    names = {event["name"] for event in traced(tmp_path, phase="train")}
    assert any("Backward" in name for name in names)
    assert any("AdamW" in name for name in names)


def test_nvtx_ranges_open_and_close_in_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(torch.cuda.nvtx, "range_push", told.append)
    monkeypatch.setattr(torch.cuda.nvtx, "range_pop", lambda: told.append("pop"))
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.GELU())
    with profile.module_ranges(model, nvtx=True):
        model(torch.zeros(1, 2))
    model(torch.zeros(1, 2))
    assert told == ["model: Sequential", "0: Linear", "pop", "1: GELU", "pop", "pop"]


def test_the_flag_adds_the_metric_once() -> None:
    for asked in ("params", "params,profile"):
        request = dataclasses.replace(read(Request, {"models": "vit", "seq": "17", "metrics": asked}), profile=True)
        assert checked(request).metrics == ("params", "profile")
