"""Compare every case of a request in a separate process.

Results are written to disk after each case.
"""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pandas

from bench.files import write_json
from bench.measure.environment import inspect_environment
from bench.operators import COLUMNS, KILLED, UNSUPPORTED, Case, Row, row_of
from bench.operators.request import OperatorRequest
from bench.planning.jobs import TIMED_OUT
from bench.progress import tell
from bench.running.calibrate import measure_ceilings
from bench.running.executors.process import die_with_parent
from bench.running.store import ENVIRONMENT
from bench.running.table import write_table
from bench.spec import MEASURED, Settings

NAME, SAMPLES = "kernels", "samples.jsonl"
SEED = 0
DIED = "the process died during one of the kernels of this case; select fewer with --kernels to find it"
CASE_LIMIT_S = 300.0
HUNG = f"the kernels of this case took longer than {CASE_LIMIT_S:g} s; select fewer with --kernels to find it"
CLEAN = (MEASURED, UNSUPPORTED)
Compare = Callable[[Case, Sequence[str], OperatorRequest], list[Row]]


def run(request: OperatorRequest, folder: Path, compare: Compare | None = None) -> pandas.DataFrame:
    """Compare all cases and return the table; write it after each case.

    Writes table.csv, table.json and table.parquet with the columns `COLUMNS`, samples.jsonl with seconds per call and block, and environment.json
    with the ceilings.

    `compare`: replaces the comparison, for tests.
    """
    found, failures = measure_ceilings(request.device, request.threads, request.dtypes)
    for failure in failures:
        tell(f"ceiling not measured: {failure}")
    ceilings = {ceiling["dtype"]: ceiling["ceiling_flops_per_s"] for ceiling in found}
    facts = inspect_environment(threads=request.threads, device=request.device)
    write_json(folder / ENVIRONMENT, {**facts, "ceilings": found})
    cases, rows = tuple(request.cases()), pandas.DataFrame(columns=COLUMNS)
    with Worker(request) as worker:
        for place, case in enumerate(cases, start=1):
            tell(f"{place} of {len(cases)}: {case_text(case)}")
            compared = [with_ceiling(row, ceilings[case.dtype]) for row in worker.compare(case, compare or compare_here)]
            with open(folder / SAMPLES, "a") as samples:
                samples.writelines(json.dumps(dataclasses.asdict(row)) + "\n" for row in compared)
            rows = pandas.DataFrame([*rows.to_dict("records"), *map(_columns, compared)], columns=COLUMNS)
            write_table(rows, folder)
    return rows


def case_text(case: Case) -> str:
    width = f"{case.heads} x {case.head_width}" if case.head_width else str(case.channels)
    return f"{case.operator}, {case.phase}, n = {case.n}, batch {case.batch}, {width} channels, {case.dtype}"


def with_ceiling(row: Row, flops_per_s: float | None) -> Row:
    """Add the device's ceiling and the row's share of it.

    The ceiling is the best matrix product in the row's dtype.
    """
    share = row.tflops_per_s * 1e12 / flops_per_s if row.tflops_per_s and flops_per_s else None
    return dataclasses.replace(row, ceiling_flops_per_s=flops_per_s, ceiling_share=share)


def compare_here(case: Case, kernels: Sequence[str], request: OperatorRequest) -> list[Row]:
    from bench.operators.compare import compare

    return compare(case, kernels, blocks=request.blocks, cold=request.cold, seed=SEED)


class Worker:
    """A process that compares one case after another.

    If it dies, or a case takes longer than `CASE_LIMIT_S`, only that case's rows are lost. The next case then gets a fresh process. So does the
    case after a failed kernel, which may have left the device unusable.
    """

    def __init__(self, request: OperatorRequest) -> None:
        self._request = request
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._stop()

    def compare(self, case: Case, compare: Compare) -> list[Row]:
        kernels = self._request.kernels[case.operator]
        if self._pool is None:
            arguments = (case.device, case.dtype, self._request.threads)
            self._pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), _prepare, arguments)
        try:
            rows = self._pool.submit(compare, case, kernels, self._request).result(timeout=CASE_LIMIT_S)
        except BrokenProcessPool:
            rows = [row_of(case, kernel, KILLED, DIED) for kernel in kernels]
        except TimeoutError:
            rows = [row_of(case, kernel, TIMED_OUT, HUNG) for kernel in kernels]
            for process in self._pool._processes.values():  # shutdown would wait for the running case
                process.kill()
        if any(row.status not in CLEAN for row in rows):
            self._stop()
        return rows

    def _stop(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None


def _prepare(device: str, dtype: str, threads: int) -> None:
    """Set threads, allocator and a memory limit, as for any job."""
    from bench.metrics.ceiling import calibration_job
    from bench.running.worker import prepare_process

    die_with_parent()
    prepare_process(calibration_job(device, dtype, Settings(threads=threads)))


def _columns(row: Row) -> dict[str, Any]:
    return {name: getattr(row, name) for name in COLUMNS}
