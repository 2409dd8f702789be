"""What holds for every test."""

from __future__ import annotations

import os
import signal

import pytest
import torch
from hypothesis import settings

STARTERS = ("run_bench", "started", "bench_command")

# pytest's workers inherit a window of 80 columns, which tables would fit; here and in what tests start
os.environ.pop("COLUMNS", None)

# a shell's background jobs inherit that interrupts are ignored, jobs under nohup that hang-ups are; runs then ignore them too
for _number, _handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(_number) == signal.SIG_IGN:
        signal.signal(_number, _handler)

# no example may fail for being slow, and the same code gives the same verdict everywhere
settings.register_profile("project", deadline=None, derandomize=True)
settings.load_profile("project")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of a GPU are skipped where there is none. The files that start the program come first: they take longest, and where several processes
    share the files out none is left with them."""
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("cuda"):
                item.add_marker(pytest.mark.skip(reason="no CUDA GPU here"))
    items.sort(key=lambda item: not any(hasattr(getattr(item, "module", None), name) for name in STARTERS))


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    """The models under test are small: a second thread costs more than it brings, and much more on a busy machine."""
    torch.set_num_threads(1)
