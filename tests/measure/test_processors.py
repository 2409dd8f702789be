"""The members of a group share their processors, other ones in the next round; who measures nothing keeps off them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.measure import processors
from bench.measure.processors import kept_free, pin, processors_of, usable_processors
from bench.spec import Job, Recipe, Settings
from tests.made_jobs import small_job

CAN_PIN = hasattr(os, "sched_setaffinity")


def job(threads: int = 1, repeat: int = 0, device: str = "cpu") -> Job:
    return small_job("latency", repeat=repeat, settings=Settings(threads=threads), work={"device": device})


@pytest.fixture
def usable(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The processors that a process may use; the second half are the siblings of the first."""
    found = [0, 1, 2, 3]
    monkeypatch.setattr(processors, "usable_processors", lambda: found)
    return found


@pytest.mark.parametrize(
    ("threads", "expected"),
    [(1, [{0}, {1}, {2}, {3}, {0}]), (2, [{0, 1}, {2, 3}, {0, 1}]), (3, [{0, 1, 2}, {0, 1, 3}, {0, 2, 3}]), (4, [set()]), (8, [set()])],
)
@pytest.mark.usefixtures("usable")
def test_rounds_take_turns_on_the_processors(threads: int, expected: list[set[int]]) -> None:
    """With as many threads as processors there is nothing to choose."""
    assert [processors_of(job(threads, repeat)) for repeat in range(len(expected))] == expected


def test_a_gpu_and_a_system_that_cannot_tell_leave_the_choice_to_the_system(usable: list[int]) -> None:
    assert processors_of(job(device="cuda")) == frozenset()
    usable.clear()
    assert processors_of(job()) == frozenset()


@pytest.mark.usefixtures("usable")
def test_trainings_of_two_runs_do_not_meet_on_one_processor() -> None:
    assert processors_of(small_job("accuracy", settings=Settings(threads=1, train_threads=1), recipe=Recipe())) == frozenset()


@pytest.mark.parametrize(
    ("siblings", "order"),
    [
        ({}, [0, 1, 2, 3]),
        ({0: "0-1", 1: "0-1", 2: "2-3", 3: "2-3"}, [0, 2, 1, 3]),
    ],
)
def test_one_processor_of_each_core_comes_first(
    siblings: dict[int, str], order: list[int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for number, text in siblings.items():
        folder = tmp_path / f"cpu{number}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{text}\n")
    monkeypatch.setattr(processors, "TOPOLOGY", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3}, raising=False)
    assert usable_processors() == order


@pytest.mark.skipif(not CAN_PIN or len(os.sched_getaffinity(0)) < 2, reason="needs two processors and a system that pins")
def test_a_child_is_pinned_and_this_process_keeps_off() -> None:
    before = os.sched_getaffinity(0)
    chosen = frozenset([min(before)])
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with child, kept_free(chosen):
        assert pin(child.pid, chosen)
        assert os.sched_getaffinity(child.pid) == chosen
        assert os.sched_getaffinity(0) == before - chosen
        child.communicate(b"\n")
    assert os.sched_getaffinity(0) == before
    assert not pin(child.pid, chosen)  # it has ended


def test_without_other_processors_this_process_stays() -> None:
    before = usable_processors()
    with kept_free(frozenset(before)):
        assert usable_processors() == before
