"""What holds for every test."""

from __future__ import annotations

import functools
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from bench.measure import environment
from tests.answered import answer as answer

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
    for_a_gpu = [item for item in items if item.get_closest_marker("cuda")]
    if for_a_gpu and not _has_gpu():
        for item in for_a_gpu:
            item.add_marker(pytest.mark.skip(reason="no CUDA GPU here"))
    items.sort(key=lambda item: not any(hasattr(getattr(item, "module", None), name) for name in STARTERS))


def _has_gpu() -> bool:
    import torch  # here, so that a process that only hands tests out to others does not wait for it

    return torch.cuda.is_available()


@pytest.fixture
def in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(autouse=True, scope="session")
def _light_torch() -> Iterator[None]:
    """One thread: the models under test are small, a second costs more than it brings, and much more on a busy machine.

    Without a GPU, a seed is the CPU's alone: torch notes for each kind of device where it was asked to seed it, until there is one.
    """
    import torch

    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        if not torch.cuda.is_available():
            patch.setattr(torch, "manual_seed", torch.default_generator.manual_seed)
        yield


@pytest.fixture(autouse=True, scope="session")
def _no_waiting() -> Iterator[None]:
    """A run looks half a second for others' work, reads its own code and waits for the disk at every record: once, where tests do so hundreds of
    times. Real runs, in processes of their own, do it all."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(environment.busy_cores, "__defaults__", (0.0,))
        patch.setattr(environment, "without_prose", functools.cache(environment.without_prose))
        patch.setattr(os, "fsync", lambda _: None)
        yield
