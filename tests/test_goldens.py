"""What must never change by accident: the ids of planned cells, by which records find their plan, and the fresh weights of the families.

A change on purpose is a line in CHANGELOG.md. Then write the file anew: python -m tests.test_goldens
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from bench.commands.plan import plan_of
from bench.measure.model import build_model
from bench.planning.fields import read
from bench.planning.request import Request
from bench.spec import ModelSpec
from models.layers.shape import Interface, Shape

GOLDENS = Path(__file__).parent / "data" / "goldens.json"
REQUESTS = {
    "three families": "models=gmlp,vit,transformer seq=17,65,257 params=250k,1M",
    "canonical": "models=gmlp,vit,transformer seq=17,65,257 params=300k depth=2",
    "matched FLOPs": "models=gmlp,vit,transformer seq=17,65 params=1M match=flops",
    "one shape": "models=gmlp,vit,transformer seq=17,257,1025 params=1M match=shape",
    "sizes outright": "models=gmlp,vit seq=65 width=64 depth=3 heads=2 ffn_width=256",
    "a budget at a width": "models=gmlp,vit,transformer seq=17,65 params=150k width=64 depth=3",
    "budget of the blocks": "models=gmlp,vit,transformer seq=65 params=600k budget_scope=blocks",
    "published": "models=gmlp-s,deit-s batch=1",
    "options": "models=gmlp+pool=mean+spatial_heads=4,vit+pool=mean seq=64 params=500k",
    "mixers": "models=metaformer+mixer=gru,metaformer+mixer=attention:causal=true seq=16 width=48 depth=4",
    "workloads": "models=gmlp,vit,transformer seq=65 params=600k phase=infer,train dtype=fp32,bf16 attention=auto,math",
    "engines": "models=gmlp seq=65 params=600k engine=eager,compile+mode=default",
    "tokens per batch": "models=vit seq=17,65,257 params=600k batch_tokens=4096",
    "tokens": "models=gmlp,vit,transformer seq=64 params=600k input=tokens",
    "digits": "models=gmlp,vit,transformer seq=17 params=300k task=digits metrics=params,accuracy seeds=2",
    "copy": "models=gmlp,vit,transformer seq=64 params=200k depth=4 task=copy metrics=params,accuracy",
    "a recipe": "models=vit seq=17 params=300k task=digits metrics=accuracy recipe=epochs=3,dropout=0.1",
    "trials": "models=vit seq=17 params=300k task=digits metrics=accuracy lr_trials=3",
}
"""By name: the flags and their texts."""
SEQUENCES = ("encoder_decoder", "recurrent_attention")
FAMILIES = ("gmlp", "vit", "transformer", "metaformer", *SEQUENCES)


def planned(name: str) -> dict[str, Any]:
    flags = dict(word.split("=", 1) for word in REQUESTS[name].split())
    plan = plan_of(read(Request, {"device": "cpu", **flags}))
    return {"plan": plan.plan_id, "cells": [p.cell.cell_id for p in plan.cells], "skipped": [s.reason for s in plan.skipped]}


def fresh_weights(family: str) -> str:
    """A digest of all weights as the seed 0 gives them."""
    shape = Shape(seq_len=16, width=32, depth=2, heads=2, ffn_width=64)
    interface = Interface(input="tokens", vocab_size=40, num_classes=12) if family in SEQUENCES else Interface()
    torch.manual_seed(0)
    state = build_model(ModelSpec(name=family, family=family, shape=shape, interface=interface)).state_dict()
    found = hashlib.sha256()
    for name, weight in state.items():
        found.update(f"{name} {tuple(weight.shape)} {weight.dtype}".encode())
        found.update(weight.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()[:24]


@pytest.fixture(scope="module")
def goldens() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(GOLDENS.read_text())
    return found


@pytest.mark.parametrize("name", REQUESTS)
def test_plans_and_cells_keep_their_ids(name: str, goldens: dict[str, Any]) -> None:
    assert planned(name) == goldens["plans"][name]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_seed_gives_the_same_weights(family: str, goldens: dict[str, Any]) -> None:
    if torch.__version__.split("+")[0] != goldens["torch"]:
        pytest.skip(f"the digests are those of torch {goldens['torch']}")
    assert fresh_weights(family) == goldens["weights"][family]


if __name__ == "__main__":
    written = {
        "torch": torch.__version__.split("+")[0],
        "plans": {name: planned(name) for name in REQUESTS},
        "weights": {family: fresh_weights(family) for family in FAMILIES},
    }
    GOLDENS.write_text(json.dumps(written, indent=1) + "\n")
