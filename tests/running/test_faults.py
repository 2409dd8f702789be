"""Workers that raise, hang, run out of memory or are killed become rows; an interrupted run goes on where it was."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
from pathlib import Path

import pytest
import torch

from bench.analysis.study import num_missing
from bench.errors import is_out_of_memory
from bench.reading.store import read_run
from tests.contracts.made_data import trec
from tests.processes import started, worker_and_server
from tests.specimens import ROOT, SABOTAGE_METRIC, copy_of_the_program, run_bench

SMALL = "--width 16 --depth 1 --batch 1".split()
EXPECTED = {
    17: ("failed", "ValueError: planted failure"),
    18: ("timed_out", "longer than the limit of 3 s"),
    19: ("out_of_memory", "allocate"),
    20: ("killed", "SIGKILL"),
    21: ("failed", "exit code 3"),
    22: ("measured", None),
    23: ("killed", "SIGSEGV"),
    24: ("failed", "survived contains NaN or infinity"),
}


def test_every_fault_becomes_a_row_with_its_status_and_the_rest_goes_on_to_table_and_report(tmp_path: Path) -> None:
    """The one real run of every day: by the command line, each job in a process of its own."""
    program = copy_of_the_program(tmp_path / "program")
    (program / "bench" / "metrics" / "sabotage.py").write_text(SABOTAGE_METRIC)
    lengths = ",".join(str(n) for n in EXPECTED)
    request = "run --models vit --metrics params,sabotage --limit-s 3 --json --seq".split()
    far = tmp_path / "temporary" / ("x" * 100)  # too long a name for a socket's
    far.mkdir(parents=True)
    ran = run_bench(program, tmp_path, *request, lengths, *SMALL, variables={"TMPDIR": str(far)})
    assert ran.returncode == 1, ran.stderr
    assert "Traceback" not in ran.stderr
    assert "semaphore" not in ran.stderr
    assert not [path for path in far.iterdir() if not path.name.startswith("torchinductor")]
    assert "vit n=20" in ran.stderr
    told = json.loads(ran.stdout)
    found = {row["seq_len"]: row for row in told["rows"]}
    assert set(found) == set(EXPECTED)
    for n, (status, reason) in EXPECTED.items():
        assert found[n]["status"] == status
        assert reason is None or reason in found[n]["reason"]
        assert found[n]["params"] > 0
    assert found[22]["survived"] == 22
    assert found[17]["survived"] is None
    folder, report = tmp_path / told["run"], tmp_path / "reports" / Path(told["run"]).name
    names = {"plan.json.xz", "environment.json", "records.jsonl.xz", "table.csv", "table.json", "table.parquet"}
    assert {path.name for path in folder.iterdir()} == names
    assert "planted failure" in (report / "report.html").read_text()
    assert (report / "report.md").exists()


FEW_ROUNDS = 6
NUM_RECORDS = 2 + 3 * FEW_ROUNDS + 2  # two pilots; two cells and the control; ceilings in every fourth round
ROUNDS_OF_TWO = [*f"run --models vit --seq 17,18 --metrics latency --rounds {FEW_ROUNDS} --quick --out mine".split(), *SMALL]


@pytest.mark.slow
def test_a_fork_server_that_dies_is_replaced(tmp_path: Path) -> None:
    with started(tmp_path, *ROUNDS_OF_TWO, num_lines=3) as run:
        server = None
        while server is None and run.poll() is None:
            _, server = worker_and_server(run.pid)
        assert server
        os.kill(server, signal.SIGKILL)
        _, err = run.communicate(timeout=300)
    assert run.returncode == 0, err
    stored = read_run(tmp_path / "mine")
    assert num_missing(stored) == 0
    assert {record.outcome.status for record in stored.records} == {"measured"}


@pytest.mark.slow
def test_a_full_disk_ends_the_run_in_one_line_and_it_goes_on_later(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    with started(tmp_path, *ROUNDS_OF_TWO, num_lines=3) as first:
        os.killpg(first.pid, signal.SIGKILL)  # no report is written: its pictures are larger than the records
    before = read_run(folder).records
    assert before
    assert num_missing(read_run(folder)) > 0
    room = 100  # less than any record takes: the disk fills in the middle of a line
    largest = max(path.stat().st_size for path in folder.iterdir())
    full = run_bench(ROOT, tmp_path, *ROUNDS_OF_TWO, prepare=lambda: _bound_files(largest + room))
    assert full.returncode == 1, full.stderr
    assert "Traceback" not in full.stderr
    assert "earlier records are intact" in full.stderr
    kept = read_run(folder).records
    assert kept[: len(before)] == before
    assert num_missing(read_run(folder)) > 0
    again = run_bench(ROOT, tmp_path, *ROUNDS_OF_TWO)
    assert again.returncode == 0, again.stderr
    after = read_run(folder)
    assert num_missing(after) == 0
    cut = (kept[-1].group, kept[-1].repeat)  # of which some were on disk: it is measured again as a whole
    by_key = {record.key: record for record in after.records}
    assert all(by_key[record.key] == record for record in kept if not record.group or (record.group, record.repeat) != cut)


def _bound_files(largest: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest, resource.RLIM_INFINITY))


WRONG_CLOCK = """
import random
import time

true_time = time.time
time.time = lambda: true_time() + random.uniform(-1e5, 1e5)
"""


@pytest.mark.slow
def test_a_clock_that_jumps_does_no_harm(tmp_path: Path) -> None:
    program = copy_of_the_program(tmp_path / "program")
    (program / "sitecustomize.py").write_text(WRONG_CLOCK)
    ran = run_bench(program, tmp_path, *ROUNDS_OF_TWO)
    assert ran.returncode == 0, ran.stderr
    records = read_run(tmp_path / "mine").records
    assert len(records) == NUM_RECORDS
    assert all(0 <= record.outcome.start_s < 60 for record in records if record.outcome.start_s is not None)
    assert all(0 <= record.outcome.duration_s < 60 for record in records if record.outcome.duration_s is not None)


@pytest.mark.slow
def test_data_that_vanish_during_a_run_cost_their_trainings_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tmp_path / "data"
    data.mkdir()
    trec(data, monkeypatch)
    words = "run --models vit --seq 16 --task trec --metrics params,latency,accuracy --quick --epochs 1 --seeds 2 --out mine"
    request = [*words.split(), *SMALL, "--data-root", str(data)]
    with started(tmp_path, *request, num_lines=2) as run:
        data.rename(tmp_path / "elsewhere")
        _, err = run.communicate(timeout=300)
    assert run.returncode == 1, err
    assert "Traceback" not in err
    assert "train_5500.label" in err
    before = read_run(tmp_path / "mine").records
    assert {r.outcome.status for r in before if r.metric != "accuracy"} == {"measured"}
    assert [r.outcome.status for r in before if r.metric == "accuracy"] == ["failed", "failed"]
    assert "train_5500.label" in before[-1].outcome.reason
    (tmp_path / "elsewhere").rename(data)
    again = run_bench(ROOT, tmp_path, *request, "--retry", "failed")
    assert again.returncode == 0, again.stderr
    after = read_run(tmp_path / "mine").records
    assert {r.outcome.status for r in after} == {"measured"}
    assert [r for r in before if r.outcome.status == "measured"] == [r for r in after if r.metric != "accuracy"]


@pytest.mark.slow
def test_a_folder_that_becomes_read_only_is_told_in_one_line_and_the_run_goes_on_later(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    with started(tmp_path, *ROUNDS_OF_TWO, num_lines=3, prepare=_obey_permissions) as run:
        folder.chmod(0o555)
        _, err = run.communicate(timeout=300)
    assert run.returncode == 1, err
    assert "Traceback" not in err
    assert len([line for line in err.splitlines() if "error:" in line]) == 1
    assert "Permission denied" in err
    before = read_run(folder).records
    refused = run_bench(ROOT, tmp_path, "report", "mine", prepare=_obey_permissions)
    assert refused.returncode in (1, 2)
    assert "Traceback" not in refused.stderr
    folder.chmod(0o755)
    again = run_bench(ROOT, tmp_path, *ROUNDS_OF_TWO)
    assert again.returncode == 0, again.stderr
    after = read_run(folder).records
    assert after[: len(before)] == before
    assert len(after) == NUM_RECORDS


def _obey_permissions() -> None:
    """Root may write everywhere; without these capabilities it may not."""
    override_access, override_search, drop_from_bounding_set = 1, 2, 24
    for capability in (override_access, override_search):
        ctypes.CDLL(None).prctl(drop_from_bounding_set, capability, 0, 0, 0)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."), True),
        (torch.AcceleratorError("CUDA error: out of memory"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"), True),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_what_cuda_raises_for_want_of_memory_is_known(error: Exception, expected: bool) -> None:
    assert is_out_of_memory(error) is expected
