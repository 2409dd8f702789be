"""`bench ablate NAME --power` on stored runs: a table that fits, an answer of three lines, and one line where there is nothing to say."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from bench.analysis.power import MAX_ASKED, PowerAnalysis, power_analysis
from bench.analysis.study import study
from bench.files import write_json
from bench.report.console_power import answer, power_json, show_power
from bench.report.last_runs import full_runs_of
from bench.running.store import read_run
from bench.spec import PLAN, RequestError
from tests.report.test_answer import RESULTS
from tests.test_cli import answered

VISION = "2026-11-21_cpu_vision_recipe"
COPY, COST, OLDER_COST = "2026-11-25_cpu_escape_copy", "2026-11-25_cpu_escape_cost", "2026-11-24_cpu_escape"
WIDTH = 100


@pytest.fixture(scope="module")
def vision() -> PowerAnalysis:
    return power_analysis("vision_recipe", [study(read_run(RESULTS / VISION))])


def test_the_answer_counts_what_the_table_shows(vision: PowerAnalysis) -> None:
    decided, costs, left = answer(vision, 3600.0)
    by_seeds = [need for need in vision.needs if need.needed and need.needed <= vision.nums["seeds"]]
    assert decided == f"Decided: 3 of 19 now, {len(by_seeds)} by {vision.nums['seeds']} seeds (80 % power each, effects as measured)."
    assert max(need.needed or 0 for need in by_seeds) == vision.nums["seeds"] <= MAX_ASKED
    assert costs.startswith("About 1.0 h by bench plan: ")
    assert costs.endswith(f"bench ablate vision_recipe --seeds {vision.nums['seeds']} --seed 3")
    assert sum(int(text.partition(")")[0]) for text in left.split("(")[1:]) == len(vision.needs) - len(by_seeds)


def test_the_time_is_that_of_the_plan_of_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(RESULTS / VISION, tmp_path / "results" / VISION)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("bench.measure.environment.resolve_device", lambda _: "cpu")
    code, out, err = answered(("ablate", "vision_recipe", "--power", "--json"), capsys)
    data = json.loads(out)
    assert (code, err) == (0, f"spreads from: {VISION}\n")
    _, planned, _ = answered((*data["command"].split()[1:], "--dry-run", "--json"), capsys)
    assert data["estimated_s"] == pytest.approx(json.loads(planned)["estimated_s"])


def test_the_tables_fit_with_every_column(
    vision: PowerAnalysis, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    show_power(vision, 3600.0, as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= WIDTH
    assert not [line for line in lines if "left out" in line]
    assert lines[0] == "added to the basic recipe: against basic"
    (teacher,) = [line for line in lines if line.startswith("convolutional   ") and "supported" in line]
    assert teacher.split()[1:] == ["+0.034", "±", "0.033", ">", "0", "supported", "5", "seeds", "never"]


def test_json_has_what_the_table_has(vision: PowerAnalysis) -> None:
    data: dict[str, Any] = json.loads(json.dumps(power_json(vision, 3600.0), allow_nan=False))
    assert (data["runs"], data["seeds"], len(data["predictions"])) == ([VISION], vision.nums["seeds"], 19)
    stem = data["predictions"][0]
    assert (stem["about"], stem["bounds"], stem["unit"], stem["num"]) == ("convolutional stem against basic", [0.02, None], "seeds", 3)
    assert (stem["needed"], stem["reason"]) == (None, "too near the margin")
    assert stem["half_width"] == pytest.approx((stem["high"] - stem["low"]) / 2)


def test_each_part_comes_from_the_newest_run_that_measured_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (COPY, COST, OLDER_COST):
        shutil.copytree(RESULTS / name, tmp_path / "results" / name)
    monkeypatch.chdir(tmp_path)
    folders = full_runs_of("escape")
    assert [folder.name for folder in folders] == [COPY, COST, OLDER_COST]
    found = power_analysis("escape", [study(read_run(folder)) for folder in folders])
    assert found.runs == (COPY, COST)
    by_part = {need.prediction.part: {n.unit for n in found.needs if n.prediction.part == need.prediction.part} for need in found.needs}
    assert by_part == {"cost against n": {"rounds", ""}, "copy from n / 2 tokens away": {"seeds"}}
    assert len(found.needs) == 21


def test_quick_runs_and_unreadable_plans_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    plan = {"name": "scale", "command": "bench ablate scale", "created": "2026-11-21"}
    for name, data in {
        "quick": {**plan, "settings": {"quick": True}},
        "odd": plan,
        "other": {**plan, "name": "text", "settings": {}},
    }.items():
        (tmp_path / "results" / name).mkdir(parents=True)
        write_json(tmp_path / "results" / name / PLAN, data)
    with pytest.raises(RequestError, match=r"no full run of scale below results/") as wrong:
        full_runs_of("scale")
    assert wrong.value.hint == "measure it first: bench ablate scale"


def test_a_run_without_predictions_gets_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(RESULTS / "2026-11-23_cpu_explicit_4097", tmp_path / "results" / "run")
    monkeypatch.chdir(tmp_path)
    code, out, err = answered(("ablate", "sequence_length", "--power"), capsys)
    assert (code, out) == (2, "")
    assert err.splitlines() == [
        "error: results/run has no prediction that seeds or rounds decide",
        "hint: see its verdicts: bench report results/run",
    ]


def test_nothing_more_to_measure_names_no_command(vision: PowerAnalysis) -> None:
    enough = dataclasses.replace(vision, proposed={})
    assert enough.command == ""
    assert len(answer(enough, 0.0)) == 2
