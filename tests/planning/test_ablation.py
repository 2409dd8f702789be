"""Every question in ablations/ can be planned on every device, and a cell that several of its parts ask for is measured once."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import importlib.util
import itertools
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from bench import catalog, cli
from bench.peers.names import LIBRARIES
from bench.planning.ablation import ablation_of, plan_ablation
from bench.planning.check import check_plan
from bench.planning.jobs import jobs
from bench.planning.request import Request
from bench.questions import MEASURES, ONE_INTERVAL, OWN_SPREADS, Grid, Prediction
from bench.reading.store import parse_plan
from bench.report.last_runs import cost_of, listing
from bench.running.folder import choose_folder
from bench.running.writer import start_run
from bench.serialize import to_json
from bench.spec import Plan, RequestError
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


def test_the_questions_are_these() -> None:
    assert set(NAMES) == {
        *("architecture_mode", "attention", "escape", "gpu", "headline", "normalisation", "peers", "positions", "precision", "scale"),
        *("sequence_length", "spatial_gating", "text", "token_mixing", "vision_recipe"),
    }


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


def reads(prediction: Prediction) -> str:
    """The metric that measures what is predicted."""
    columns = {metric: catalog.load("metrics", metric).COLUMNS for metric in catalog.names("metrics") if metric != "tuning"}
    return next(metric for metric, found in columns.items() if prediction.measure in found)


def lacks(prediction: Prediction, plan: Plan, grid: Grid) -> str:
    """What the plan's part lacks to judge the prediction; "" where nothing."""
    part = next(part for part in plan.parts if part.name == prediction.part)
    lengths = {p.cell.cell_id: p.cell.model.shape.seq_len for p in plan.cells}
    arms = {arm.name: {lengths[cell] for cell in arm.cells} for arm in part.arms}
    pair = [prediction.arm, prediction.against or part.baseline]
    if strays := [arm for arm in pair if arm not in arms]:
        return f"arm {strays[0]}"
    if len(set(pair)) < len(pair):
        return "another arm to compare with"
    if prediction.seq_len is not None and any(prediction.seq_len not in arms[arm] for arm in pair):
        return f"length {prediction.seq_len}"
    return "" if reads(prediction) in grid.flags.get("metrics", "").split(",") else f"metric {reads(prediction)}"


@over_plans
def test_predictions_are_about_what_is_measured(name: str, kind: str) -> None:
    """On a CPU with every peer installed all of them; elsewhere those whose part is there, but for arms and lengths that are left out."""
    grids = {grid.name: grid for grid in grids_of(name, kind)}
    ablation = ablation_of(name)
    assert {prediction.measure for prediction in ablation.predictions} <= set(MEASURES)
    here = [p for p in ablation.predictions if p.device in ("", CUDA if kind == CUDA else CPU)]
    found = {p: lacks(p, plan_of(name, kind), grids[p.part]) for p in here if p.part in grids}
    if kind == CPU and not any("is not installed" in skipped.reason for skipped in plan_of(name, kind).skipped):
        assert set(found) == set(here)
        assert [lack for lack in found.values() if lack] == []
    else:
        known = {arm.name for grid in ablation.cpu for arm in grid.arms}
        assert [
            (p, lack) for p, lack in found.items() if lack and not lack.startswith("length") and lack.removeprefix("arm ") not in known
        ] == []


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


def test_a_run_is_continued_after_its_question_was_reworded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    plan = plan_of("positions", QUICK)
    assert plan.question is not None
    start_run(Path("results/2026-01-02_cpu_positions"), plan, {})
    reworded = dataclasses.replace(plan, question=dataclasses.replace(plan.question, text="Which of them?"))
    folder = choose_folder(reworded, None, datetime.date(2026, 1, 3)).folder
    assert folder == Path("results/2026-01-02_cpu_positions")


def test_own_recipes_are_own_trainings() -> None:
    """Arms that differ in their recipe alone have different cells and different jobs; the baseline's recipe is the plan's."""
    plan = plan_of("vision_recipe", QUICK)
    part = plan.parts[0]
    work = {planned.cell.cell_id: planned.cell.workload for planned in plan.cells}
    recipes = {arm.name: work[cell].recipe for arm in part.arms for cell in arm.cells}
    assert recipes[part.baseline] is None
    assert len({cell for arm in part.arms for cell in arm.cells}) == sum(len(arm.cells) for arm in part.arms)
    assert sum(recipe is not None for recipe in recipes.values()) >= 5
    trainings = [job for job in jobs(plan) if job.metric == "accuracy"]
    assert len({job.key for job in trainings}) == len(trainings) == len(plan.cells) * plan.settings.seeds
    assert all(job.recipe == (job.cell.workload.recipe or plan.recipe) for job in trainings)


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
    text = catalog.load("ablations", name).__doc__ or ""
    assert catalog.summary("ablations", name).endswith("?")
    assert "Prediction:" in text
    assert "Source:" in text
    assert "CPU" in cost_of(name)


def test_shared_cells_are_planned_once() -> None:
    plan = plan_of("sequence_length", CPU)
    asked = Counter(cell_id for part in plan.parts for cell_id in part.cells)
    assert max(asked.values()) > 1
    assert len(plan.cells) == len({planned.cell.cell_id for planned in plan.cells}) == len(asked)


def test_what_the_user_chooses_goes_before_the_own_settings() -> None:
    own = plan_ablation("architecture_mode", Request(), "cpu", command="").settings
    chosen = plan_ablation("architecture_mode", Request(rounds=4, seeds=2, threads=1), "cpu", command="").settings
    quick = plan_ablation("architecture_mode", Request(quick=True), "cpu", command="").settings
    ablation = ablation_of("architecture_mode")
    assert (own.rounds, own.seeds, own.sample_s) == (ablation.rounds, ablation.seeds, ablation.sample_s)
    assert (chosen.rounds, chosen.seeds, chosen.threads) == (4, 2, 1)
    assert (quick.rounds, quick.quick) == (5, True)


def test_a_question_asked_of_a_gpu_has_its_time_limit() -> None:
    assert (plan_of("scale", CPU).settings.limit_s, plan_of("scale", CUDA).settings.limit_s) == (60, 180)


def test_the_listing_names_the_last_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert {entry["name"]: entry["last"] for entry in listing()} == dict.fromkeys(NAMES)
    plan = plan_ablation("scale", Request(quick=True), "cpu", command="")
    start_run(Path("results/2026-01-02_cpu_x"), plan, {})
    assert {entry["name"]: entry["last"] for entry in listing()}["scale"] == "results/2026-01-02_cpu_x, a first look"
    start_run(Path("results/2026-01-01_cpu_x"), dataclasses.replace(plan_of("scale", CPU), created="2026-01-01"), {})
    assert {entry["name"]: entry["last"] for entry in listing()}["scale"] == "results/2026-01-01_cpu_x"


def test_the_listing_prefers_a_run_of_all_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    plan = plan_of("scale", CPU)
    for day, command in (("02", "bench ablate scale"), ("03", "bench ablate scale --part 'parameters'")):
        start_run(Path(f"results/2026-01-{day}_cpu_scale"), dataclasses.replace(plan, created=day, command=command), {})
    assert {entry["name"]: entry["last"] for entry in listing()}["scale"] == "results/2026-01-02_cpu_scale"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("ablate",), "no question is named"),
        (("ablate", "sequence_lenght"), "did you mean sequence_length?"),
        (("ablate", "headline", "--quick", "--seeds", "2"), "--seeds is for training, but headline trains nothing here"),
        (("ablate", "sequence_length", "--rounds", "many"), "wrong value of --rounds"),
        (("ablate", "scale", "--all"), "--all answers every question, so the question scale cannot be added"),
        (("ablate", "--all", "--out", "x"), "--all answers every question, so --out cannot be added"),
    ],
)
def test_a_wrong_question_is_one_line(arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(list(arguments))
    out, err = capsys.readouterr()
    assert ended.value.code == 2
    assert message in " ".join(err.split())
    assert [line.partition(":")[0] for line in err.splitlines()] == ["error", "hint"]
    assert not out
    assert "Traceback" not in err


def test_a_dry_run_measures_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        cli.main(["ablate", "sequence_length", "--quick", "--dry-run", "--json", "--device", "cpu"])
    assert ended.value.code == 0
    assert json.loads(capsys.readouterr().out)["plan"]["name"] == "sequence_length"
    assert not list(tmp_path.iterdir())


def bench_main(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        cli.main([*arguments])
    return int(ended.value.code or 0)


@pytest.fixture
def _every_data_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder of its own, with every plan made beforehand."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("bench.planning.ablation.plan_ablation", lambda name, *_: plan_of(name, QUICK))


@pytest.mark.usefixtures("_every_data_set")
def test_all_can_be_looked_at_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench_main("ablate", "--all", "--dry-run", "--quick", "--device", "cpu") == 0
    out, err = capsys.readouterr()
    assert [line.partition(": ")[2] for line in err.splitlines() if f" of {len(NAMES)}: " in line] == list(NAMES)
    assert out.count(" configurations, about ") + err.count(" configurations, about ") == len(NAMES)
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("_every_data_set")
def test_all_plans_are_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench_main("ablate", "--all", "--dry-run", "--quick", "--json", "--device", "cpu") == 0
    found = json.loads(capsys.readouterr().out)
    assert [entry["plan"]["name"] for entry in found] == list(NAMES)
    assert all(entry["estimated_s"] > 0 for entry in found)


def test_what_cannot_be_run_here_is_named_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def planned(name: str, *_: object) -> Plan:
        if name == "text":
            raise RequestError("task trec needs a folder with data sets", "add --data-root DIR")
        return plan_of(name, QUICK)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("bench.planning.ablation.plan_ablation", planned)
    assert bench_main("ablate", "--all", "--dry-run", "--quick", "--json", "--device", "cpu") == 1
    out, err = capsys.readouterr()
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


def test_the_listing_counts_what_the_last_report_decided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("2026-01-02_cpu_scale", "2026-01-03_cpu_scale"):
        start_run(Path("results") / name, dataclasses.replace(plan_of("scale", CPU), created=name[:10]), {})
    answers = [{"answer": answer} for answer in ("supported", "undecided", "supported", "refuted")]
    told = Path("reports/2026-01-03_cpu_scale/verdicts.json")
    told.parent.mkdir(parents=True)
    told.write_text(json.dumps({"verdicts": [{"answer": "undecided"}], "predictions": answers}))
    last = {entry["name"]: entry["last"] for entry in listing()}
    assert last["scale"] == "results/2026-01-03_cpu_scale: 1 refuted, 2 supported, 1 undecided"
    start_run(Path("results/2026-01-04_cpu_scale"), dataclasses.replace(plan_of("scale", CPU), created="2026-01-04"), {})
    assert {entry["name"]: entry["last"] for entry in listing()}["scale"] == last["scale"]
    told.write_text("torn")
    assert {entry["name"]: entry["last"] for entry in listing()}["scale"] == "results/2026-01-04_cpu_scale"
    note = {"2026-01-04_cpu_scale": {"superseded_by": "2026-01-02_cpu_scale", "why": "it was wrong"}}
    Path("results/notes.json").write_text(json.dumps(note))
    assert {entry["name"]: entry["last"] for entry in listing()}["scale"] == "results/2026-01-03_cpu_scale"


def test_parts_that_one_report_answers_together_count_as_all_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    plan = plan_of("scale", CPU)
    for name, command in (
        ("whole", "bench ablate scale"),
        ("one", "bench ablate scale --part one"),
        ("two", "bench ablate scale --part two"),
    ):
        start_run(Path("results") / name, dataclasses.replace(plan, created="2026" if name == "whole" else "2027", command=command), {})
    Path("results/notes.json").write_text(json.dumps({"one": {"report": "both"}, "two": {"report": "both"}}))
    told = Path("reports/both/verdicts.json")
    told.parent.mkdir(parents=True)
    told.write_text(json.dumps({"predictions": [{"answer": "supported"}]}))
    assert {entry["name"]: entry["last"] for entry in listing()}["scale"] == "reports/both: 1 supported"


def test_a_run_of_which_a_part_is_superseded_is_still_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("old", "older"):
        start_run(Path("results") / name, dataclasses.replace(plan_of("scale", CPU), created=name), {})
    note = {"superseded_by": "old", "why": "it was wrong"}
    for part, last in (({}, "results/old"), ({"part": "times"}, "results/older")):
        Path("results/notes.json").write_text(json.dumps({"older": {**note, **part}}))
        assert {entry["name"]: entry["last"] for entry in listing()}["scale"] == last


def test_a_question_tunes_learning_rates_where_it_trains_and_not_in_a_first_look() -> None:
    plan = plan_of("escape", CPU)
    assert plan.settings.lr_trials == ablation_of("escape").lr_trials > 0
    assert "tuning" in plan.metrics
    timed = plan_ablation("escape", Request(), CPU, command="", parts=("cost against n",))
    for untuned in (timed, plan_of("escape", QUICK), plan_of("text", CPU)):
        assert untuned.settings.lr_trials == 0
        assert "tuning" not in untuned.metrics
