"""Every question in ablations/ can be planned on every device, and a cell that several of its parts ask for is measured once."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from bench import catalog, cli
from bench.ablation import ablation_of, listing, plan_ablation
from bench.flags import Flags
from bench.plan import check_plan
from bench.record import parse_plan, start_run
from bench.spec import to_json

NAMES = catalog.names("ablations")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("quick", "device"), [(False, "cpu"), (False, "cuda"), (True, "cpu")])
def test_every_grid_is_feasible(name: str, quick: bool, device: str) -> None:
    plan = plan_ablation(name, Flags(quick=quick), device, command="")
    ablation = ablation_of(name)
    grids = ablation.quick if quick else (ablation.cuda if device == "cuda" else ablation.cpu)
    assert [part.name for part in plan.parts] == [grid.name for grid in grids]
    check_plan(plan, name)
    assert parse_plan(json.loads(json.dumps(to_json(plan))), Path(name)) == plan


@pytest.mark.parametrize("name", NAMES)
def test_every_question_says_what_it_asks_predicts_and_costs(name: str) -> None:
    text = catalog.load("ablations", name).__doc__ or ""
    assert catalog.summary("ablations", name).endswith("?")
    assert "Prediction:" in text
    assert "Source:" in text
    assert "CPU" in ablation_of(name).cost


def test_shared_cells_are_planned_once() -> None:
    plan = plan_ablation("sequence_length", Flags(), "cpu", command="")
    asked = Counter(cell_id for part in plan.parts for cell_id in part.cells)
    assert max(asked.values()) > 1
    assert len(plan.cells) == len({planned.cell.cell_id for planned in plan.cells}) == len(asked)


def test_what_the_user_chooses_goes_before_the_own_settings() -> None:
    own = plan_ablation("sequence_length", Flags(), "cpu", command="").settings
    chosen = plan_ablation("sequence_length", Flags(rounds="4", seeds="2", threads="1"), "cpu", command="").settings
    quick = plan_ablation("sequence_length", Flags(quick=True), "cpu", command="").settings
    ablation = ablation_of("sequence_length")
    assert (own.rounds, own.seeds, own.sample_s) == (ablation.rounds, ablation.seeds, ablation.sample_s)
    assert (chosen.rounds, chosen.seeds, chosen.threads) == (4, 2, 1)
    assert (quick.rounds, quick.quick) == (3, True)


def test_the_listing_names_the_last_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert {entry["name"]: entry["last"] for entry in listing()} == dict.fromkeys(NAMES)
    plan = plan_ablation("sequence_length", Flags(quick=True), "cpu", command="")
    start_run(Path("results/2026-01-02_cpu_x"), plan, {})
    assert {entry["name"]: entry["last"] for entry in listing()}["sequence_length"] == "results/2026-01-02_cpu_x"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("ablate",), "no question is named"),
        (("ablate", "sequence_lenght"), "did you mean sequence_length?"),
        (("ablate", "sequence_length", "--rounds", "many"), "--rounds 'many' is not a whole number"),
    ],
)
def test_a_wrong_question_is_one_line(arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(list(arguments))
    err = capsys.readouterr().err
    assert ended.value.code == 2
    assert message in " ".join(err.split())
    assert "Traceback" not in err


def test_a_dry_run_measures_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        cli.main(["ablate", "sequence_length", "--quick", "--dry-run", "--json", "--device", "cpu"])
    assert ended.value.code == 0
    assert json.loads(capsys.readouterr().out)["plan"]["name"] == "sequence_length"
    assert not list(tmp_path.iterdir())
