"""Freed memory is kept for the next step: counted in page faults of child processes, never in time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bench.measure.allocator import GLIBC, KEEP, allocator_name
from bench.reading.store import read_run
from tests.specimens import ROOT, run_bench

STEP = """
import ctypes
from bench.measure import allocator
{prepare}
faults = allocator.fault_counter()
def step():
    ctypes.memset(ctypes.create_string_buffer({num_bytes}), 1, {num_bytes})
for _ in range(3):
    step()
before = faults()
for _ in range(4):
    step()
print((faults() - before) // 4, allocator.effective_allocator())
"""
PAGE_BYTES = 4096
LARGE_BYTES = 64 << 20  # above the largest threshold that glibc learns by itself: mapped and returned at every step

pytestmark = pytest.mark.skipif(allocator_name() != GLIBC, reason="only glibc's malloc is told to keep memory")


def faults_of_a_step(prepare: str) -> tuple[int, str]:
    code = STEP.format(prepare=prepare, num_bytes=LARGE_BYTES)
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    faults, _, name = said.strip().partition(" ")
    return int(faults), name


def test_kept_memory_is_not_taken_again() -> None:
    faults, name = faults_of_a_step("assert allocator.keep_freed_memory()")
    assert faults < LARGE_BYTES // PAGE_BYTES // 100
    assert name == f"{GLIBC}, freed memory kept"


def test_the_system_takes_every_page_again() -> None:
    """The control: what is kept away is really there."""
    faults, name = faults_of_a_step("")
    assert faults >= LARGE_BYTES // PAGE_BYTES // 2
    assert name == GLIBC


@pytest.mark.slow
def test_a_run_says_by_what_it_was_measured(tmp_path: Path) -> None:
    request = ("--models", "vit", "--seq", "17", "--width", "16", "--depth", "1", "--metrics", "latency,memory", "--quick", "--rounds", "1")
    done = run_bench(ROOT, tmp_path, "run", *request, "--device", "cpu", "--out", "run")
    assert done.returncode == 0, done.stderr
    stored = read_run(tmp_path / "run")
    assert stored.environment["allocator"] == f"{GLIBC}, {KEEP}"
    latencies = [r.outcome.values for r in stored.records if r.metric == "latency"]
    assert latencies
    assert {v["allocator_effective"] for v in latencies} == {f"{GLIBC}, freed memory kept"}
    assert all(v["page_faults"] >= 0 for v in latencies)
