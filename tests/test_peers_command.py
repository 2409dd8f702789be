"""`bench peers`: what of its grids is asked for, and peers whose library is absent, which are left out with how to install them."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from bench import cli
from bench.analysis.peers import BEST_ARM, OURS
from bench.planning.ablation import ablation_of, plan_ablation
from bench.planning.request import Request
from bench.questions import Ablation, Arm, Grid, Prediction
from bench.spec import RequestError

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


def test_only_the_parts_that_were_named_are_run() -> None:
    names = [grid.name for grid in ablation_of("token_mixing").cpu]
    plan = plan_ablation("token_mixing", Request(), "cpu", "", (names[-1],))
    assert [part.name for part in plan.parts] == names[-1:]
    assert plan.question is not None
    assert {prediction.part for prediction in plan.question.predictions} == {names[-1]}
    with pytest.raises(RequestError, match=f"unknown value of --part: 'nothing'; allowed: {names[0]!r}"):
        plan_ablation("token_mixing", Request(), "cpu", "", ("nothing",))


@pytest.fixture
def _without_timm(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec

    def find_spec(name: str, *arguments: Any) -> Any:
        return None if name == "timm" else found(name, *arguments)

    monkeypatch.setattr("importlib.util.find_spec", find_spec)
    monkeypatch.setattr("bench.planning.ablation.ablation_of", lambda _: MADE)


@pytest.mark.usefixtures("_without_timm")
def test_a_peer_without_its_library_is_left_out_with_how_to_install_it() -> None:
    plan = plan_ablation(PEERS, Request(), "cpu", command="")
    assert [[arm.name for arm in part.arms] for part in plan.parts] == [[BEST_ARM, "torch.nn"]] * 2
    assert [(skipped.model, skipped.seq_len) for skipped in plan.skipped] == [("python:bench.peers.timm:vit", n) for n in (17, 65)]
    assert {skipped.reason for skipped in plan.skipped} == {"timm is not installed; pip install 'gmlp-bench[peers]'"}


@pytest.mark.usefixtures("_without_timm")
def test_a_dry_run_has_a_line_per_part_and_what_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        cli.main([PEERS, "--device", "cpu", "--dry-run"])
    out, err = capsys.readouterr()
    lines = [" ".join(line.split()) for line in out.splitlines()]
    for title in ("first", "second"):
        (line,) = [line for line in lines if line.startswith(title)]
        assert line.startswith(f"{title} 4 ")
        assert line.endswith(f" 17, 65 32 {BEST_ARM}; torch.nn")
    assert sum("timm is not installed" in line for line in lines) == 2
    assert "add --json" in err
