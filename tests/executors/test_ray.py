"""A real cluster of two nodes on this machine: a run is complete though a worker is killed under it, and says so."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.executors.ray import LOST
from bench.record import RECORDS, read_run
from bench.spec import MEASURED
from bench.table import num_missing
from tests.processes import wait_for_lines
from tests.specimens import ROOT, bench_command, environment_of

ray = pytest.importorskip("ray")
ROUNDS = 6
REQUEST = (
    *(
        "run",
        "--models",
        "gmlp,vit,transformer",
        "--seq",
        "17,65",
        "--width",
        "16",
        "--depth",
        "1",
        "--batch",
        "1",
        "--rounds",
        str(ROUNDS),
    ),
    *("--metrics", "params,flops,latency,memory", "--quick", "--threads", "1", "--on", "ray", "--out", "mine"),
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    found: Any = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    found.add_node(num_cpus=1)
    yield found
    found.shutdown()


def slot_processes() -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"bench.slot" in words:
            found.append(int(path.parent.name))
    return found


def test_a_run_is_complete_though_a_worker_is_killed(cluster: Any, tmp_path: Path) -> None:
    variables = {**environment_of(ROOT), "RAY_ADDRESS": cluster.address}
    with subprocess.Popen(
        bench_command(*REQUEST), cwd=tmp_path, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:
        wait_for_lines(tmp_path, f"mine/{RECORDS}", 20)
        slots = slot_processes()
        assert len(slots) == 2
        os.kill(slots[0], signal.SIGKILL)
        _, err = run.communicate(timeout=300)
    assert run.returncode == 0, err
    stored = read_run(tmp_path / "mine")
    assert num_missing(stored) == 0
    assert {record.outcome.status for record in stored.records} == {MEASURED}
    assert sum(record.outcome.values.get(LOST, 0) for record in stored.records) == 1
    assert "lost" in err
    assert "Traceback" not in err
    for _ in range(100):
        if not slot_processes():
            break
        time.sleep(0.1)
    assert slot_processes() == []


def test_without_a_cluster_one_of_this_machine_is_started(tmp_path: Path) -> None:
    variables = {key: value for key, value in environment_of(ROOT).items() if key != "RAY_ADDRESS"}
    request = (
        "run",
        "--models",
        "vit",
        "--seq",
        "17",
        "--width",
        "16",
        "--depth",
        "1",
        "--metrics",
        "params",
        "--on",
        "ray",
        "--out",
        "mine",
    )
    ran = subprocess.run(bench_command(*request), cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr
    assert len(read_run(tmp_path / "mine").records) == 1
