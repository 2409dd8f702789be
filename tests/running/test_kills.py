"""SIGKILL at random moments, of the run, its worker, its server, or all of them: nothing that was written is lost, and what is finished later is as
if nobody had interfered.

BENCH_KILLS=200 pytest tests/running/test_kills.py makes two hundred kills; `make test-slow` makes a few.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pandas
import pytest

from bench.analysis.study import num_missing
from bench.reading.store import RECORDS, content_of, is_stored, read_records, read_run
from bench.reading.table import rows_of
from bench.spec import MEASURED
from tests.processes import worker_and_server
from tests.specimens import ROOT, bench_command, environment_of, run_bench

NUM_KILLS = int(os.environ.get("BENCH_KILLS", "6"))
REQUEST = [
    *"run --models gmlp,vit --seq 17,18 --width 16 --depth 1 --batch 1 --metrics params,flops,latency,memory".split(),
    *"--rounds 3 --quick --threads 1 --out mine".split(),
]
VICTIMS = ("run", "worker", "all", "server")
LONGEST_LIFE_S = 6.0
MEASURED_TIMES = ("latency throughput tokens_per_s mfu first_call rss ceiling roofline num_samples page_faults num_blocks").split()
"""What no two runs have in common: columns that start so."""
RATIOS = ("ratio", "ratio_low", "ratio_high", "ratio_min", "ratio_max")

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds the worker in /proc")


def kill(run: int, victim: str) -> bool:
    """Kill it, if it is there."""
    worker, server = worker_and_server(run)
    target = {"run": run, "worker": worker, "server": server}.get(victim)
    with contextlib.suppress(ProcessLookupError):
        if victim == "all":
            os.killpg(run, signal.SIGKILL)
            return True
        if target:
            os.kill(target, signal.SIGKILL)
            return True
    return False


def whole_lines(path: Path) -> bytes:
    content = content_of(path) or b""
    return content[: content.rfind(b"\n") + 1]


def disturb(folder: Path, draw: random.Random) -> int:
    """Start or go on, and kill after a while; the kills that hit something. What was on disk is still there, and is what the file begins with."""
    path, hits = folder / "mine" / RECORDS, 0
    before = whole_lines(path)
    with subprocess.Popen(
        bench_command(*REQUEST, "--retry", "failed") if is_stored(path) else bench_command(*REQUEST),
        cwd=folder,
        env=environment_of(ROOT),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as run:
        while run.poll() is None:
            time.sleep(draw.uniform(0.0, LONGEST_LIFE_S))
            victim = draw.choice(VICTIMS)
            committed = whole_lines(path)
            hits += kill(run.pid, victim)
            if victim in ("run", "all"):
                run.wait(timeout=300)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(run.pid, signal.SIGKILL)  # what the run left behind, so that nothing competes with the next
    assert whole_lines(path).startswith(before)
    assert whole_lines(path).startswith(committed)
    return hits


def facts(folder: Path) -> pandas.DataFrame:
    rows = rows_of(read_run(folder / "mine"))
    assert rows.loc[rows["ratio_to"].notna(), ["ratio", "ratio_min", "ratio_max", "num_blocks"]].notna().all(axis=None)
    return rows[[column for column in rows.columns if column not in RATIOS and not column.startswith(tuple(MEASURED_TIMES))]]


@pytest.mark.slow
def test_nothing_is_lost_or_doubled_by_kills(tmp_path: Path) -> None:
    draw = random.Random(NUM_KILLS)
    alone = tmp_path / "alone"
    kills, finished = 0, 0
    while kills < NUM_KILLS:
        disturbed = tmp_path / f"disturbed-{finished}"
        disturbed.mkdir(exist_ok=True)
        kills += disturb(disturbed, draw)
        if is_stored(disturbed / "mine" / "plan.json") and not num_missing(read_run(disturbed / "mine")):
            finished += 1
    alone.mkdir()
    assert run_bench(ROOT, alone, *REQUEST).returncode == 0
    for folder in sorted(tmp_path.glob("disturbed-*")):
        again = run_bench(ROOT, folder, *REQUEST, "--retry", "failed")
        assert again.returncode == 0, again.stderr
        records = read_records(folder / "mine" / RECORDS)
        assert {r.key for r in records} == {r.key for r in read_records(alone / "mine" / RECORDS)}
        assert len({r.key for r in records}) == len(records)
        assert {r.outcome.status for r in records} == {MEASURED}
        pandas.testing.assert_frame_equal(facts(folder), facts(alone))
