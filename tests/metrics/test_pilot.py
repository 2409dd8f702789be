"""The pilot: how long one call takes, and what memory its process needs."""

from __future__ import annotations

from typing import Any

import pytest

from bench.measure.timer import WarmUp
from bench.metrics import pilot
from bench.planning.timing import pilots_of
from bench.running.executors.process import Executor
from bench.spec import PILOT, Job, Settings
from tests.fake_executor import recorded
from tests.made_jobs import small_job, small_model

MIB = 2**20


def job(**work: Any) -> Job:
    model = small_model(seq_len=65, width=64, depth=2, heads=2, ffn_width=256)
    return small_job(PILOT, model, work={"attention": "math", **work}, settings=Settings(sample_s=0.05))


def test_a_pilot_is_as_fast_as_its_fastest_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.measure.timer.warm_up", lambda *_: WarmUp(first_call_s=0.5, calls=3, call_s=1e-4))
    assert pilot.measure(job()).values["call_s"] == 1e-4
    monkeypatch.setattr("bench.measure.timer.warm_up", lambda *_: WarmUp(first_call_s=0.5, calls=3, call_s=9.0))
    assert 0 < pilot.measure(job()).values["call_s"] < 9


@pytest.mark.slow
def test_a_larger_batch_takes_longer_and_more_memory_and_a_process_is_not_charged_for_what_it_shares() -> None:
    """Of one sample and of two hundred, each in a process of its own; torch alone, which it shares with the fork server, takes some hundred MiB."""
    with Executor() as executor:
        found = [pilots_of([recorded(asked, executor.run(asked))]) for asked in (job(batch_size=1), job(batch_size=200))]
    small, large = (one for by_cell in found for one in by_cell.values())
    assert 0 < small.call_s < large.call_s
    assert small.peak_bytes is not None
    assert large.peak_bytes is not None
    activations = 200 * 65 * (64 + 256) * 4
    assert large.peak_bytes >= small.peak_bytes + activations
    assert small.peak_bytes < 100 * MIB
    assert small.available_bytes is not None
    assert small.available_bytes > small.peak_bytes
