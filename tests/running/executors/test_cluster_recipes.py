"""The recipes of docs/cluster.md as they are written there, with two nodes of Ray on this machine: jobs run on both.

Jobs have the usual priority (`RAY_worker_niceness`): at Ray's, other work on the machine may keep a slot from starting.
SLURM is planted: its variables, and an `srun` that runs a command here.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from bench.analysis.study import num_missing
from bench.reading.store import read_run
from bench.running.slot import RAN_ON
from bench.spec import MEASURED
from tests.processes import processes_that_inherited
from tests.running.waiting import comes_true
from tests.specimens import ROOT, environment_of

pytestmark = pytest.mark.slow
ray = pytest.importorskip("ray")

PAGE = (ROOT / "docs" / "cluster.md").read_text()
NODES = 2
BENCH = f"""#!/bin/bash
exec {sys.executable} -m bench "$@" --seq 17 --width 16 --depth 1 --batch 1 --device cpu --threads 1 --metrics latency --quick --rounds 100 --out mine
"""
"""The recipe's request, made small: the last of a repeated flag counts."""
SRUN = """#!/bin/bash
while [[ $1 == --* ]]; do
    case $1 in
        --nodes=1 | --ntasks=1 | --exclude=first) shift ;;
        *) echo "srun: $1" >&2; exit 2 ;;
    esac
done
[[ $SRUN_CPUS_PER_TASK == "$SLURM_CPUS_PER_TASK" ]] || exit 3
SLURMD_NODENAME=second exec "$@"
"""


@dataclass(frozen=True)
class Machine:
    """`commands`: a folder of programs that are found before those of the system; `host`, `port`: free for the head of a cluster."""

    folder: Path
    commands: Path
    host: str
    port: int

    def has(self, name: str, text: str) -> None:
        (self.commands / name).write_text(text)
        (self.commands / name).chmod(0o755)

    def run(self, script: str, **variables: str) -> None:
        """Run a shell script to its end; its port is another one, so that a cluster that is up does not matter."""
        path = os.pathsep.join([str(self.commands), str(Path(sys.executable).parent), os.environ["PATH"]])
        given = {**environment_of(ROOT), "PATH": path, "BENCH_TEST_MARK": str(self.folder), "RAY_worker_niceness": "0", **variables}
        with (self.folder / "said").open("w+") as said:  # no pipe, which what goes on in the background would keep open
            ran = subprocess.run(
                ["bash", "-e", "-c", script.replace("6379", str(self.port))],
                cwd=self.folder,
                env=given,
                stdout=said,
                stderr=said,
                timeout=850,  # a slow machine takes up to ten minutes to start a slot
                check=False,
            )
        assert ran.returncode == 0, (self.folder / "said").read_text()


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    host = ray.util.get_node_ip_address()
    with socket.create_server((host, 0)) as server:
        port = server.getsockname()[1]
    found = Machine(tmp_path, tmp_path / "commands", host, port)
    found.commands.mkdir()
    found.has("bench", BENCH)
    yield found
    mark = f"BENCH_TEST_MARK={tmp_path}"
    for process in processes_that_inherited(mark):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    assert comes_true(lambda: processes_that_inherited(mark) == [])


def recipe(heading: str) -> str:
    """The code below a heading of the page, without its indent."""
    section = re.split(r"^## ", PAGE, flags=re.MULTILINE)
    (found,) = (text for text in section if text.startswith(heading + "\n"))
    return "\n".join(line[4:] for line in found.splitlines() if line.startswith("    "))


def nodes_of(folder: Path) -> set[str]:
    """Where the jobs of a complete run ran."""
    stored = read_run(folder / "mine")
    assert num_missing(stored) == 0
    assert {record.outcome.status for record in stored.records} == {MEASURED}
    return {record.outcome.values[RAN_ON] for record in stored.records}


def test_the_recipe_of_two_nodes_works(machine: Machine) -> None:
    """But for `ray stop`, which would end clusters of others too."""
    lines = [line for line in recipe("Several nodes").splitlines() if not line.startswith("ray stop")]
    machine.run("\n".join(lines).replace("HOST", machine.host).replace("SECRET", "of this test"))
    assert len(nodes_of(machine.folder)) == NODES


def test_another_token_is_refused_in_one_line(machine: Machine) -> None:
    """Without the lines that Ray writes at every attempt."""
    first, head, *_, bench, _ = recipe("Several nodes").splitlines()
    script = [first, head, "export RAY_AUTH_TOKEN='of another test'", f"! {bench} 2> refused"]
    machine.run("\n".join(script).replace("HOST", machine.host).replace("SECRET", "of this test"))
    wrong, hint = (machine.folder / "refused").read_text().strip().splitlines()
    assert wrong == f"error: the Ray cluster at {machine.host}:{machine.port} refuses this token, or none"
    assert "RAY_AUTH_TOKEN" in hint


def test_the_job_script_for_slurm_works(machine: Machine) -> None:
    script = recipe("Under SLURM")
    given = dict(re.findall(r"--([a-z-]+)=(\d+)", " ".join(re.findall(r"^#SBATCH (.*)", script, flags=re.MULTILINE))))
    machine.has("srun", SRUN)
    machine.has("hostname", f"#!/bin/bash\n[[ $1 == -I ]] && echo '{machine.host} 172.17.0.1 '\n")  # --ip-address may be 127.0.1.1
    machine.run(script, SLURM_NNODES=given["nodes"], SLURM_CPUS_PER_TASK=given["cpus-per-task"], SLURMD_NODENAME="first")
    assert given["ntasks-per-node"] == "1"
    assert len(nodes_of(machine.folder)) == int(given["nodes"]) == NODES
