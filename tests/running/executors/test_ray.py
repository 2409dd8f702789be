"""A real cluster of two nodes on this machine: a run is complete though a worker or a node is lost under it, and says so; a node that differs is
left out.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.analysis.study import num_missing
from bench.reading.store import read_run
from bench.running.executors.ray import LOST
from bench.spec import MEASURED
from tests.processes import LOOPBACK, listening_addresses, processes_that_inherited, slot_processes, started
from tests.running.waiting import comes_true
from tests.specimens import ROOT, copy_of_the_program, environment_of, run_bench

pytestmark = pytest.mark.slow
ray = pytest.importorskip("ray")
GRID = [
    *"run --models gmlp,vit,transformer --seq 17 --width 16 --depth 1 --batch 1".split(),
    *"--metrics params,flops,latency,memory --quick --threads 1 --on ray --out mine".split(),
]
REQUEST = [*GRID, "--rounds", "6"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    found: Any = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    found.add_node(num_cpus=1)
    yield found
    found.shutdown()


def losses(folder: Path) -> int:
    """What the outcomes of a complete run say of lost workers; those of a group share one."""
    stored = read_run(folder / "mine")
    assert num_missing(stored) == 0
    assert {record.outcome.status for record in stored.records} == {MEASURED}
    assert len({record.key for record in stored.records}) == len(stored.records)
    batches = {(record.group, record.repeat) if record.group else record.key: record for record in stored.records}
    return sum(record.outcome.values.get(LOST, 0) for record in batches.values())


def test_a_run_is_complete_though_a_worker_is_killed(cluster: Any, tmp_path: Path) -> None:
    with started(tmp_path, *REQUEST, num_lines=20, variables={"RAY_ADDRESS": cluster.address}) as run:
        slots = slot_processes()
        assert len(slots) == 2
        os.kill(slots[0], signal.SIGKILL)
        _, err = run.communicate(timeout=300)
    assert run.returncode == 0, err
    assert losses(tmp_path) == 1
    assert "lost" in err
    assert "Traceback" not in err
    assert comes_true(lambda: slot_processes() == [])


def test_a_run_is_complete_though_a_node_is_lost(cluster: Any, tmp_path: Path) -> None:
    node = cluster.add_node(num_cpus=1)
    with started(tmp_path, *REQUEST, num_lines=20, variables={"RAY_ADDRESS": cluster.address}) as run:
        assert len(slot_processes()) == 3
        cluster.remove_node(node, allow_graceful=False)
        out, err = run.communicate(timeout=300)
    assert run.returncode == 0, err
    assert losses(tmp_path) == 1
    assert "lost" in err
    assert "raylet" not in out  # Ray's own words about it
    assert comes_true(lambda: slot_processes() == [])


def test_a_run_whose_cluster_has_lost_its_head_can_still_be_stopped(tmp_path: Path) -> None:
    from ray.cluster_utils import Cluster

    own: Any = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        with started(tmp_path, *GRID, "--rounds", "1000", num_lines=5, variables={"RAY_ADDRESS": own.address}) as run:
            own.head_node.kill_gcs_server()
            time.sleep(8)  # longer than between two looks for nodes
            before = len(read_run(tmp_path / "mine").records)
            run.send_signal(signal.SIGTERM)
            _, err = run.communicate(timeout=300)
    finally:
        own.shutdown()
    assert "finishing this round" in err
    after = read_run(tmp_path / "mine").records
    assert len(after) >= before > 5
    assert {record.outcome.status for record in after} == {MEASURED}


@pytest.mark.parametrize("whole_node", [False, True])
def test_a_run_whose_cluster_has_lost_its_head_ends_and_goes_on_on_another(whole_node: bool, cluster: Any, tmp_path: Path) -> None:
    """Of the head alone, or of all that runs on its node."""
    from ray.cluster_utils import Cluster

    own: Any = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        with started(tmp_path, *GRID, "--rounds", "1000", num_lines=5, variables={"RAY_ADDRESS": own.address}) as run:
            (slot,) = slot_processes()
            own.head_node.kill_gcs_server()
            if whole_node:
                own.head_node.kill_raylet(check_alive=False)
                os.kill(slot, signal.SIGKILL)
            out, err = run.communicate(timeout=120)
    finally:
        own.shutdown()
    stored = read_run(tmp_path / "mine").records
    assert run.returncode == 1, err
    assert "the head of the Ray cluster is lost" in err
    assert "Traceback" not in err
    assert "GCS" not in out + err  # Ray's own words
    (again,) = re.findall(r"bench run (--resume .*) --address HOST:6379", " ".join(err.split()))
    with started(tmp_path, "run", *again.split(), "--address", cluster.address, num_lines=len(stored) + 5) as run:
        run.send_signal(signal.SIGTERM)
        _, err = run.communicate(timeout=300)
    assert run.returncode == 130, err
    assert read_run(tmp_path / "mine").records[: len(stored)] == stored
    assert {record.outcome.status for record in stored} == {MEASURED}


def test_a_cluster_of_ones_own_hears_this_machine_alone_and_ends_with_the_run(tmp_path: Path) -> None:
    """Also where another cluster is up: it is not joined unasked. SIGTERM means to it what it means to every run."""
    mark = f"BENCH_TEST_MARK={tmp_path}"
    variables = {"RAY_ADDRESS": "", "BENCH_TEST_MARK": str(tmp_path)}
    with started(tmp_path, *REQUEST, num_lines=5, variables=variables) as run:
        heard = listening_addresses(processes_that_inherited(mark))
        run.send_signal(signal.SIGTERM)
        _, err = run.communicate(timeout=120)
    assert heard
    assert heard <= LOOPBACK
    assert run.returncode == 130, err
    assert "finishing this round" in err
    assert "--resume mine" in err
    assert (tmp_path / "mine" / "table.csv").exists()
    assert comes_true(lambda: processes_that_inherited(mark) == [])


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("ray://here:10001", "is not an address"),
        ("127.0.0.1:1", "no Ray cluster answers at 127.0.0.1:1"),
    ],
)
def test_a_wrong_address_is_refused_in_one_line(address: str, words: str, tmp_path: Path) -> None:
    ran = run_bench(ROOT, tmp_path, *REQUEST, "--address", address)
    assert ran.returncode == 2
    assert words in ran.stderr
    assert "ray start --head" in ran.stderr
    assert len(ran.stderr.splitlines()) == 2
    assert list(tmp_path.iterdir()) == []


def test_an_address_of_another_server_is_refused_in_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        ran = run_bench(ROOT, tmp_path, *REQUEST, "--address", address)
    assert ran.returncode == 2
    assert f"no Ray cluster answers at {address}" in ran.stderr
    assert len(ran.stderr.splitlines()) == 2


def test_nodes_with_other_code_are_refused(cluster: Any, tmp_path: Path) -> None:
    """They are what is measured."""
    program = copy_of_the_program(tmp_path / "program")  # outside of a checkout, it says another version
    variables = {**environment_of(program), "RAY_ADDRESS": cluster.address}
    elsewhere = str(ROOT)
    code = f"import sys; sys.path.insert(0, {str(program)!r}); import bench.cli; sys.path[:] = [{elsewhere!r}, *sys.path[1:]]; bench.cli.main()"
    ran = subprocess.run(
        [sys.executable, "-c", code, *REQUEST], cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=300, check=False
    )
    assert ran.returncode == 2, ran.stderr
    assert "the nodes run version" in ran.stderr
    assert not (tmp_path / "mine").exists()
