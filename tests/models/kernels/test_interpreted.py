"""Runs interpreted.py under Triton's interpreter, which is chosen when Triton is imported: in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[3]


@pytest.mark.slow
def test_fused_kernels_under_the_interpreter() -> None:
    pytest.importorskip("triton")
    tests = Path(__file__).with_name("interpreted.py")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tests)]
    done = subprocess.run(command, cwd=PROJECT, env=os.environ | {"TRITON_INTERPRET": "1"}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
