"""`bench peers`: what of its grids is asked for, and peers whose library is absent, which are left out with how to install them."""

from __future__ import annotations

import importlib.util

import pytest

from bench.analysis.peers import BEST_ARM, OURS
from bench.planning.ablation import ablation_of, plan_ablation
from bench.planning.request import Request
from bench.questions import Ablation, Arm, Grid, Prediction
from bench.spec import RequestError

PEERS = "peers"


def test_the_grids_are_all_pairs_of_family_and_phase_and_bf16() -> None:
    pairs = {f"{family}, {phase}" for family in ("gMLP", "ViT", "Transformer") for phase in ("infer", "train", "bf16, infer")}
    assert {grid.name for grid in ablation_of(PEERS).cpu} == pairs
    for grid in ablation_of(PEERS).cpu:
        shipped = [arm.name for arm in grid.arms if arm.flags["engine"] == "eager" and not arm.name.startswith(OURS)]
        assert shipped
        assert all("," not in name for name in shipped)
        assert {arm.flags["engine"] for arm in grid.arms if arm.name == BEST_ARM} < {arm.flags["engine"] for arm in grid.arms}


def test_only_the_parts_that_were_named_are_run() -> None:
    names = [grid.name for grid in ablation_of("token_mixing").cpu]
    plan = plan_ablation("token_mixing", Request(), "cpu", "", (names[-1],))
    assert [part.name for part in plan.parts] == names[-1:]
    assert plan.question is not None
    assert {prediction.part for prediction in plan.question.predictions} == {names[-1]}
    with pytest.raises(RequestError, match=f"unknown value of --part: 'nothing'; allowed: {names[0]!r}"):
        plan_ablation("token_mixing", Request(), "cpu", "", ("nothing",))


def test_a_peer_without_its_library_is_left_out_with_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    flags = {"width": "32", "depth": "1", "ffn_width": "64", "seq": "17,65", "input": "images", "metrics": "params"}
    arms = (Arm(name=BEST_ARM, flags={"models": "transformer"}), Arm(name="timm", flags={"models": "python:bench.peers.timm:vit"}))
    grids = (Grid(name="first", flags=flags, arms=arms, baseline=BEST_ARM),)
    prediction = Prediction(part="first", arm=BEST_ARM, against="timm", measure="params", expected="equal")
    made = Ablation(cpu=grids, cuda=grids, quick=grids, predictions=(prediction,))
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *more: None if name == "timm" else found(name, *more))
    monkeypatch.setattr("bench.planning.ablation.ablation_of", lambda _: made)
    plan = plan_ablation(PEERS, Request(), "cpu", command="")
    assert [[arm.name for arm in part.arms] for part in plan.parts] == [[BEST_ARM]]
    assert [(skipped.model, skipped.seq_len) for skipped in plan.skipped] == [("python:bench.peers.timm:vit", n) for n in (17, 65)]
    assert {skipped.reason for skipped in plan.skipped} == {
        "timm is not installed; pip install g-mlp-pytorch timm transformers vit-pytorch"
    }
