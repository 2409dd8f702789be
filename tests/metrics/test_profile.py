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


@pytest.mark.parametrize(("family", "attends"), [("gmlp", False), ("vit", True)])
def test_the_time_of_a_step_is_shared_out(tmp_path: Path, family: str, attends: bool) -> None:
    job = small_job("profile", small_model(family), work={"batch_size": 2, "phase": "train"}, scratch=str(tmp_path / "checkpoints"))
    values = profile.measure(job).values
    shares = [values[name] for name in (*profile.KINDS, profile.PASSES)]
    assert sum(shares) == pytest.approx(1.0)
    assert (values["attention_share"] > 0) is attends
    assert min(values[name] for name in ("products_share", "norms_share", "passes_share")) > 0


def test_operators_are_told_apart_by_name() -> None:
    times = {"aten::addmm": 2.0, "aten::cudnn_convolution": 1.0, "aten::_cudnn_attention_backward": 3.0, "aten::native_layer_norm": 1.0}
    times |= {"aten::mul": 2.0, "aten::_foreach_norm": 0.5, "aten::normal_": 0.5}
    assert profile.shares_of(times) == {"products_share": 0.3, "attention_share": 0.3, "norms_share": 0.1, "passes_share": 0.3}
    assert profile.shares_of({}) == {}
