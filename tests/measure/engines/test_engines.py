"""Engines: how they are asked for, what they refuse, and that a model answers and learns the same under each of them."""

from __future__ import annotations

import inspect
import shutil
import warnings

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from bench import catalog
from bench.measure import engines
from bench.measure.engines import parse_engine
from bench.measure.kernels import spatial_kernel
from bench.measure.onednn import pieces, product, site
from bench.measure.step import UNRECORDED_STEP, build_step
from bench.planning.build import build_plan
from bench.spec import Cell, Plan, Recipe, RequestError, Settings, Workload
from tests.requested import parse_request

FAMILIES = ("gmlp", "vit", "transformer", "metaformer", "encoder_decoder")


def plan(device: str = "cpu", **flags: str) -> Plan:
    request = parse_request(**{"models": "vit", "seq": "17", "width": "32", "depth": "1", **flags})
    return build_plan(request, settings=Settings(), recipe=Recipe(), device=device)


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
        ("compile+freeze=yes", "must be true or false"),
        ("onednn+prepack=true+prepack=false", "given twice"),
        ("graph+x=1", "unknown option of engine graph"),
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


def test_what_runs_on_a_gpu_only_is_planned_for_one() -> None:
    assert {p.cell.workload.engine for p in plan(device="cuda", engine="graph,eager", dtype="tf32").cells} == {"graph", "eager"}
    assert "needs --device cpu" in engines.why_unsupported(Workload(engine="onednn", device="cuda"))
    assert "fp32 or bf16" in engines.why_unsupported(Workload(engine="onednn", dtype="bf16-autocast"))
    assert "--phase infer" in engines.why_unsupported(Workload(engine="onednn", dtype="bf16", phase="train"))
    assert not engines.why_unsupported(Workload(engine="onednn", dtype="bf16"))


def test_every_engine_says_whether_it_hides_operators() -> None:
    assert {name: engines.hides_operators(name) for name in catalog.names("engines")} == {
        "compile": True,
        "eager": False,
        "graph": True,
        "onednn": True,
    }


@pytest.fixture
def never_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every site takes another implementation where it has one, whichever is faster at these small sizes."""
    monkeypatch.setattr(site, "fastest", lambda candidates, *_: list(candidates)[-1])


@pytest.mark.skipif(bool(product.why_unsupported()), reason=product.why_unsupported())
@pytest.mark.usefixtures("never_torch")
@pytest.mark.parametrize("phase", ["infer", "train"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_computes_the_same_by_onednn(family: str, phase: str) -> None:
    torch._dynamo.reset()
    eager, cell = cells(models=family, seq="130", phase=phase, batch="2", engine="eager,onednn")
    expected, step = build_step(eager, seed=3), build_step(cell, seed=3)
    torch.testing.assert_close(step.call(), expected.call(), rtol=1e-5, atol=1e-5)
    if phase == "train":
        for found, right in zip(step.model.parameters(), expected.model.parameters(), strict=True):
            torch.testing.assert_close(found.grad, right.grad, rtol=1e-4, atol=1e-5)
    facts = step.facts()
    assert "torch" not in facts["engine_effective"].split(";")[0]
    assert "1 graph, 0 graph breaks" in facts["engine_effective"]


@pytest.mark.skipif(bool(product.why_unsupported(torch.bfloat16)), reason=product.why_unsupported(torch.bfloat16))
@pytest.mark.usefixtures("never_torch")
@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_computes_the_same_by_onednn_in_bf16(family: str) -> None:
    """As near to fp32 as eager mode in bf16 is, but for a factor of two."""
    torch._dynamo.reset()
    flags = {"models": family, "seq": "130", "batch": "2"}
    exact, eager, found = (
        build_step(cells(**flags, **more)[0], seed=3).call().float()
        for more in ({}, {"dtype": "bf16"}, {"dtype": "bf16", "engine": "onednn"})
    )
    assert (found - exact).abs().max() <= 2 * (eager - exact).abs().max()


@pytest.mark.skipif(bool(product.why_unsupported()), reason=product.why_unsupported())
def test_causal_and_plain_attention_of_equal_sizes_choose_apart() -> None:
    torch._dynamo.reset()
    eager, cell = cells(models="encoder_decoder", seq="514", batch="1", engine="eager,onednn", input="tokens")
    step = build_step(cell, seed=3)
    torch.testing.assert_close(step.call(), build_step(eager, seed=3).call(), rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(bool(product.why_unsupported()), reason=product.why_unsupported())
def test_a_batch_whose_samples_share_statistics_is_not_split(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "PIECE_ROWS", 17)
    monkeypatch.setattr(pieces, "HANDICAP", 1e9)
    for norm, split in (("batch", False), ("layer", True)):
        torch._dynamo.reset()
        flags = {"models": f"metaformer+mixer=attention+norm={norm}", "phase": "train", "batch": "4"}
        step = build_step(cells(**flags, engine="onednn")[0], seed=3)
        torch.testing.assert_close(step.call(), build_step(cells(**flags)[0], seed=3).call(), rtol=1e-5, atol=1e-5)
        assert ("in pieces of 1" in step.facts()["engine_effective"]) == split


class Chunked(torch.nn.Module):
    """A layer whose weights are cut out of larger ones in every call, and that names its arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(16, 8))

    def forward(self, data: torch.Tensor) -> torch.Tensor:
        first, second = self.weight.chunk(2)
        heads = torch.nn.functional.linear(data, first)[:, None]
        mixed = torch.nn.functional.scaled_dot_product_attention(query=heads, key=heads, value=heads)
        return torch.nn.functional.linear(input=mixed[:, 0], weight=second)


@pytest.mark.skipif(bool(product.why_unsupported()), reason=product.why_unsupported())
@pytest.mark.usefixtures("never_torch")
@torch.no_grad()
def test_weights_made_in_every_call_are_not_packed_and_named_tensors_are_left_alone() -> None:
    torch._dynamo.reset()
    model, data = Chunked(), torch.randn(2, 130, 8)
    prepared = engines.prepare("onednn", model, data, trains=False)
    torch.testing.assert_close(prepared.forward(data), model(data), rtol=1e-4, atol=1e-4)
    assert prepared.facts()["engine_effective"].startswith("linear: 1 onednn;")


@pytest.mark.skipif(bool(product.why_unsupported()), reason=product.why_unsupported())
@pytest.mark.usefixtures("never_torch")
def test_attention_by_onednn_is_recorded() -> None:
    torch._dynamo.reset()
    (cell,) = cells(seq="130", batch="1", engine="onednn")
    step = build_step(cell)
    step.call()
    assert step.facts()["attention_effective"] == "onednn"


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
