"""Jobs spread over the GPUs of a node: one per GPU, and never two on one. The GPUs are planted: Ray and NVML are told of some, and nothing is
computed on them."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.reading.store import read_run
from bench.running.executors.ray import LOST
from bench.running.slot import RAN_ON
from bench.spec import MEASURED
from tests.specimens import copy_of_the_program, run_bench

pytestmark = pytest.mark.slow
ray = pytest.importorskip("ray")

NVML = '''"""Eight equal GPUs, but for those whose number is in the folder `lost` beside this file."""

from pathlib import Path
from types import SimpleNamespace

LOST = Path(__file__).with_name("lost")
NVML_CLOCK_SM, NVML_ERROR_NOT_FOUND = 1, 6


class NVMLError(Exception):
    pass


def nvmlDeviceGetHandleByIndex(index):
    if index >= 8 or (LOST / str(index)).exists():
        raise NVMLError(NVML_ERROR_NOT_FOUND)
    return index


nvmlInit = nvmlShutdown = lambda: None
nvmlDeviceGetCount = lambda: 8
nvmlDeviceGetName = lambda handle: "Planted GPU"
nvmlDeviceGetMemoryInfo = lambda handle: SimpleNamespace(total=2**33)
nvmlSystemGetDriverVersion = lambda: "555.1"
nvmlDeviceGetMaxClockInfo = nvmlDeviceGetClockInfo = lambda handle, kind: 1000 + handle
nvmlDeviceGetCurrentClocksThrottleReasons = lambda handle: 0
nvmlDeviceGetComputeRunningProcesses = lambda handle: []
'''
METRIC = '''"""Notes the GPU and the time, and measures nothing. Jobs wait until some have begun on as many GPUs as the file `wanted` says.

The first job of the second round that finds a file `loses` loses its GPU.
"""

import os
import time
from pathlib import Path

from bench.measure.environment import gpu_facts
from bench.metrics import Measurement

REPEAT = "round"
COLUMNS = ("device",)
HERE = Path(__file__).parents[2]
LIMIT_S = 50.0


def measure(job):
    began_s, device = time.time(), os.environ["CUDA_VISIBLE_DEVICES"]
    (HERE / "begun" / device).touch()
    while len(list((HERE / "begun").iterdir())) < int((HERE / "wanted").read_text()):
        if time.time() - began_s > LIMIT_S:
            raise TimeoutError("jobs do not run at the same time")
        time.sleep(0.01)
    if job.repeat == 1 and (HERE / "loses").exists():
        (HERE / "loses").unlink()
        (HERE / "lost" / device).write_text(str(time.time()))  # the time of a file is a few milliseconds old
    if (HERE / "lost" / device).exists():
        raise RuntimeError("CUDA error: no CUDA-capable device is detected")
    described = gpu_facts()["gpu_clock_mhz"] - 1000
    return Measurement(values={"device": device, "described": described, "began_s": began_s, "ended_s": time.time()})


def summarise(records):
    return {"device": int(records[0].outcome.values["device"])}
'''
REQUEST = [
    *"run --models gmlp,vit --seq 17,33,65 --width 16 --depth 1 --batch 1 --metrics device_seen".split(),
    *"--rounds 3 --device cuda --threads 1 --on ray --out mine".split(),
]
NUM_JOBS = 18


@pytest.fixture
def program(tmp_path: Path) -> Path:
    found = copy_of_the_program(tmp_path / "program")
    (found / "pynvml.py").write_text(NVML)
    (found / "bench" / "metrics" / "device_seen.py").write_text(METRIC)
    (found / "begun").mkdir()
    (found / "lost").mkdir()
    return found


NodeStarter = Callable[..., str]


@pytest.fixture
def node_of() -> Iterator[NodeStarter]:
    """Starts a cluster of one node that claims so many CPUs and GPUs, with these variables set; its address."""
    from ray.cluster_utils import Cluster

    found: list[Any] = []

    def start(num_cpus: int, num_gpus: int, **variables: str) -> str:
        with pytest.MonkeyPatch.context() as patch:
            patch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
            for name, value in variables.items():
                patch.setenv(name, value)
            arguments = {"num_cpus": num_cpus, "num_gpus": num_gpus, "include_dashboard": False}
            found.append(Cluster(initialize_head=True, head_node_args=arguments))
        return str(found[-1].address)

    yield start
    for cluster in found:
        cluster.shutdown()


def outcomes(folder: Path) -> list[Any]:
    """Those of a complete run: each job measured once, on the GPU that was described, and no two at the same time on one GPU."""
    stored = read_run(folder / "mine")
    assert len({record.key for record in stored.records}) == len(stored.records) == NUM_JOBS
    found = [record.outcome for record in stored.records]
    assert {(outcome.status, outcome.reason) for outcome in found} == {(MEASURED, "")}
    spans = defaultdict(list)
    for outcome in found:
        values = outcome.values
        assert values["device"] == str(values["described"]) == values[RAN_ON].rpartition(":")[2]
        spans[values["device"]].append((values["began_s"], values["ended_s"]))
    for of_one in spans.values():
        ordered = sorted(of_one)
        assert all(ended <= began for (_, ended), (began, _) in itertools.pairwise(ordered))
    return found


def devices(found: list[Any]) -> set[str]:
    return {outcome.values["device"] for outcome in found}


def test_four_gpus_work_at_the_same_time_each_on_one_job(program: Path, node_of: NodeStarter, tmp_path: Path) -> None:
    (program / "wanted").write_text("4")
    ran = run_bench(program, tmp_path, *REQUEST, "--address", node_of(8, 4))
    assert ran.returncode == 0, ran.stderr
    assert devices(outcomes(tmp_path)) == {"0", "1", "2", "3"}
    assert "left out" not in ran.stderr
    assert "are used" not in ran.stderr


def test_a_node_that_is_given_some_of_its_gpus_uses_those(program: Path, node_of: NodeStarter, tmp_path: Path) -> None:
    (program / "wanted").write_text("2")
    ran = run_bench(program, tmp_path, *REQUEST, "--address", node_of(8, 2, CUDA_VISIBLE_DEVICES="6,3"))
    assert ran.returncode == 0, ran.stderr
    assert devices(outcomes(tmp_path)) == {"3", "6"}


def test_a_gpu_that_is_lost_takes_no_more_jobs(program: Path, node_of: NodeStarter, tmp_path: Path) -> None:
    """Its jobs fail at once, so that it would take those of all others."""
    (program / "wanted").write_text("4")
    (program / "loses").touch()
    ran = run_bench(program, tmp_path, *REQUEST, "--address", node_of(8, 4))
    assert ran.returncode == 0, ran.stderr
    found = outcomes(tmp_path)
    (lost,) = (path.name for path in (program / "lost").iterdir())
    lost_s = float((program / "lost" / lost).read_text())
    assert all(outcome.values["ended_s"] < lost_s for outcome in found if outcome.values["device"] == lost)
    assert sum(outcome.values.get(LOST, 0) for outcome in found) == 1
    assert devices(found) == {"0", "1", "2", "3"}


def test_a_node_whose_gpus_are_hidden_is_refused_in_one_line(program: Path, node_of: NodeStarter, tmp_path: Path) -> None:
    ran = run_bench(program, tmp_path, *REQUEST, "--address", node_of(2, 1, CUDA_VISIBLE_DEVICES="-1"))
    assert ran.returncode == 2
    assert "no node of the Ray cluster has a GPU" in ran.stderr
    assert "Traceback" not in ran.stderr
    assert not (tmp_path / "mine").exists()
