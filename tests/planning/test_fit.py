"""What fits a memory: the largest batch and the longest input, found by prediction and held to real steps."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch

import bench
from bench.measure.memory_tracker import Ledger, Watch, counts_of_step, predicted_counts
from bench.measure.step import build_step
from bench.planning.fit import LargestSizes, largest_fitting, largest_sizes, peak_bytes
from bench.planning.values import MAX_SIZE, memory
from bench.serialize import from_json, to_json
from bench.spec import Cell, Plan, RequestError
from tests.answered import Answer
from tests.planning.plans import plan_of

MIB = 2**20
SMALL = {"width": "16", "depth": "1", "metrics": "params"}


def planned(device: str = "cpu", **flags: Any) -> Plan:
    return plan_of(device=device, **{"models": "gmlp", "seq": "17", "batch": "4", **SMALL, **flags})


def found(memory_bytes: int, **flags: str) -> list[LargestSizes]:
    return list(largest_sizes(planned(**flags), memory_bytes).values())


def cell_with(cell: Cell, *, batch_size: int, seq_len: int) -> Cell:
    data = to_json(cell)
    data["workload"]["batch_size"], data["model"]["shape"]["seq_len"] = batch_size, seq_len
    changed: Cell = from_json(Cell, data)
    return changed


def real_peak(cell: Cell) -> int:
    """Of a step that is computed, not predicted."""
    return counts_of_step(build_step(cell)).live.total


# the size of the memory


def test_an_amount_of_memory_is_read() -> None:
    assert (memory("8GiB"), memory("1.5 KiB")) == (8_589_934_592, 1536)


@pytest.mark.parametrize("text", ["8", "8GB", "-1GiB", "0MiB", "9999999999TiB"])
def test_what_is_no_amount_of_memory_is_refused(text: str) -> None:
    with pytest.raises(RequestError, match="not an amount of memory") as refused:
        memory(text)
    assert refused.value.hint == "try 8GiB"


# the search, on made peaks


def searched(peak_at: Callable[[int], int], limit: int, *, start: int = 1, least: int = 1) -> tuple[int, set[int]]:
    """The largest size that fits, and the sizes that were predicted."""
    asked: set[int] = set()

    def peak(size: int) -> int:
        asked.add(size)
        return peak_at(size)

    return largest_fitting(peak, limit, start=start, least=least), asked


@pytest.mark.parametrize("start", [1, 4096])
@pytest.mark.parametrize(("limit", "largest"), [(1002, 331), (1003, 332), (10, 1), (9, 0)])
def test_an_affine_peak_is_solved_in_few_predictions(limit: int, largest: int, start: int) -> None:
    size, asked = searched(lambda size: 7 + 3 * size, limit, start=start)
    assert size == largest
    assert len(asked) <= 14


@pytest.mark.parametrize("power", [2, 3])
def test_a_peak_that_bends_is_found_all_the_same(power: int) -> None:
    assert searched(lambda n: n**power, 700**power, start=17, least=2)[0] == 700
    assert searched(lambda n: n**power, 701**power - 1, start=4096, least=2)[0] == 700


def test_a_peak_that_does_not_grow_ends_at_the_bound() -> None:
    assert searched(lambda _: 5, 6)[0] == MAX_SIZE


def test_no_size_below_the_least_is_tried() -> None:
    size, asked = searched(lambda _: 7, 6, start=17, least=2)
    assert (size, min(asked)) == (0, 2)


# predictions, held to real steps


@pytest.mark.parametrize(("model", "phase"), [("gmlp", "infer"), ("vit", "train")])
def test_a_real_step_of_the_largest_sizes_fits_and_one_more_does_not(model: str, phase: str) -> None:
    plan = planned(models=model, phase=phase)
    cell = plan.cells[0].cell
    sizes = largest_sizes(plan, 2 * MIB)[cell.cell_id]
    assert sizes.largest_batch
    assert sizes.largest_seq_len
    for more, fits in ((0, True), (1, False)):
        assert (real_peak(cell_with(cell, batch_size=sizes.largest_batch + more, seq_len=17)) <= 2 * MIB) is fits
        assert (real_peak(cell_with(cell, batch_size=4, seq_len=sizes.largest_seq_len + more)) <= 2 * MIB) is fits


def test_every_batch_of_a_plan_has_the_largest_n_of_its_smallest_batch() -> None:
    several = found(2 * MIB, batch="16,4", engine="eager,compile")
    assert len(several) == 4
    assert set(several) == set(found(2 * MIB))


def test_nothing_fits_where_the_weights_alone_are_too_large() -> None:
    assert found(1024, seq="257") == [LargestSizes(largest_batch=0, largest_seq_len=0)]


def test_a_length_at_which_a_model_cannot_be_built_is_too_short_for_it() -> None:
    (enough, none) = (found(limit, models="gmlp+rank=16", seq="17", batch="4")[0].largest_seq_len for limit in (2 * MIB, 64 * 1024))
    assert enough
    assert enough >= 17
    assert none == 0


def test_a_task_has_its_own_lengths_and_a_stepwise_model_is_not_predicted() -> None:
    (task,) = found(2 * MIB, task="digits")
    assert task.largest_batch
    assert task.largest_seq_len is None
    assert found(2 * MIB, models="metaformer+mixer=gru") == [LargestSizes(largest_batch=None, largest_seq_len=None)]


def test_a_cell_of_another_device_is_predicted_here() -> None:
    """No CPU has that attention: asked for on a GPU that is not here, torch chooses."""
    if torch.cuda.is_available():
        pytest.skip("the GPU is here")
    flags = {"models": "vit", "attention": "efficient"}
    assert all(sizes.largest_batch for sizes in largest_sizes(planned(device="cuda", **flags), MIB).values())
    with pytest.raises(RequestError, match="--memory: a step of vit cannot be predicted: "):
        found(MIB, **flags)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_what_building_holds_is_predicted(dtype: str) -> None:
    """Weights of half precision are built in fp32."""
    (planned_cell,) = planned(seq="129", batch="1", dtype=dtype).cells
    ledger = Ledger()
    with Watch(ledger):
        build_step(planned_cell.cell)
    ledger.close()
    counts = predicted_counts(planned_cell.cell)
    assert counts.building == ledger.peak.total
    assert counts.building > 4 * planned_cell.sizing.params
    assert peak_bytes(planned_cell.cell) == max(counts.building, counts.live.total)
    assert (counts.building > counts.live.total) is (dtype == "bf16")  # one sample is little beside the n x n weights


@pytest.mark.slow
def test_another_persons_model_is_predicted_too() -> None:
    """Its constructor reads values of tensors, which fakes do not have: it is built first and then copied."""
    pytest.importorskip("timm")
    plan = plan_of(models="timm:deit_tiny_patch16_224", metrics="latency", batch="2", phase="train")
    cell = plan.cells[0].cell
    assert peak_bytes(cell) == real_peak(cell)
    assert largest_sizes(plan, 2**30)[cell.cell_id].largest_seq_len is None


# the command and the function


def test_the_plan_shows_what_fits(answer: Answer) -> None:
    printed = []
    for memory_flag in ("", "--memory 2MiB"):
        code, out, _ = answer(f"plan --models gmlp,vit --seq 17 --width 16 --depth 1 --metrics params --json {memory_flag}")
        assert code == 0
        printed.append(json.loads(out))
    without, data = printed
    assert "largest" not in without
    assert data["memory_bytes"] == 2 * MIB
    assert [list(row) for row in data["largest"]] == [["cell_id", "largest_batch", "largest_seq_len"]] * 2
    table = bench.plan(models=["gmlp", "vit"], seq=17, width=16, depth=1, metrics="params", memory="2MiB").table
    assert table[["cell_id", "largest_batch", "largest_seq_len"]].to_dict("records") == data["largest"]
