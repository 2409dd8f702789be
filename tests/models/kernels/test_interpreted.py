"""Runs interpreted.py under Triton's interpreter, which is chosen when Triton is imported: in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

PROJECT = Path(__file__).parents[3]


def major_minor(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")[:2]))


@pytest.mark.slow
def test_fused_kernels_under_the_interpreter() -> None:
    triton = pytest.importorskip("triton")
    if major_minor(triton.__version__) <= (3, 6) and major_minor(np.__version__) >= (2, 4):
        pytest.skip("Triton's interpreter up to 3.6 calls int() on an array of one dimension, which numpy refuses from 2.4 on")
    tests = Path(__file__).with_name("interpreted.py")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tests)]
    done = subprocess.run(command, cwd=PROJECT, env=os.environ | {"TRITON_INTERPRET": "1"}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
