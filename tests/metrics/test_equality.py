"""Every peer computes what our model of the same sizes computes, forward and gradients; whatever differs is noticed."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bench.metrics import equality
from bench.peers import counterpart as weights
from bench.planning.sizing import SizedModel, resolve_models
from bench.spec import ModelSpec
from tests.made_jobs import small_job, small_record
from tests.requested import parse_request

SIZES = {"width": "32", "depth": "2", "heads": "4", "ffn_width": "64"}
PEERS = {
    "timm:gmlp": "gmlp+pool=mean",
    "g_mlp_pytorch:gmlp": "gmlp+pool=mean",
    "timm:vit": "vit+pool=cls",
    "torchvision:vit": "vit+pool=cls",
    "vit_pytorch:vit": "vit+pool=cls",
    "torch_nn:transformer": "transformer+pool=cls",
    "timm:mixer": "metaformer+mixer=token_mlp+pool=mean+positions=none",
    "transformers:mamba2": "metaformer+mixer=state_space:causal=true+pool=mean",
}
LIBRARIES = {"timm": "timm", "g_mlp_pytorch": "g_mlp_pytorch", "vit_pytorch": "vit_pytorch", "transformers": "transformers"}


def resolved(models: str, n: int = 17, **sizes: str) -> ModelSpec:
    (sized,) = resolve_models(parse_request(models=models, seq=str(n), **sizes))
    assert isinstance(sized, SizedModel)
    return sized.model


def peer(name: str, n: int = 17) -> ModelSpec:
    if library := LIBRARIES.get(name.partition(":")[0]):
        pytest.importorskip(library)
    return resolved(f"python:bench.peers.{name}", n, **SIZES)


def measured(model: ModelSpec, **work: Any) -> dict[str, Any]:
    return dict(equality.measure(small_job("equality", model, work={"batch_size": 2, **work})).values)


@pytest.mark.parametrize("name", PEERS)
def test_a_peer_computes_what_ours_computes(name: str) -> None:
    found = measured(peer(name), phase="train")
    assert found["equal_to"] == PEERS[name]
    assert found["output_error"] <= 1e-5
    assert found["gradient_error"] <= 1e-4
    assert found["equal"]


def test_inference_runs_the_code_of_inference() -> None:
    found = measured(peer("torch_nn:transformer"))
    assert (found["equal"], found["gradient_error"]) == (True, None)
    assert equality.summarise([small_record("equality", found)]) == found
    assert measured(peer("timm:gmlp", 18))["equal"]  # patches in one row


def test_a_spoilt_weight_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    copy = weights.copy_weights

    def copy_and_spoil(model: nn.Module, peer: nn.Module, *others: Any) -> None:
        copy(model, peer, *others)
        with torch.no_grad():
            peer.get_parameter("blocks.1.mlp_channels.gate.proj.weight").view(-1)[0] += 0.1

    monkeypatch.setattr(weights, "copy_weights", copy_and_spoil)
    found = measured(peer("timm:gmlp"))
    assert found["output_error"] > 1e-5
    assert not found["equal"]


def test_a_wrong_gradient_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    copy = weights.copy_weights

    def copy_and_spoil(model: nn.Module, peer: nn.Module, *others: Any) -> None:
        copy(model, peer, *others)
        peer.get_parameter("blocks.0.mlp_channels.gate.proj.bias").register_hook(lambda found: found * 1.01)

    monkeypatch.setattr(weights, "copy_weights", copy_and_spoil)
    found = measured(peer("timm:gmlp"), phase="train")
    assert found["output_error"] <= 1e-5
    assert found["gradient_error"] > 1e-4
    assert not found["equal"]


def test_a_reference_that_rounds_worse_is_judged_in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    redraw = weights.redraw

    def redraw_and_blur(model: nn.Module) -> None:
        redraw(model)
        model.register_forward_hook(lambda _module, _data, out: out * 1.001 if out.dtype == torch.float32 else out)

    monkeypatch.setattr(weights, "redraw", redraw_and_blur)
    found = measured(peer("timm:gmlp"), phase="train")
    assert found["equal"]
    assert found["equal_to"] == "gmlp+pool=mean, in float64"
    assert found["gradient_error"] <= 1e-5


def test_a_weight_without_counterpart_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from bench.peers import python, timm

    found = timm.COUNTERPARTS["gmlp"]
    monkeypatch.setattr(python, "known", python.known.__wrapped__)
    monkeypatch.setitem(timm.COUNTERPARTS, "gmlp", dataclasses.replace(found, pairs={**found.pairs, "head.classify": "tail"}))
    with pytest.raises(ValueError, match=r"weights cannot be copied: head\.bias has no counterpart"):
        measured(peer("timm:gmlp"))


def test_eager_mode_of_ours_has_nothing_to_be_compared_with() -> None:
    model = resolved("gmlp", 17, **SIZES)
    assert measured(model) == equality.summarise([]) == dict.fromkeys(equality.COLUMNS)


def test_the_call_that_is_timed_is_what_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that is right at first, and wrong from the second call on."""
    from bench.measure import engines

    def recorded(call: engines.Call) -> engines.Call:
        answers = [call()]

        def replay() -> Tensor:
            answers.append(answers[-1] * 1.01)
            return answers[-2]

        return replay

    monkeypatch.setattr(engines, "prepare", lambda _choice, model, _data, **_: engines.Prepared(forward=model, wrap=recorded))
    found = measured(resolved("vit", 17, **SIZES), engine="compile")
    assert not found["equal"]
    assert found["output_error"] == pytest.approx(0.01, rel=1e-2)


@pytest.mark.parametrize(("by", "equal"), [(0.0, True), (1e-3, False)])
def test_an_engine_is_compared_with_eager_mode(by: float, equal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    from bench.measure import engines

    def shifted(_choice: str, model: nn.Module, _data: Tensor, **_: Any) -> engines.Prepared:
        return engines.Prepared(forward=lambda data: model(data) * (1 + by))

    monkeypatch.setattr(engines, "prepare", shifted)
    user = measured(resolved("python:tests.peers.made_models:averaging"), engine="compile")  # called through an adapter
    assert user["equal"] is equal
    found = measured(resolved("vit", 17, **SIZES), engine="compile", phase="train")
    assert found["equal_to"] == ("vit, eager" if equal else "vit, eager, in float64")
    assert found["equal"] is equal
    assert found["output_error"] == pytest.approx(by, rel=1e-2, abs=1e-6)
    assert found["gradient_error"] == pytest.approx(by, rel=1e-2, abs=1e-6)


def test_a_gradient_of_zero_is_held_against_the_largest() -> None:
    comparison = equality.OutputReference(name="x", reference=nn.Identity(), prepare=lambda _: None, by_name=dict)
    big = torch.tensor([1.0])
    expected = equality.Answers(outputs=big, gradients={"a": big, "b": torch.zeros(1)})

    def judged(**found: Any) -> dict[str, Any]:
        return dict(equality.errors(dataclasses.replace(expected, **found), expected, comparison, "fp32"))

    assert judged(gradients={"a": big, "b": torch.tensor([1e-7])})["gradient_error"] == pytest.approx(1e-5)
    assert not judged(gradients={"a": big, "b": torch.tensor([1e-3])})["equal"]
    assert judged(gradients={"a": big}) == {"output_error": 0.0, "gradient_error": None, "equal": False}
    assert not judged(gradients={})["equal"]
    assert judged(outputs=torch.tensor([math.nan])) == {"output_error": None, "gradient_error": 0.0, "equal": False}
