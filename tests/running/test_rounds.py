"""Pilots, then rounds of whole timing groups: what is run, in which order, and what runs again after an interrupt, a failure or unsteady times."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.analysis.study import num_missing
from bench.planning.jobs import RETRIES, jobs, missing_jobs
from bench.reading.store import read_records, read_run
from bench.reading.table import rows_of
from bench.running import runner
from bench.running.executors import inline
from bench.running.runner import execute
from bench.running.writer import CORRUPT, RecordWriter
from bench.spec import LATENCY, MEASURED, PILOT, Job, Outcome, Plan, Record, Settings
from tests.answered import Answer
from tests.fake_executor import Silent, measured, recorded
from tests.processes import unpacked_records
from tests.running.small_plan import small_plan

ROUNDS = 3
PER_ROUND = 4
"""Three cells of one length, and the control."""


def planned(**flags: str) -> Plan:
    return small_plan(Settings(rounds=ROUNDS), **{"models": "gmlp,vit,transformer", **flags})


class Machine:
    """Jobs that end as `how` says. Members of a group share the moment of their start, which no other batch has."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.how: Callable[[Job], Outcome] = measured
        self.batches: list[tuple[Job, ...]] = []
        monkeypatch.setattr(inline.Executor, "run", lambda _, job: self._run((job,))[0])
        monkeypatch.setattr(inline.Executor, "run_group", lambda _, batch: self._run(batch))

    def _run(self, batch: tuple[Job, ...]) -> list[Outcome]:
        self.batches.append(batch)
        return [dataclasses.replace(self.how(job), started_at=f"batch {len(self.batches)}") for job in batch]

    def shape(self) -> list[tuple[str, int, int]]:
        """Metric, round and size of every batch; then none."""
        found = [(batch[0].metric, batch[0].repeat, len(batch)) for batch in self.batches]
        self.batches.clear()
        return found


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "mine"


def run(plan: Plan, folder: Path, *retry: str) -> runner.RunResult:
    return execute(plan, folder, Silent(), executor="inline", retry=retry)


def model_of(job: Job) -> str:
    return job.cell.model.name


def ending(model: str, status: str, metric: str = LATENCY) -> Callable[[Job], Outcome]:
    """One model's jobs of a metric end so; all others go well."""
    return lambda job: Outcome(status=status, reason="planted") if (model_of(job), job.metric) == (model, metric) else measured(job)


PILOTS = [(PILOT, 0, 1)] * 3
WHOLE_ROUNDS = [(LATENCY, r, PER_ROUND) for r in range(ROUNDS)]


def test_pilots_come_first_and_are_discarded(machine: Machine, folder: Path) -> None:
    machine.how = lambda job: measured(job, 50.0 if job.metric == PILOT else 2.0)
    result = run(planned(metrics="params,latency"), folder)
    assert result.complete
    assert machine.shape() == [*[("params", 0, 1)] * 3, *PILOTS, *WHOLE_ROUNDS]
    rows = rows_of(result.stored)
    assert rows["latency_ms"].tolist() == pytest.approx([2.0] * 3)
    assert not [column for column in rows.columns if "pilot" in column or column in ("call_s", "peak_bytes")]


def interrupted(plan: Plan, folder: Path, machine: Machine, num_records: int) -> tuple[Record, ...]:
    """The records of a run that was interrupted before it wrote one more."""
    append = RecordWriter.append

    def counted(writer: RecordWriter, record: Record) -> None:
        if len(writer.records.read()) == num_records:
            raise KeyboardInterrupt
        append(writer, record)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RecordWriter, "append", counted)
        assert not run(plan, folder).complete
    machine.batches.clear()
    found = read_run(folder).records
    assert len(found) == num_records
    return found


def test_an_interrupt_between_pilots_and_rounds_keeps_the_pilots(machine: Machine, folder: Path) -> None:
    before = interrupted(planned(), folder, machine, 3)
    assert num_missing(read_run(folder)) == ROUNDS * PER_ROUND
    after = run(planned(), folder).stored.records
    assert machine.shape() == WHOLE_ROUNDS
    assert after[:3] == before


def test_a_batch_that_was_written_in_part_runs_again_as_a_whole(machine: Machine, folder: Path) -> None:
    """Its times were taken together, or not at all; the new ones take the place of the old."""
    before = interrupted(planned(), folder, machine, 3 + PER_ROUND + 1)
    result = run(planned(), folder)
    assert machine.shape() == WHOLE_ROUNDS[1:]
    records = result.stored.records
    assert len({record.key for record in records}) == len(records) == 3 + ROUNDS * PER_ROUND
    assert records[: 3 + PER_ROUND] == before[: 3 + PER_ROUND]
    starts = {r: {record.outcome.started_at for record in records if record.group and record.repeat == r} for r in range(ROUNDS)}
    assert [len(found) for found in starts.values()] == [1] * ROUNDS
    assert rows_of(result.stored)["num_rounds"].tolist() == [ROUNDS] * 3


def test_a_retry_that_was_killed_while_it_was_written_is_repeated(machine: Machine, folder: Path) -> None:
    """All have an outcome, but of two executions: no ratio between them would be paired."""
    plan = planned()
    machine.how = ending("vit", "killed")
    run(plan, folder)
    records = list(read_run(folder).records)
    machine.how = measured
    machine.batches.clear()
    mended = [
        recorded(job, dataclasses.replace(measured(job), started_at="later")) for job in jobs(plan, records) if model_of(job) == "vit"
    ]
    by_key = {
        record.key: record for record in (*records, *(record for record in mended if record.metric == LATENCY and record.repeat == 1))
    }
    missing = list(missing_jobs(plan, list(by_key.values())))
    assert Counter(job.repeat for job in missing) == {1: PER_ROUND}


def test_a_failed_job_without_a_group_is_run_again_and_its_new_outcome_stands(machine: Machine, folder: Path) -> None:
    plan = planned(seq="17,18", metrics="params")
    machine.how = ending("vit", "failed", "params")
    before = run(plan, folder).stored.records
    machine.batches.clear()
    machine.how = measured
    mended = run(plan, folder, "failed")
    assert {(model_of(job), job.metric) for (job,) in machine.batches} == {("vit", "params")}
    assert mended.num_failed == 0
    after = read_run(folder).records
    assert {record.key for record in after} == {record.key for record in before}
    assert [record for record in before if record.outcome.status == MEASURED] == [record for record in after if record in before]
    assert unpacked_records(folder).read_bytes().count(b"\n") == len(after) + 2  # the failures stay in the file


def test_corrupt_lines_are_put_aside_and_measured_again(machine: Machine, folder: Path, answer: Answer) -> None:
    plan = planned(metrics="params")
    run(plan, folder)
    path = unpacked_records(folder)
    whole, lines = read_records(path), path.read_bytes().split(b"\n")
    lines[1] = lines[1].replace(b"measured", b"measureb")
    path.write_bytes(b"\n".join(lines))
    code, _, err = answer("run --resume", folder)
    assert code == 2
    assert "line 2, is corrupt" in " ".join(err.split())
    assert "--retry corrupt" in " ".join(err.split())
    machine.batches.clear()
    run(plan, folder, "corrupt")
    assert len(machine.batches) == 1
    assert (folder / CORRUPT).read_bytes() == lines[1] + b"\n"
    found = read_records(path)
    assert found[:-1] == [whole[0], *whole[2:]]
    assert found[-1].key == whole[1].key


def test_an_unknown_retry_is_refused(answer: Answer) -> None:
    code, _, err = answer("run --resume x --retry failed,shaky")
    assert code == 2
    assert "Traceback" not in err
    assert any(name in err for name in RETRIES)


def test_failures_are_retried_beside_their_whole_group(machine: Machine, folder: Path) -> None:
    plan = planned(seq="17,18")
    machine.how = lambda job: Outcome(status="killed") if (job.repeat, model_of(job), job.group[-2:]) == (1, "vit", "17") else measured(job)
    assert run(plan, folder).num_failed >= 1
    machine.shape()
    machine.how = measured
    assert run(plan, folder).stored.records == read_run(folder).records
    assert machine.shape() == []
    mended = run(plan, folder, "failed")
    (batch,) = machine.batches
    assert {(job.repeat, job.group[-2:]) for job in batch} == {(1, "17")}
    assert {model_of(job) for job in batch} == {"gmlp", "vit", "transformer"}
    assert mended.num_failed == 0
    of_batch = [record for record in mended.stored.records if record.key in {job.key for job in batch}]
    assert len({record.outcome.started_at for record in of_batch}) == 1


def test_a_pilot_without_memory_gives_its_row_that_status_and_leaves_the_group_to_the_others(machine: Machine, folder: Path) -> None:
    machine.how = ending("vit", "out_of_memory", PILOT)
    result = run(planned(), folder)
    assert result.complete
    rows = rows_of(result.stored).set_index("model")
    assert (rows.loc["vit", "status"], rows.loc["vit", "reason"]) == ("out_of_memory", "pilot: planted")
    assert rows.loc[["gmlp", "transformer"], "status"].tolist() == ["measured"] * 2
    assert rows["num_rounds"].fillna(0).to_dict() == {"gmlp": ROUNDS, "vit": 0, "transformer": ROUNDS}
    assert not [job for batch in machine.batches for job in batch if job.group and model_of(job) == "vit"]
    assert num_missing(result.stored) == 0


def test_a_pilot_that_failed_is_retried_and_its_group_measured_anew(machine: Machine, folder: Path) -> None:
    plan = planned()
    machine.how = ending("gmlp", "failed", PILOT)
    run(plan, folder)
    machine.shape()
    machine.how = measured
    mended = run(plan, folder, "failed")
    assert [(metric, repeat) for metric, repeat, _ in machine.shape()] == [(PILOT, 0), *((LATENCY, r) for r in range(ROUNDS))]
    assert mended.num_failed == 0
    assert rows_of(mended.stored)["num_rounds"].tolist() == [ROUNDS] * 3


def test_a_hopeless_member_is_left_out_of_later_rounds(machine: Machine, folder: Path) -> None:
    plan = planned()
    machine.how = ending("gmlp", "timed_out")
    result = run(plan, folder)
    tried = Counter((model_of(job), job.control) for batch in machine.batches for job in batch if job.group)
    assert {found for (model, _), found in tried.items() if model == "gmlp"} == {1}
    assert {found for (model, _), found in tried.items() if model != "gmlp"} == {ROUNDS}
    assert result.complete
    assert num_missing(result.stored) == 0
    assert rows_of(result.stored).set_index("model").loc["gmlp", "status"] == "timed_out"
