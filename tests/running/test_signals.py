"""Signals: the first stops after the round in hand, the second at once; what was measured stays, and no worker is recorded as killed by them."""

from __future__ import annotations

import contextlib
import math
import os
import pty
import select
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.reading.store import read_run
from bench.reading.table import rows_of
from bench.running.runner import execute
from bench.running.signals import Stop
from bench.spec import MEASURED, Job, Outcome, Record
from tests.fake_executor import Silent, let_jobs_end, measured
from tests.processes import processes_of, started
from tests.running.small_plan import small_plan
from tests.running.waiting import comes_true
from tests.specimens import ROOT, run_bench

PILOTS = 2
ROUNDS, PER_ROUND = 8, 3  # two cells and the control
REQUEST = f"run --models vit --seq 17,18 --width 16 --depth 1 --batch 1 --metrics latency --rounds {ROUNDS} --quick --out mine".split()


def records(folder: Path) -> tuple[Record, ...]:
    return read_run(folder / "mine").records


def num_records(rounds: int) -> int:
    """Return the records of whole rounds; every fourth has the ceilings too."""
    return PILOTS + rounds * PER_ROUND + math.ceil(rounds / 4)


def is_whole(found: tuple[Record, ...]) -> bool:
    """Every outcome a measurement, none twice, and not all of them."""
    keys = {record.key for record in found}
    return len(keys) == len(found) < num_records(ROUNDS) and {record.outcome.status for record in found} == {MEASURED}


@pytest.mark.slow
def test_the_first_signal_stops_after_the_round_in_hand_and_the_same_command_goes_on(tmp_path: Path) -> None:
    with started(tmp_path, *REQUEST, num_lines=num_records(1) + 1) as run:
        os.killpg(run.pid, signal.SIGINT)  # as a terminal sends it, to the workers too
        _, err = run.communicate(timeout=300)
    assert run.returncode == 130, err
    assert "finishing this round" in err
    assert "--resume mine" in err
    found = records(tmp_path)
    assert is_whole(found)
    assert len(found) in map(num_records, range(ROUNDS))
    again = run_bench(ROOT, tmp_path, *REQUEST)
    assert again.returncode == 0, again.stderr
    assert records(tmp_path)[: len(found)] == found
    assert len({record.key for record in records(tmp_path)}) == len(records(tmp_path)) == num_records(ROUNDS)
    assert set(rows_of(read_run(tmp_path / "mine"))["num_rounds"]) == {ROUNDS}


@pytest.mark.slow
def test_the_second_signal_stops_at_once(tmp_path: Path) -> None:
    with started(tmp_path, *REQUEST, num_lines=num_records(1) + 1) as run:
        run.send_signal(signal.SIGINT)
        time.sleep(0.02)
        run.send_signal(signal.SIGINT)
        _, err = run.communicate(timeout=300)
    assert run.returncode == 130, err
    assert "Traceback" not in err
    assert "stopping now" in err
    assert "bench report mine" in err
    assert is_whole(records(tmp_path))
    assert not (tmp_path / "mine" / "table.csv").exists()  # who asks twice does not wait for tables


@contextlib.contextmanager
def read_until_left(terminal: int) -> Iterator[None]:
    """Read what is written to a terminal, as its window does; a terminal that nobody reads is full after 4 KiB, and its writer waits."""
    left = threading.Event()

    def read() -> None:
        while not left.is_set():
            if select.select([terminal], [], [], 0.05)[0]:
                os.read(terminal, 65536)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield
    finally:
        left.set()
        reader.join()


@pytest.mark.slow
def test_a_terminal_that_goes_away_ends_the_run_cleanly_and_it_goes_on_later(tmp_path: Path) -> None:
    terminal, inside = pty.openpty()
    with contextlib.ExitStack() as running:
        with read_until_left(terminal):
            run = running.enter_context(started(tmp_path, *REQUEST, num_lines=num_records(1) + 1, stream=inside))
        os.close(inside)
        os.close(terminal)  # from here on every write fails
        os.killpg(run.pid, signal.SIGHUP)  # what the system does where the terminal is the session's own
        assert run.wait(timeout=300) == 130
    found = records(tmp_path)
    assert is_whole(found)
    assert (tmp_path / "mine" / "table.csv").exists()
    again = run_bench(ROOT, tmp_path, "run", "--resume", "mine")
    assert again.returncode == 0, again.stderr
    assert len(records(tmp_path)) == num_records(ROUNDS)
    assert records(tmp_path)[: len(found)] == found


@pytest.mark.slow
def test_impatience_leaves_nobody_behind(tmp_path: Path) -> None:
    """However many interrupts come, in whatever moment of ending: the run ends, and its worker and server with it."""
    with started(tmp_path, *REQUEST, num_lines=num_records(1) + 1) as run:
        for _ in range(4):
            run.send_signal(signal.SIGINT)
            time.sleep(0.1)
        _, err = run.communicate(timeout=300)
    assert run.returncode in (130, -signal.SIGINT), err
    assert comes_true(lambda: list(processes_of(run.pid)) == [])
    assert is_whole(records(tmp_path))


def stopped(folder: Path, monkeypatch: pytest.MonkeyPatch, *numbers: signal.Signals) -> tuple[list[str], tuple[Record, ...]]:
    """What is said, and what is measured, where signals come during the second job of the second round; then the run goes on."""
    plan = small_plan(seq="17,18", metrics="latency,ceiling")
    said: list[str] = []
    num_done = 0

    def disturbed(job: Job) -> Outcome:
        nonlocal num_done
        num_done += 1
        if num_done == num_records(1) - PILOTS + 2:
            for number in numbers:
                os.kill(os.getpid(), number)
        return measured(job)

    let_jobs_end(monkeypatch, disturbed)
    with Stop(said.append) as stop:
        assert not execute(plan, folder, Silent(), executor="inline", stop=stop).complete
    found = read_run(folder).records
    going_on = execute(plan, folder, Silent(), executor="inline")
    assert going_on.complete
    assert going_on.stored.records[: len(found)] == found
    assert len({record.key for record in going_on.stored.records}) == len(going_on.stored.records) == num_records(3)
    return said, found


@pytest.mark.parametrize("numbers", [(signal.SIGTERM,), (signal.SIGHUP, signal.SIGHUP)])
def test_the_first_signal_leaves_whole_rounds(numbers: tuple[signal.Signals, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Be it told once or, where a terminal goes away, twice."""
    monkeypatch.setattr("bench.running.signals._discard_output", lambda _: None)
    said, found = stopped(tmp_path / "mine", monkeypatch, *numbers)
    assert said == ["finishing this round; press Ctrl-C again to stop now"]
    assert len(found) == num_records(2)


def test_the_second_signal_leaves_what_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said, found = stopped(tmp_path / "mine", monkeypatch, signal.SIGINT, signal.SIGINT)
    assert said[1:] == ["stopping now"]
    assert len(found) == num_records(1) + 1


def test_what_was_ignored_stays_ignored() -> None:
    """nohup, and a shell's background job."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Stop(print) as stop:
            os.kill(os.getpid(), signal.SIGINT)
            assert not stop.requested
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_training_stops_at_once() -> None:
    """It goes on from its checkpoint."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with Stop(print) as stop:
            stop.at_once = True
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGTERM)
            assert stop.requested
    finally:
        signal.signal(signal.SIGTERM, before)
