"""The engine onednn: what it refuses, and that a model answers and learns the same under it."""

from __future__ import annotations

import pytest
import torch

from bench.measure import engines
from bench.measure.engines.onednn import pieces, product, site
from bench.measure.step import build_step
from bench.spec import Workload
from tests.measure.engines.test_engines import cells

needs_onednn = pytest.mark.skipif(bool(product.why_unsupported()), reason=product.why_unsupported())
FAMILIES = ("gmlp", "vit", "transformer", "metaformer", "encoder_decoder")


@pytest.mark.parametrize(
    ("work", "says"),
    [
        ({"device": "cuda"}, "needs --device cpu"),
        ({"dtype": "bf16-autocast"}, "fp32 or bf16"),
        ({"dtype": "bf16", "phase": "train"}, "--phase infer"),
        ({"dtype": "bf16"}, ""),
    ],
)
def test_what_it_cannot_run_is_refused(work: dict[str, str], says: str) -> None:
    found = engines.why_unsupported(Workload(engine="onednn", **work))  # type: ignore[arg-type]
    assert says in found if says else not found


@pytest.fixture
def never_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every site takes another implementation where it has one, whichever is faster at these small sizes."""
    monkeypatch.setattr(site, "fastest", lambda candidates, *_: list(candidates)[-1])


@needs_onednn
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


@needs_onednn
def test_causal_and_plain_attention_of_equal_sizes_choose_apart() -> None:
    torch._dynamo.reset()
    eager, cell = cells(models="encoder_decoder", seq="514", batch="1", engine="eager,onednn", input="tokens")
    step = build_step(cell, seed=3)
    torch.testing.assert_close(step.call(), build_step(eager, seed=3).call(), rtol=1e-4, atol=1e-5)


@needs_onednn
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


@needs_onednn
@pytest.mark.usefixtures("never_torch")
@torch.no_grad()
def test_weights_made_in_every_call_are_not_packed_and_named_tensors_are_left_alone() -> None:
    torch._dynamo.reset()
    model, data = Chunked(), torch.randn(2, 130, 8)
    prepared = engines.prepare("onednn", model, data, trains=False)
    torch.testing.assert_close(prepared.forward(data), model(data), rtol=1e-4, atol=1e-4)
    assert prepared.facts()["engine_effective"].startswith("linear: 1 onednn;")


@needs_onednn
@pytest.mark.usefixtures("never_torch")
def test_attention_by_onednn_is_recorded() -> None:
    torch._dynamo.reset()
    (cell,) = cells(seq="130", batch="1", engine="onednn")
    step = build_step(cell)
    step.call()
    assert step.facts()["attention_effective"] == "onednn"
