"""Plugins that the tests drop, one file each, into a copy of the program: proof that one file is enough, and misbehaviour on demand."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("bench", "models", "ablations")

SABOTAGE_METRIC = '''"""Misbehaves as the sequence length tells it to."""

import multiprocessing
import os
import signal
import time

from bench.metrics import Measurement

REPEAT = "once"
COLUMNS = ("survived",)


def measure(job):
    n = job.cell.model.shape.seq_len
    if n == 17:
        raise ValueError("planted failure\\nwith a second line")
    if n == 18:
        held = [multiprocessing.Lock() for _ in range(4)]
        time.sleep(600)
    if n == 19:
        import torch

        torch.empty(2**46, dtype=torch.uint8).fill_(1)
    if n == 20:
        os.kill(os.getpid(), signal.SIGKILL)
    if n == 21:
        os._exit(3)
    if n == 23:
        os.kill(os.getpid(), signal.SIGSEGV)
    if n == 24:
        return Measurement(values={"survived": float("nan")})
    return Measurement(values={"survived": n})


def summarise(records):
    return {"survived": records[0].outcome.values["survived"]}
'''


def copy_of_the_program(folder: Path) -> Path:
    """The three packages in a folder of their own, to add plugins to."""
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def bench_command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "bench", *arguments]


def environment_of(program: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(program)}


def run_bench(
    program: Path,
    folder: Path,
    *arguments: str,
    prepare: Callable[[], None] | None = None,
    variables: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command of the program in `folder`; its output as text, whatever its exit code. `prepare` is called in its process before it starts."""
    return subprocess.run(
        bench_command(*arguments),
        cwd=folder,
        env={**environment_of(program), **(variables or {})},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        preexec_fn=prepare,
    )
