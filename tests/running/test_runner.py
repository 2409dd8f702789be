"""Where a run goes, when it is continued, and what may not be mixed."""

from __future__ import annotations

import dataclasses
import datetime
from pathlib import Path
from typing import Any

import pytest

from bench.measure import environment
from bench.planning.jobs import jobs
from bench.reading import store
from bench.reading.store import RECORDS, RunRecords, read_run
from bench.running import runner
from bench.running.executors import inline
from bench.running.folder import ChosenFolder, choose_folder, claim_folder, writing_to
from bench.running.writer import RecordWriter, start_run
from bench.spec import Job, Outcome, Plan, RequestError, Settings
from tests.fake_executor import Silent, let_jobs_end, measured
from tests.running.small_plan import small_plan

TODAY = datetime.date(2026, 11, 20)


def place(chosen: ChosenFolder) -> tuple[Path, bool]:
    return chosen.folder, chosen.complete


def planned(**flags: str) -> Plan:
    return small_plan(Settings(rounds=2), **{"seq": "17,18", "metrics": "params", **flags})


def test_a_run_is_named_by_date_device_and_models(in_tmp: Path) -> None:
    plan = planned()
    folder, complete = place(choose_folder(plan, None, TODAY))
    assert (folder, complete) == (Path("results/2026-11-20_cpu_vit"), False)
    runner.execute(plan, folder, Silent(), executor="inline")
    assert place(choose_folder(plan, None, TODAY)) == (Path("results/2026-11-20_cpu_vit-2"), False)
    assert place(choose_folder(plan, folder, TODAY)) == (folder, True)
    assert in_tmp.joinpath(folder).is_dir()


@pytest.mark.usefixtures("in_tmp")
def test_runs_that_start_at_once_have_folders_of_their_own() -> None:
    first, second = (choose_folder(plan, None, TODAY) for plan in (planned(), planned(batch="2")))
    assert first.folder == second.folder
    assert [claim_folder(plan, TODAY).folder.name for plan in (planned(), planned(batch="2"))] == [
        "2026-11-20_cpu_vit",
        "2026-11-20_cpu_vit-2",
    ]


@pytest.mark.usefixtures("in_tmp")
def test_a_folder_that_cannot_be_claimed_is_an_error_and_no_endless_search() -> None:
    Path("results").write_text("a file")
    with pytest.raises(RequestError, match="the run folder results/2026-11-20_cpu_vit"):
        claim_folder(planned(), TODAY)


@pytest.mark.usefixtures("in_tmp")
def test_an_unfinished_run_of_any_day_is_continued_and_only_what_is_missing_is_run() -> None:
    plan = planned()
    folder = choose_folder(plan, None, datetime.date(2026, 11, 1)).folder
    first = jobs(plan)[0]
    facts = environment.inspect_environment(threads=1, device="cpu")
    with writing_to(folder, plan, facts, move_corrupt=False, records=RunRecords(folder), left=lambda: jobs(plan)) as writer:
        writer.append(runner.record_of(first, Outcome(status="measured", values={"params": 1, "params_seq": 0, "params_blocks": 1}), facts))
    assert place(choose_folder(plan, None, TODAY)) == (folder, False)
    progress = Silent()
    result = runner.execute(plan, folder, progress, executor="inline")
    assert result.complete
    assert progress.started == jobs(plan)[1:]
    assert progress.left_s[-1] == 0
    assert len(result.stored.records) == len(jobs(plan))


@pytest.mark.usefixtures("in_tmp")
def test_fast_counts_do_not_shorten_the_time_left_of_slow_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    let_jobs_end(monkeypatch, lambda job: dataclasses.replace(measured(job), duration_s=1e-6 if job.metric == "params" else 5.0))
    progress = Silent()
    runner.execute(planned(metrics="params,latency"), Path("run"), progress, executor="inline")
    assert all(left_s > 0 for left_s in progress.left_s[:-1])
    assert progress.left_s[1] > 0.5 * progress.left_s[0]  # both are counts; all rounds are ahead


@pytest.mark.usefixtures("in_tmp")
def test_another_plan_or_another_machine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, folder = planned(), Path("mine")
    Path("texts.csv").touch()
    with pytest.raises(RequestError, match="is a file"):
        runner.execute(plan, Path("texts.csv"), Silent(), executor="inline")
    runner.execute(plan, folder, Silent(), executor="inline")
    with pytest.raises(RequestError, match="another plan"):
        runner.execute(planned(batch="2"), folder, Silent(), executor="inline")
    with pytest.raises(RequestError, match="another plan"):
        choose_folder(planned(batch="2"), folder, TODAY)
    true_facts = environment.inspect_environment(threads=1, device="cpu")
    monkeypatch.setattr(environment, "inspect_environment", lambda **_: {**true_facts, "cpu_model": "another"})
    with pytest.raises(RequestError, match="another cpu_model"):
        runner.execute(plan, folder, Silent(), executor="inline")


@pytest.mark.usefixtures("in_tmp")
def test_trainings_alone_go_on_elsewhere_and_the_folder_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, folder = planned(seq="5", width="8", depth="1", batch="", task="digits", metrics="params,accuracy"), Path("mine")
    true_facts = {**environment.inspect_environment(threads=1, device="cpu"), "cpu_type": "x"}

    def execute_on(**changes: str) -> runner.RunResult:
        facts = {**true_facts, **changes}
        facts["environment_id"] = environment.environment_id(facts)
        monkeypatch.setattr(environment, "inspect_environment", lambda **_: facts)
        return runner.execute(plan, folder, Silent(), executor="inline")

    let_jobs_end(monkeypatch, measured)
    execute_on()
    assert "continued_on" not in read_run(folder).environment
    for boot in ("one", "one"):
        assert execute_on(cpu_type="y", boot=boot, code_version="newer").complete
    (other,) = read_run(folder).environment["continued_on"]
    assert (other["cpu_type"], other["boot"], other["code_version"]) == ("y", "one", "newer")
    monkeypatch.setattr(runner, "training_versions", lambda _: {"vit": "other"})
    with pytest.raises(RequestError, match="another training_versions"):
        execute_on()


@pytest.mark.usefixtures("in_tmp", "rates")
def test_a_run_moves_once_all_its_times_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, folder = planned(seq="5", width="8", depth="1", task="digits", metrics="latency,accuracy"), Path("mine")
    true_facts = {**environment.inspect_environment(threads=1, device="cpu"), "cpu_type": "x"}

    class Until(Silent):
        def __init__(self, metric: str) -> None:
            super().__init__()
            self.metric = metric

        def starting(self, job: Job) -> None:
            if (job.metric, job.repeat) == (self.metric, 1):
                raise KeyboardInterrupt
            super().starting(job)

    def execute_on(cpu_type: str, progress: Silent, retry: tuple[str, ...] = ()) -> runner.RunResult:
        facts = {**true_facts, "cpu_type": cpu_type, "num_cores": len(cpu_type)}
        facts["environment_id"] = environment.environment_id(facts)
        monkeypatch.setattr(environment, "inspect_environment", lambda **_: facts)
        return runner.execute(plan, folder, progress, executor="inline", retry=retry)

    execute_on("x", Until("latency"))
    with pytest.raises(RequestError, match="another num_cores: 1 then, 3 now"):
        execute_on("yyy", Silent())
    execute_on("x", Until("accuracy"))
    ceilings, load = ceilings_noted(folder), read_run(folder).environment["load_at_end"]
    monkeypatch.setattr(environment, "load", lambda: load + 1)
    assert execute_on("yyy", Silent()).complete
    facts = read_run(folder).environment
    assert (facts["cpu_type"], [one["cpu_type"] for one in facts["continued_on"]]) == ("x", ["yyy"])
    assert (ceilings_noted(folder), facts["load_at_end"]) == (ceilings, load)
    timed = next(record for record in read_run(folder).records if record.metric == "latency")
    with RecordWriter(folder) as writer:
        writer.append(dataclasses.replace(timed, outcome=Outcome(status="failed", reason="planted")))
    with pytest.raises(RequestError, match="another num_cores: 1 then, 3 now"):
        execute_on("yyy", Silent(), retry=("failed",))


def test_unfinished_trainings_are_kept_where_the_user_says(in_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = planned(seq="5", width="8", depth="1", batch="", task="digits", metrics="params,accuracy", models="gmlp")
    seen: list[str] = []
    went_on: list[bool] = []

    def end(job: Job) -> Outcome:
        seen.append(job.scratch)
        if job.recipe:
            state = Path(job.scratch) / job.scratch_name
            went_on.append(state.exists())
            state.parent.mkdir(parents=True, exist_ok=True)
            state.touch()
        return measured(job)

    def end_late(job: Job) -> Outcome:
        return dataclasses.replace(end(job), status="timed_out") if job.recipe else end(job)

    for ending, kept in ((end_late, 1), (end, 0)):
        let_jobs_end(monkeypatch, ending)
        runner.execute(plan, Path("mine"), Silent(), executor="inline", checkpoints=in_tmp / "large", retry=("failed",))
        assert len(list((in_tmp / "large").glob("mine/*"))) == kept
    assert went_on == [False, True, False, False]  # the first seed, again, and the others
    assert set(seen) == {str(in_tmp / "mine" / "checkpoints"), str(in_tmp / "large" / "mine")}
    assert not (in_tmp / "large" / "mine").exists()


def ceilings_noted(folder: Path) -> tuple[Any, ...]:
    """At start and end; `unasked` where nothing was noted."""
    facts = read_run(folder).environment
    return tuple(facts.get(moment, "unasked") for moment in ("ceilings_at_start", "ceilings_at_end"))


@pytest.fixture
def rates(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Rates of the copy that were told so far, one more each time that ceilings are measured; no other job measures anything."""
    told: list[float] = []

    def end(job: Job) -> Outcome:
        if job.cell.model.name != "none":
            return measured(job)
        told.append(1e9 * (len(told) + 1))
        return Outcome(status="measured", values={"ceiling_bytes_per_s": told[-1], "small_product_flops_per_s": 2e9})

    let_jobs_end(monkeypatch, end)
    monkeypatch.setattr(inline.Executor, "MEASURES_HOST", True, raising=False)
    return told


def ceilings_of(rate: float) -> dict[str, float]:
    return {"copy_bytes_per_s": rate, "torch_mm_flops_per_s": 2e9}


@pytest.mark.usefixtures("in_tmp")
def test_a_run_that_goes_on_keeps_the_ceilings_of_its_first_start(rates: list[float]) -> None:
    class Interrupting(Silent):
        def starting(self, job: Job) -> None:
            if self.started:
                raise KeyboardInterrupt
            super().starting(job)

    plan = planned(metrics="latency")
    runner.execute(plan, Path("mine"), Interrupting(), executor="inline")
    assert ceilings_noted(Path("mine")) == (ceilings_of(1e9), "unasked")
    runner.execute(plan, Path("mine"), Silent(), executor="inline")
    assert ceilings_noted(Path("mine")) == (ceilings_of(1e9), ceilings_of(2e9))
    runner.execute(plan, Path("mine"), Silent(), executor="inline", retry=("failed",))
    assert ceilings_noted(Path("mine")) == (ceilings_of(1e9), ceilings_of(3e9))
    assert len(rates) == 3


@pytest.mark.usefixtures("in_tmp")
def test_ceilings_that_cannot_be_measured_fail_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    let_jobs_end(monkeypatch, lambda job: measured(job) if job.cell.model.name != "none" else Outcome(status="failed", reason="planted"))
    assert runner.execute(planned(metrics="latency"), Path("elsewhere"), Silent(), executor="inline").complete
    monkeypatch.setattr(inline.Executor, "MEASURES_HOST", True, raising=False)
    assert runner.execute(planned(metrics="latency"), Path("mine"), Silent(), executor="inline").complete
    assert ceilings_noted(Path("mine")) == ceilings_noted(Path("elsewhere")) == (None, None)


def test_a_hopeless_control_does_not_cancel_the_cell_that_it_doubles(in_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = planned(metrics="latency")

    let_jobs_end(monkeypatch, lambda job: Outcome(status="timed_out" if job.control else "failed", duration_s=1.0))
    records = runner.execute(plan, in_tmp / "mine", Silent(), executor="inline").stored.records
    assert sum(r.control for r in records) == 1
    assert sum(not r.control and r.metric == "latency" for r in records) == 2 * 2


def test_a_record_that_another_process_wrote_just_before_the_lock_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = planned()
    start_run(tmp_path, plan, {})
    record = runner.record_of(jobs(plan)[0], Outcome(status="measured"), {"environment_id": "e", "code_version": "v"})
    records, open_locked = RunRecords(tmp_path), RecordWriter._open_locked
    assert records.read() == ()

    def after_another(writer: RecordWriter) -> Any:
        monkeypatch.undo()
        with RecordWriter(tmp_path) as other:
            other.append(record)
        return open_locked(writer)

    monkeypatch.setattr(RecordWriter, "_open_locked", after_another)
    with RecordWriter(tmp_path, records=records) as writer:
        assert writer.records.read() == (record,)
        writer.append(dataclasses.replace(record, repeat=1))
    assert records.are_current()
    assert records.read() == tuple(store.read_records(tmp_path / RECORDS)) == (record, dataclasses.replace(record, repeat=1))
