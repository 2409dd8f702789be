"""The program itself: its start, planning, records, tables and reports, each beside what Python, pandas or the disk cost here and now."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

from bench.commands.plan import plan_of
from bench.planning.budget import PARAMS_TOLERANCE, Match, Target, match
from bench.planning.fields import read
from bench.planning.jobs import estimated_seconds, jobs
from bench.planning.request import Request
from bench.planning.sizing import resolve_models
from bench.reading.table import rows_of
from bench.running.writer import RecordWriter, line_of
from bench.spec import ModelSpec
from models.layers.shape import Shape
from tests.benchmarks.conftest import Against, import_pandas, loop, run_python, wall_seconds
from tests.benchmarks.made_run import made_run, plan_of_rows, record_of
from tests.requested import parse_request

BUDGET = 1_000_000
NUM_APPENDED = 50


def test_start(against: Against) -> None:
    against("bench --help / python", lambda: run_python("-m", "bench", "--help"), lambda: run_python("-c", "pass"), rounds=10)


def test_budget_search(against: Against) -> None:
    """At another length each time, so that nothing is there from the search before."""
    lengths = itertools.count(257)
    target = Target(measure="params", value=BUDGET, tolerance=PARAMS_TOLERANCE)

    def search() -> None:
        shape = Shape(seq_len=next(lengths), width=8, depth=6, heads=1, ffn_width=16)
        assert isinstance(match(ModelSpec(name="gmlp", family="gmlp", shape=shape), target), Match)

    against("budget search / loop", search, loop, rounds=10)


def test_many_budget_searches(against: Against, num_rows: int) -> None:
    """Three families, 24 lengths and, of 10,000 searches, 139 budgets, no two searches alike; each round at a depth of its own, and from nothing."""
    depths = itertools.count(6)
    budgets = [str(round(100_000 * 400 ** (i / 138))) for i in range(139)]

    def search() -> None:
        request = parse_request(
            models="gmlp,vit,transformer",
            seq=",".join(str(n * n + 1) for n in range(4, 28)),
            params=",".join(budgets[: num_rows // 72 + 1]),
            depth=str(next(depths)),
        )
        assert len(list(resolve_models(request))) >= num_rows

    against("10,000 budget searches / import pandas", search, import_pandas, rounds=3)


def test_plan(against: Against, num_rows: int) -> None:
    """What `bench plan` works out: sizes for sixty combinations of model, length and budget, by all that a workload can be, and the time."""
    batches = ",".join(str(2**i) for i in range(9 if num_rows >= 10_000 else 1))
    request = read(
        Request,
        {
            "models": "gmlp,vit,transformer",
            "seq": "17,65,197,257,1025",
            "params": "250k,1M,4M,16M",
            "phase": "infer,train",
            "dtype": "fp32,bf16,bf16-autocast",
            "engine": "eager,compile",
            "attention": "auto,math",
            "batch": batches,
            "device": "cpu",
        },
    )

    def plan() -> None:
        found = plan_of(request)
        assert len(found.cells) >= num_rows
        assert estimated_seconds(found) > 0

    against("plan of 10,000 cells / import pandas", plan, import_pandas)


def test_record_append(against: Against, tmp_path: Path) -> None:
    plan = plan_of_rows(1)
    records = [record_of(job, plan.cells[0]) for job in jobs(plan) if job.cell == plan.cells[0].cell]
    lines = [line_of(record) for record in records]

    def append() -> None:
        with RecordWriter(tmp_path) as writer:
            for place in range(NUM_APPENDED):
                writer.append(records[place % len(records)])

    def write() -> None:
        with open(tmp_path / "plain", "ab", buffering=0) as file:
            for place in range(NUM_APPENDED):
                file.write(lines[place % len(lines)])
                os.fsync(file.fileno())

    against("record append / fsync", append, write, rounds=10, clock=wall_seconds)


def test_table(against: Against, tmp_path: Path, num_rows: int) -> None:
    run = made_run(tmp_path, num_rows)

    def table() -> None:
        assert len(rows_of(run)) >= num_rows

    against("table of 10,000 rows / loop", table, loop, rounds=2)


def test_report(against: Against, tmp_path: Path, num_rows: int) -> None:
    """The whole command, from the stored records to tables, page and figures."""
    made_run(tmp_path / "run", num_rows)
    folder = tmp_path / "report"
    against(
        "report of 10,000 rows / import pandas",
        lambda: run_python("-m", "bench", "report", str(tmp_path / "run"), "--out", str(folder)),
        import_pandas,
        rounds=1,
    )
    assert (folder / "report.html").stat().st_size > num_rows
