"""Keeping the machine busy: processes that burn a core each, stopped whatever happens."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator

BURN = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    sum(range(1_000_000))\n"
"""Ends by itself when its parent has died."""


@contextlib.contextmanager
def burning(num_processes: int) -> Iterator[None]:
    """Run this many processor-bound processes beside the body."""
    started: list[subprocess.Popen[bytes]] = []
    try:
        started += [subprocess.Popen([sys.executable, "-c", BURN], stderr=subprocess.DEVNULL) for _ in range(num_processes)]
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()
