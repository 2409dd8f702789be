"""`bench peers`: what of its grids is asked for, and peers whose library is absent, which are left out with how to install them."""

from __future__ import annotations

import dataclasses
import importlib.util
from typing import Any

import pytest

from bench import cli
from bench.analysis.peers import BEST_ARM, OURS
from bench.planning.ablation import Narrowing, ablation_of, narrowed, plan_ablation
from bench.planning.flags import Flags
from bench.spec import Ablation, Arm, Grid, Prediction, RequestError

PEERS = "peers"
FLAGS = {"width": "32", "depth": "1", "ffn_width": "64", "seq": "17,65", "input": "images", "metrics": "params"}


def made(title: str) -> Grid:
    """Two peers, one of them of a library that may be absent."""
    arms = (
        Arm(name=BEST_ARM, flags={"models": "transformer"}),
        Arm(name="torch.nn", flags={"models": "python:bench.peers.torch_nn:transformer"}),
        Arm(name="timm", flags={"models": "python:bench.peers.timm:vit"}),
    )
    return Grid(name=title, flags=FLAGS, arms=arms, baseline=BEST_ARM)


GRIDS = (made("first"), made("second"))
PREDICTIONS = tuple(Prediction(part=grid.name, arm=BEST_ARM, against="timm", measure="params", expected="equal") for grid in GRIDS)
MADE = Ablation(cpu=GRIDS, cuda=GRIDS, quick=GRIDS[:1], predictions=PREDICTIONS)


def named(grids: tuple[Grid, ...]) -> list[str]:
    return [grid.name for grid in grids]


def test_the_grids_are_all_pairs_of_family_and_phase_and_bf16() -> None:
    pairs = {f"{family}, {phase}" for family in ("gMLP", "ViT", "Transformer") for phase in ("infer", "train", "bf16, infer")}
    assert set(named(ablation_of(PEERS).cpu)) == pairs
    for grid in ablation_of(PEERS).cpu:
        shipped = [arm.name for arm in grid.arms if arm.flags["engine"] == "eager" and not arm.name.startswith(OURS)]
        assert shipped
        assert all("," not in name for name in shipped)
        assert {arm.flags["engine"] for arm in grid.arms if arm.name == BEST_ARM} < {arm.flags["engine"] for arm in grid.arms}


FP32 = [f"{family}, {phase}" for family in ("gMLP", "ViT", "Transformer") for phase in ("infer", "train")]


@pytest.mark.parametrize(
    ("asked", "parts"),
    [
        (Narrowing(), [*FP32, "gMLP, bf16, infer", "ViT, bf16, infer", "Transformer, bf16, infer"]),
        (Narrowing(phase=("train",)), ["gMLP, train", "ViT, train", "Transformer, train"]),
        (Narrowing(models=("vit", "gmlp"), phase=("infer",)), ["gMLP, infer", "ViT, infer", "gMLP, bf16, infer", "ViT, bf16, infer"]),
    ],
)
def test_only_what_was_asked_for_is_run(asked: Narrowing, parts: list[str]) -> None:
    assert named(narrowed(ablation_of(PEERS).cpu, asked)) == parts
    (grid,) = narrowed(ablation_of(PEERS).quick, Narrowing(seq=(197,), batch=(4, 8), models=("vit",)))
    assert (grid.flags["seq"], grid.flags["batch"]) == ("197", "4,8")  # in place of its own


def test_only_the_parts_that_were_named_are_run() -> None:
    names = [grid.name for grid in ablation_of("token_mixing").cpu]
    plan = plan_ablation("token_mixing", Flags(), "cpu", "", Narrowing(parts=(names[-1],)))
    assert [part.name for part in plan.parts] == names[-1:]
    assert plan.question is not None
    assert {prediction.part for prediction in plan.question.predictions} == {names[-1]}
    with pytest.raises(RequestError, match=f"unknown value of --part: 'nothing'; allowed: {names[0]!r}"):
        plan_ablation("token_mixing", Flags(), "cpu", "", Narrowing(parts=("nothing",)))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--models", "mixer"), "unknown value of --models: 'mixer'; allowed: gmlp, vit, transformer"),
        (("--phase", "train", "--quick"), "unknown value of --phase: 'train'; allowed: infer"),
    ],
)
def test_what_it_does_not_have_is_one_line(arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main([PEERS, "--device", "cpu", *arguments])
    err = capsys.readouterr().err
    assert ended.value.code == 2
    assert message in " ".join(err.split())
    assert [line.partition(":")[0] for line in err.splitlines()] == ["error", "hint"]


@pytest.fixture
def _without_timm(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec

    def find_spec(name: str, *arguments: Any) -> Any:
        return None if name == "timm" else found(name, *arguments)

    monkeypatch.setattr("importlib.util.find_spec", find_spec)
    monkeypatch.setattr("bench.planning.ablation.ablation_of", lambda _: MADE)


@pytest.mark.usefixtures("_without_timm")
def test_a_peer_without_its_library_is_left_out_with_how_to_install_it() -> None:
    plan = plan_ablation(PEERS, Flags(), "cpu", command="")
    assert [[arm.name for arm in part.arms] for part in plan.parts] == [[BEST_ARM, "torch.nn"]] * 2
    assert [(skipped.model, skipped.seq_len) for skipped in plan.skipped] == [("python:bench.peers.timm:vit", n) for n in (17, 65)]
    assert {skipped.reason for skipped in plan.skipped} == {"timm is not installed; pip install 'gmlp-bench[peers]'"}


@pytest.mark.usefixtures("_without_timm")
def test_what_was_not_asked_for_is_not_predicted(monkeypatch: pytest.MonkeyPatch) -> None:
    one = dataclasses.replace(GRIDS[1], flags={**FLAGS, "phase": "train"})
    monkeypatch.setattr(
        "bench.planning.ablation.ablation_of", lambda _: Ablation(cpu=(GRIDS[0], one), cuda=(), quick=(), predictions=PREDICTIONS)
    )
    plan = plan_ablation(PEERS, Flags(), "cpu", "", Narrowing(phase=("train",)))
    assert plan.question is not None
    assert [prediction.part for prediction in plan.question.predictions] == ["second"]
    assert {planned.cell.workload.phase for planned in plan.cells} == {"train"}


BESIDE = Arm(name="torch.nn, onednn", flags={"models": "python:bench.peers.torch_nn:transformer", "seq": "17,257"})


@pytest.mark.parametrize(("seq", "kept"), [((17, 257), "17,257"), ((257, 65), "257"), ((65,), None)])
def test_an_arm_with_lengths_of_its_own_keeps_what_is_asked_for_or_is_named(
    seq: tuple[int, ...], kept: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = dataclasses.replace(GRIDS[0], arms=(*GRIDS[0].arms[:2], BESIDE))
    (found,) = narrowed([grid], Narrowing(seq=seq))
    assert [arm.flags.get("seq") for arm in found.arms[2:]] == ([kept] if kept else [])
    monkeypatch.setattr("bench.planning.ablation.ablation_of", lambda _: Ablation(cpu=(grid,), cuda=(), quick=(), predictions=()))
    plan = plan_ablation(PEERS, Flags(), "cpu", "", Narrowing(seq=seq))
    named = [(skipped.seq_len, skipped.reason) for skipped in plan.skipped if "runs only at" in skipped.reason]
    assert named == ([] if kept else [(65, "torch.nn, onednn runs only at --seq 17,257")])
