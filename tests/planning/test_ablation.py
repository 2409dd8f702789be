"""Every question in ablations/ can be planned on every device, and its predictions judged; the listing names the run that answers each best."""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench import catalog
from bench.contracts.package import check_question
from bench.files import pack, packed_path
from bench.peers.names import LIBRARIES
from bench.planning.ablation import ablation_of, plan_ablation
from bench.planning.check import check_plan
from bench.planning.request import Request
from bench.questions import ONE_INTERVAL, OWN_SPREADS, Grid
from bench.reading.store import parse_plan
from bench.report.last_runs import cost_of, listing
from bench.running.writer import start_run
from bench.serialize import to_json
from bench.spec import Plan, RequestError
from tests.answered import Answer
from tests.requested import parse_request

NAMES = catalog.names("ablations")
CPU, CUDA, QUICK = "cpu", "cuda", "quick"
KINDS = (CPU, CUDA, QUICK)
SLOW = {(CUDA, name) for name in NAMES} | {(CPU, "peers")}
"""Plans that take seconds: other people's models are built to be counted."""
over_plans = pytest.mark.parametrize(
    ("kind", "name"),
    [pytest.param(*pair, marks=pytest.mark.slow) if pair in SLOW else pair for pair in itertools.product(KINDS, NAMES)],
)


def grids_of(name: str, kind: str) -> tuple[Grid, ...]:
    found: tuple[Grid, ...] = getattr(ablation_of(name), kind)
    return found


@functools.cache
def plan_of(name: str, kind: str) -> Plan:
    """As on a machine that has every data set."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bench.planning.ablation.require_data", lambda _: None)
        return plan_ablation(name, Request(quick=kind == QUICK), CUDA if kind == CUDA else CPU, command="")


def named(*models: str) -> set[str]:
    """Their names as a plan writes them."""
    return {model.name for text in models for model in parse_request(models=text, seq="16", params="1M").models}


@over_plans
def test_every_grid_is_feasible(name: str, kind: str) -> None:
    """No arm is left without a cell unless it is named among the skipped; on a CPU nothing is skipped at all."""
    plan, grids = plan_of(name, kind), grids_of(name, kind)
    assert [part.name for part in plan.parts] == [grid.name for grid in grids]
    assert len({grid.name for grid in grids}) == len(grids)
    skipped = {skipped.model for skipped in plan.skipped}
    for part, grid in zip(plan.parts, grids, strict=True):
        missing = {arm.name for arm in grid.arms} - {arm.name for arm in part.arms}
        assert named(*(arm.flags.get("models", grid.flags.get("models", "")) for arm in grid.arms if arm.name in missing)) <= skipped
        assert part.baseline in {arm.name for arm in part.arms} or not grid.arms
        assert set(part.cells) == {cell for arm in part.arms for cell in arm.cells} or not grid.arms
    if kind != CUDA:
        allowed = ("the same cell", *(f"{library} is not installed" for library in LIBRARIES if importlib.util.find_spec(library) is None))
        assert [found for found in plan.skipped if not found.reason.startswith(allowed)] == []
    check_plan(plan, name)
    assert parse_plan(json.loads(json.dumps(to_json(plan))), Path(name)) == plan


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow) if (CPU, name) in SLOW else name for name in NAMES])
def test_every_prediction_about_a_cpu_can_be_judged(name: str) -> None:
    """With every peer installed; what is predicted is measured for both arms at that length."""
    plan, grids = plan_of(name, CPU), {grid.name: grid for grid in grids_of(name, CPU)}
    if any("is not installed" in skipped.reason for skipped in plan.skipped):
        pytest.skip("a peer is not installed")
    lengths = {p.cell.cell_id: p.cell.model.shape.seq_len for p in plan.cells}
    parts = {part.name: part for part in plan.parts}
    for prediction in (found for found in ablation_of(name).predictions if found.device != CUDA):
        part, metrics = parts[prediction.part], grids[prediction.part].flags["metrics"].split(",")
        pair = {prediction.arm} if prediction.is_about_solving else {prediction.arm, prediction.against or part.baseline}
        compared = [{lengths[cell] for cell in arm.cells} for arm in part.arms if arm.name in pair]
        assert len(compared) == len(pair) == 2 - prediction.is_about_solving
        assert all(prediction.seq_len in (None, *found) for found in compared)
        assert any(prediction.measure in catalog.load("metrics", metric).COLUMNS for metric in metrics)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "sequence_length"])
def test_every_question_predicts_and_gives_reasons(name: str) -> None:
    """The claims on quadratic cost are what sequence_length predicts."""
    predictions = ablation_of(name).predictions
    assert len(set(predictions)) == len(predictions) > 0
    assert all(prediction.because for prediction in predictions)
    assert all(prediction.by for prediction in predictions if prediction.expected == "equal")


@pytest.mark.parametrize("name", NAMES)
def test_a_question_reworded_is_the_same_work(name: str) -> None:
    plan = plan_of(name, QUICK)
    assert plan.question is not None
    assert (plan.question.seed_spread, plan.question.interval) == (OWN_SPREADS, ONE_INTERVAL)  # the method stands before the data
    question = dataclasses.replace(plan.question, text="Why?", statement="Otherwise.", predictions=())
    assert dataclasses.replace(plan, question=question).plan_id == plan.plan_id
    other = dataclasses.replace(plan.parts[0], arms=(), name="other")
    assert dataclasses.replace(plan, parts=(other, *plan.parts[1:])).plan_id != plan.plan_id


def test_a_quick_run_leaves_out_what_has_no_data_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BENCH_DATA", raising=False)
    plan = plan_ablation("text", Request(quick=True), CPU, command="")
    left = [grid for grid in grids_of("text", QUICK) if grid.name not in {part.name for part in plan.parts}]
    assert left
    assert {skipped.model for skipped in plan.skipped} == named(*(arm.flags["models"] for grid in left for arm in grid.arms))
    reasons = ("needs a folder with data sets; add --data-root DIR", "needs the library tokenizers")
    assert all(any(reason in skipped.reason for reason in reasons) for skipped in plan.skipped)


def test_where_every_grid_lacks_its_data_the_reason_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(task: str) -> None:
        raise RequestError(f"task {task} needs a folder with data sets", "add --data-root DIR")

    monkeypatch.setattr("bench.planning.ablation.require_data", absent)
    with pytest.raises(RequestError, match="needs a folder with data sets"):
        plan_ablation("scale", Request(quick=True), CPU, command="")


@pytest.mark.parametrize("name", NAMES)
def test_every_question_says_what_it_asks_predicts_and_costs(name: str) -> None:
    check_question(name)
    assert "CPU" in cost_of(name)


def test_what_the_user_chooses_goes_before_the_own_settings() -> None:
    own = plan_ablation("architecture_mode", Request(), "cpu", command="").settings
    chosen = plan_ablation("architecture_mode", Request(rounds=4, seeds=2, threads=1), "cpu", command="").settings
    quick = plan_of("architecture_mode", QUICK).settings
    ablation = ablation_of("architecture_mode")
    assert (own.rounds, own.seeds, own.sample_s) == (ablation.rounds, ablation.seeds, ablation.sample_s)
    assert (chosen.rounds, chosen.seeds, chosen.threads) == (4, 2, 1)
    assert (quick.rounds, quick.quick) == (5, True)


def test_a_question_asked_of_a_gpu_has_its_time_limit() -> None:
    assert (plan_of("scale", CPU).settings.limit_s, plan_of("scale", CUDA).settings.limit_s) == (60, 180)


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("", "no question is named"),
        ("sequence_lenght", "did you mean sequence_length?"),
        ("headline --quick --seeds 2", "--seeds is for training, but headline trains nothing here"),
        ("headline --quick --save-weights", "--save-weights is for training, but headline trains nothing here"),
        ("scale --all", "--all answers every question, so the question scale cannot be added"),
        ("--all --out x", "--all answers every question, so --out cannot be added"),
    ],
)
def test_a_wrong_question_is_one_line(typed: str, message: str, answer: Answer) -> None:
    code, out, err = answer(f"ablate {typed}")
    assert code == 2
    assert message in " ".join(err.split())
    assert [line.partition(":")[0] for line in err.splitlines()] == ["error", "hint"]
    assert not out


def test_all_plans_are_shown_or_one_document(in_tmp: Path, monkeypatch: pytest.MonkeyPatch, answer: Answer) -> None:
    monkeypatch.setattr("bench.planning.ablation.plan_ablation", lambda name, *_: plan_of(name, QUICK))
    code, _, err = answer("ablate --all --dry-run --quick --device cpu")
    assert code == 0
    assert [line.partition(": ")[2] for line in err.splitlines() if f" of {len(NAMES)}: " in line] == list(NAMES)
    code, out, _ = answer("ablate --all --dry-run --quick --json --device cpu")
    assert code == 0
    found = json.loads(out)
    assert [entry["plan"]["name"] for entry in found] == list(NAMES)
    assert all(entry["estimated_s"] > 0 for entry in found)
    assert not list(in_tmp.iterdir())


@pytest.mark.usefixtures("in_tmp")
def test_what_cannot_be_run_here_is_named_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch, answer: Answer) -> None:
    def planned(name: str, *_: object) -> Plan:
        if name == "text":
            raise RequestError("task trec needs a folder with data sets", "add --data-root DIR")
        return plan_of(name, QUICK)

    monkeypatch.setattr("bench.planning.ablation.plan_ablation", planned)
    code, out, err = answer("ablate --all --dry-run --quick --json --device cpu")
    assert code == 1
    assert "error: text: task trec needs a folder with data sets" in err
    assert [entry["plan"]["name"] for entry in json.loads(out)] == [name for name in NAMES if name != "text"]


LISTING = """
import sys
from bench import cli
try:
    cli.main(["ablate", "--list", "--json"])
finally:
    assert "torch" not in sys.modules, "torch"
"""


def test_the_listing_is_light(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", LISTING], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [entry["name"] for entry in found] == list(NAMES)
    assert all(set(entry) == {"name", "question", "cost", "last"} and entry["question"] and entry["cost"] for entry in found)
    assert {entry["last"] for entry in found} == {None}


def store(name: str, created: str, *, plan: Plan | None = None, is_complete: bool = True, **changes: Any) -> None:
    """A run of the question `scale`, without records."""
    start_run(Path("results") / name, dataclasses.replace(plan or plan_of("scale", CPU), created=created, **changes), {})
    if is_complete:
        written = Path("results") / name / "plan.json"
        packed_path(written).write_bytes(pack(written.read_bytes()))
        written.unlink()


def write(path: str, data: object) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(json.dumps(data))


def last() -> str | None:
    """The run that answers `scale` best, as the listing names it."""
    found: str | None = next(entry["last"] for entry in listing() if entry["name"] == "scale")
    return found


@pytest.mark.usefixtures("in_tmp")
def test_the_listing_prefers_a_run_of_all_parts_to_a_first_look_and_to_a_part() -> None:
    assert {entry["last"] for entry in listing()} == {None}
    store("begun", "04", is_complete=False, command="bench ablate scale")
    assert last() == "results/begun, unfinished"
    store("quick", "01", plan=plan_of("scale", QUICK))
    assert last() == "results/quick, a first look"
    store("whole", "02", command="bench ablate scale")
    store("part", "03", command="bench ablate scale --part 'parameters'")
    assert last() == "results/whole"


@pytest.mark.usefixtures("in_tmp")
def test_the_listing_counts_what_the_last_report_decided() -> None:
    store("first", "02")
    store("second", "03")
    answers = [{"answer": answer} for answer in ("supported", "undecided", "supported", "refuted")]
    write("reports/second/verdicts.json", {"verdicts": [{"answer": "undecided"}], "predictions": answers})
    assert last() == "results/second: 1 refuted, 2 supported, 1 undecided"
    store("third", "04")
    assert last() == "results/second: 1 refuted, 2 supported, 1 undecided"
    Path("reports/second/verdicts.json").write_text("torn")
    assert last() == "results/third"


@pytest.mark.usefixtures("in_tmp")
def test_parts_that_one_report_answers_together_count_as_all_parts() -> None:
    store("whole", "2026", command="bench ablate scale")
    for name in ("one", "two"):
        store(name, "2027", command=f"bench ablate scale --part {name}")
    write("results/notes.json", {"one": {"report": "both"}, "two": {"report": "both"}})
    write("reports/both/verdicts.json", {"predictions": [{"answer": "supported"}]})
    assert last() == "reports/both: 1 supported"


def test_a_question_tunes_learning_rates_where_it_trains_and_not_in_a_first_look() -> None:
    plan = plan_of("escape", CPU)
    assert plan.settings.lr_trials == ablation_of("escape").lr_trials > 0
    assert "tuning" in plan.metrics
    timed = plan_ablation("escape", Request(), CPU, command="", parts=("cost against n",))
    for untuned in (timed, plan_of("escape", QUICK), plan_of("text", CPU)):
        assert untuned.settings.lr_trials == 0
        assert "tuning" not in untuned.metrics
