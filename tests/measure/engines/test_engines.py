"""Engines: how they are asked for, what they refuse, and that a model answers and learns the same under each of them."""

from __future__ import annotations

import inspect
import shutil
import warnings
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from bench.measure.engines import parse_engine
from bench.measure.kernels import spatial_kernel
from bench.measure.step import UNRECORDED_STEP, build_step
from bench.spec import Cell, Plan, RequestError
from tests.planning.plans import plan_of
from tests.requested import parse_request


def plan(device: str = "cpu", **flags: Any) -> Plan:
    return plan_of(device=device, **{"models": "vit", "seq": "17", "width": "32", "depth": "1", **flags})


def cells(**flags: str) -> list[Cell]:
    return [planned.cell for planned in plan(**flags).cells]


def test_options_have_one_spelling() -> None:
    assert parse_engine("compile+mode=max-autotune+freeze=true").text == "compile+freeze=true+mode=max-autotune"
    assert parse_engine("compile+mode=default+freeze=false").text == "compile"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("graf", "unknown engine 'graf'"),
        ("compile+mod=x", "unknown option of engine compile"),
        ("compile+mode=x", "mode must be one of"),
        ("compile+freeze", "option freeze of engine compile must be true or false, not ''"),
        ("compile+freeze=true+freeze=false", "given twice"),
    ],
)
def test_what_there_is_not_is_refused(text: str, says: str) -> None:
    with pytest.raises(RequestError, match=says):
        parse_request(models="vit", seq="17", engine=text)


def test_what_cannot_run_here_is_skipped_with_its_reason() -> None:
    found = plan(engine="eager,graph,compile+freeze=true", phase="infer,train", dtype="fp32,tf32")
    ran = {(p.cell.workload.engine, p.cell.workload.phase, p.cell.workload.dtype) for p in found.cells}
    assert ran == {("eager", "infer", "fp32"), ("eager", "train", "fp32"), ("compile+freeze=true", "infer", "fp32")}
    reasons = {skipped.reason for skipped in found.skipped}
    assert any("CUDA graphs need" in reason for reason in reasons)
    assert any("--phase infer" in reason for reason in reasons)
    assert any("--dtype tf32" in reason for reason in reasons)


def test_nothing_but_what_cannot_run_is_a_wrong_request() -> None:
    with pytest.raises(RequestError, match="CUDA graphs need --device cuda") as refused:
        plan(engine="graph")
    assert "choose another --engine" in refused.value.hint


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="compiling on a CPU needs a C++ compiler")
@pytest.mark.filterwarnings("ignore")  # the compiler's own remarks
def test_a_frozen_compiled_model_computes_the_same() -> None:
    torch._dynamo.reset()
    eager, cell = cells(batch="2", engine="eager,compile+freeze=true")
    step = build_step(cell, seed=3)
    torch.testing.assert_close(step.call(), build_step(eager, seed=3).call(), rtol=1e-5, atol=1e-5)
    assert step.facts()["engine_effective"] == "compile, mode default, frozen, 1 graph, 0 graph breaks"


def test_channels_last_turns_convolutions_and_images() -> None:
    (cell,) = cells(models="vit+stem=convolution", engine="eager+channels_last=true", batch="2")
    step = build_step(cell, seed=3)
    filters = [parameter for parameter in step.model.parameters() if parameter.dim() == 4]
    assert filters
    assert all(parameter.is_contiguous(memory_format=torch.channels_last) for parameter in filters)
    (plain,) = cells(models="vit+stem=convolution", batch="2")
    torch.testing.assert_close(step.call(), build_step(plain, seed=3).call(), rtol=1e-5, atol=1e-5)
    assert step.facts()["engine_effective"].startswith("eager, channels last:")


@pytest.mark.parametrize(("models", "used"), [("gmlp+kernel=matmul", "matmul"), ("gmlp", "baddbmm"), ("vit", None)])
def test_the_formulation_of_the_spatial_projection_is_recorded(models: str, used: str | None) -> None:
    (cell,) = cells(models=models, batch="2")
    assert spatial_kernel(cell, build_step(cell)) == used


@pytest.mark.filterwarnings("ignore:The .grad attribute")
@pytest.mark.parametrize("engine", ["eager", "compile", "graph"])
def test_a_gpus_optimizer_can_be_recorded_and_torch_warns_of_none_that_is_not(engine: str) -> None:
    """Kernel times are taken by recording steps that run in eager mode otherwise."""
    (planned,) = plan(device="cuda", engine=engine, phase="train", batch="2").cells
    with warnings.catch_warnings(record=True) as given, FakeTensorMode():
        optimizer = build_step(planned.cell).optimizer
        warnings.warn(f"{UNRECORDED_STEP}, but is running without CUDA graph capture", stacklevel=1)
    assert optimizer is not None
    assert (optimizer.defaults["capturable"], optimizer.defaults["fused"]) == (True, True)
    assert given == []


def test_torch_warns_in_the_words_that_are_passed_over() -> None:
    assert UNRECORDED_STEP in inspect.getsource(torch.optim.Optimizer._accelerator_graph_capture_health_check)
