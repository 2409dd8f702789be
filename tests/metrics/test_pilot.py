"""The pilot: how long one call takes, and what memory its process needs."""

from __future__ import annotations

from typing import Any

import pytest

from bench.planning.timing import PILOT, Pilot, pilots_of
from bench.running.executors.process import Executor
from bench.spec import Cell, Job, ModelSpec, Settings, Workload
from models.layers.shape import Shape
from tests.fake_executor import recorded

MIB = 2**20


def job(**work: Any) -> Job:
    model = ModelSpec(name="vit", family="vit", shape=Shape(seq_len=65, width=64, depth=2, heads=2, ffn_width=256))
    cell = Cell(model=model, workload=Workload(**{"attention": "math", **work}))
    return Job(cell=cell, metric=PILOT, repeat=0, settings=Settings(sample_s=0.05))


@pytest.fixture(scope="module")
def pilots() -> list[Pilot]:
    """Of one sample and of two hundred, each in a process of its own."""
    with Executor() as executor:
        found = [pilots_of([recorded(asked, executor.run(asked))]) for asked in (job(batch_size=1), job(batch_size=200))]
    return [pilot for by_cell in found for pilot in by_cell.values()]


def test_a_larger_batch_takes_longer_and_more_memory(pilots: list[Pilot]) -> None:
    small, large = pilots
    assert 0 < small.call_s < large.call_s
    assert small.peak_bytes is not None
    assert large.peak_bytes is not None
    activations = 200 * 65 * (64 + 256) * 4
    assert large.peak_bytes >= small.peak_bytes + activations


def test_a_process_is_not_charged_for_what_it_shares_with_the_fork_server(pilots: list[Pilot]) -> None:
    """torch alone takes some hundred MiB."""
    small = pilots[0]
    assert small.peak_bytes is not None
    assert small.peak_bytes < 100 * MIB
    assert small.available_bytes is not None
    assert small.available_bytes > small.peak_bytes
