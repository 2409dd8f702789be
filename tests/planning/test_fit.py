"""Sweeps: the largest batch and the longest sequence that fit a memory, found by prediction and held to real steps."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from bench.measure import environment
from bench.measure.memory_tracker import Ledger, Watch, counts_of_step, predicted_counts
from bench.measure.step import build_step
from bench.planning import fit
from bench.planning.build import build_plan
from bench.planning.check import check_plan
from bench.planning.fit import headroom_of, peak_bytes
from bench.planning.search import LENGTHS, longest_sized, narrow
from bench.planning.values import MAX_SIZE, memory
from bench.running.merge import merge_runs
from bench.running.store import StoredRun, parse_plan
from bench.serialize import from_json, to_json
from bench.spec import Cell, Plan, PlannedCell, Recipe, RequestError, Settings, Skipped, Sweep
from tests.requested import parse_request

MIB = 2**20
SMALL = {"width": "16", "depth": "1", "metrics": "params"}


def planned(settings: Settings = Settings(), **flags: Any) -> Plan:
    request = parse_request(**{"models": "gmlp", "seq": "17", "batch": "max", "memory": "1MiB", **SMALL, **flags})
    return build_plan(request, settings=settings, recipe=Recipe(), device="cpu")


def batches(plan: Plan, model: str = "gmlp") -> list[int]:
    return [p.cell.workload.batch_size for p in plan.cells if p.cell.model.name == model]


def cell_with(planned_cell: PlannedCell, **changes: Any) -> Cell:
    data = to_json(planned_cell.cell)
    data["workload"] |= {name: value for name, value in changes.items() if name == "batch_size"}
    data["model"]["shape"] |= {name: value for name, value in changes.items() if name == "seq_len"}
    cell: Cell = from_json(Cell, data)
    return cell


def real_peak(cell: Cell) -> int:
    """Of a step that is computed, not predicted."""
    return counts_of_step(build_step(cell)).live.total


# the words of the request


@pytest.mark.parametrize(("text", "num_bytes"), [("512MiB", 536_870_912), ("8GiB", 8_589_934_592), ("1.5 KiB", 1536)])
def test_an_amount_of_memory_is_read(text: str, num_bytes: int) -> None:
    assert memory(text) == num_bytes


@pytest.mark.parametrize("text", ["3 apples", "8", "8GB", "-1GiB", "0MiB", "1e3MiB", "GiB", "9999999999TiB"])
def test_what_is_no_amount_of_memory_is_refused(text: str) -> None:
    with pytest.raises(RequestError, match="not an amount of memory") as refused:
        planned(memory=text)
    assert refused.value.hint == "try 8GiB"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"batch": "8"}, "--memory needs --batch max or --seq max"),
        ({"seq": "max"}, "--batch max and --seq max cannot be combined"),
        ({"batch_tokens": "1024"}, "--batch and --batch-tokens both set the batch size"),
        ({"batch": "8", "seq": "max", "task": "digits"}, "task digits has fixed lengths"),
        ({"batch": "max,many"}, "'many' is not a whole number"),
        ({"batch": "max,"}, "has an empty entry"),
    ],
)
def test_what_cannot_be_climbed_is_refused(flags: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        planned(**flags)


# the search, on made peaks


def searched(monkeypatch: pytest.MonkeyPatch, peak_at: Callable[[int], float], limit: int) -> tuple[int, set[int]]:
    """The largest batch whose made peak, in MiB, fits, and the batches that were predicted."""
    asked: set[int] = set()

    def peak(cell: Cell) -> int:
        asked.add(cell.workload.batch_size)
        return int(peak_at(cell.workload.batch_size) * MIB)

    monkeypatch.setattr(fit, "peak_bytes", peak)
    (sweep,) = planned(memory=f"{limit}MiB").ladders
    return sweep.largest, asked


@pytest.mark.parametrize(("limit", "largest"), [(1000, 331), (1001, 331), (1002, 331), (1003, 332), (10, 1), (13, 2)])
def test_an_affine_peak_is_solved_in_a_few_predictions(limit: int, largest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found, asked = searched(monkeypatch, lambda size: 7 + 3 * size, limit)
    assert found == largest
    assert len(asked) <= 5


def test_a_peak_that_bends_is_found_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    largest, _ = searched(monkeypatch, lambda size: max(5000 + size, 100 * size, 300 * size - 50_000), 400_000)
    assert largest == 1500  # 300 x 1500 - 50,000 = 400,000


def test_a_peak_that_does_not_grow_ends_at_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    assert searched(monkeypatch, lambda _: 5, 6)[0] == MAX_SIZE


def sized_where(has_size: Callable[[int], bool]) -> Callable[[int], tuple[PlannedCell, ...] | Skipped]:
    return lambda n: () if has_size(n) else Skipped(model="made", seq_len=n, budget=1, reason="no size")


@pytest.mark.parametrize(
    ("has_size", "longest"),
    [
        (lambda n: n <= 126, 126),
        (lambda n: n <= 5300 or 11_000 <= n <= 11_905, 11_905),  # a gap where one width is too large and the next too small
        (lambda n: n % 7 < 4 and n <= 400, 400),  # a budget that is missed here and there
        (lambda n: n == 17, 17),
        (lambda _: True, 1_048_576),
        (lambda _: False, None),
    ],
    ids=["one stretch", "gap", "holes", "only the first", "always", "never"],
)
def test_the_longest_length_with_a_size_is_found(has_size: Callable[[int], bool], longest: int | None) -> None:
    assert longest_sized(sized_where(has_size), LENGTHS) == longest


@pytest.mark.parametrize("power", [1, 2, 3])
def test_the_largest_that_fits_is_found_with_a_guess_or_without(power: int) -> None:
    def fits(n: int) -> bool:
        return bool(n**power <= 700**power)

    def on_the_line(low: int, high: int) -> float:
        return low + float((700**power - low**power) / (high**power - low**power)) * (high - low)

    at = sized_where(lambda _: True)
    assert narrow(at, fits, 257, 1025, on_the_line) == narrow(at, fits, 257, 1025) == (700, 701)


def test_a_length_without_a_size_above_the_longest_ends_it() -> None:
    at = sized_where(lambda n: n <= 600 or n == 1025)
    assert narrow(at, lambda n: n <= 900, 257, 1025, lambda *_: 900) == (600, 601)


def test_lengths_without_a_size_are_stepped_over() -> None:
    at = sized_where(lambda n: n % 7 < 4)
    assert narrow(at, lambda n: n <= 500, 257, 1025) == (500, 501)


# plans


@pytest.mark.parametrize(("model", "phase"), [("gmlp", "infer"), ("vit", "train")])
def test_a_sweep_ends_at_the_largest_batch_of_which_a_real_step_fits(model: str, phase: str) -> None:
    plan = planned(models=model, phase=phase, memory="2MiB")
    (sweep,) = plan.ladders
    assert batches(plan, model) == [b for b in (1, 4, 16, 64, 256, 1024) if b < sweep.largest] + [sweep.largest]
    assert sweep.cells == tuple(p.cell.cell_id for p in plan.cells)
    assert real_peak(plan.cells[-1].cell) == sweep.peak_bytes <= 2 * MIB
    assert real_peak(cell_with(plan.cells[-1], batch_size=sweep.largest + 1)) == sweep.beyond_bytes
    assert sweep.beyond_bytes is not None
    assert sweep.beyond_bytes > 2 * MIB


def test_a_sweep_ends_at_the_longest_sequence_of_which_a_real_step_fits() -> None:
    plan = planned(seq="max", batch="2", memory="2MiB")
    (sweep,) = plan.ladders
    lengths = [p.cell.model.shape.seq_len for p in plan.cells]
    assert lengths == [n for n in (17, 65, 257, 1025) if n < sweep.largest] + [sweep.largest]
    assert real_peak(plan.cells[-1].cell) == sweep.peak_bytes <= 2 * MIB
    assert real_peak(cell_with(plan.cells[-1], seq_len=sweep.largest + 1)) > 2 * MIB
    assert (sweep.axis, sweep.beyond) == ("seq", sweep.largest + 1)


def test_a_budget_ends_a_sweep_where_its_n_by_n_weights_exceed_it() -> None:
    plan = planned(seq="max", batch="1", memory="1GiB", width="", params="20k")
    (sweep,) = plan.ladders
    longest = plan.cells[-1].cell.model.shape.seq_len
    assert sweep.largest == longest < 20_000**0.5  # one block: n^2 weights, and some for the rest
    assert sweep.beyond_bytes is None
    assert "20,000 parameters" in sweep.ends_because


def test_the_policy_shape_keeps_the_first_size_along_the_sweep() -> None:
    plan = planned(seq="max", batch="1", memory="1MiB", width="", params="20k", match="shape")
    assert len({(p.cell.model.shape.width, p.cell.model.shape.ffn_width) for p in plan.cells}) == 1
    assert len(plan.cells) > 2


def test_named_sizes_and_a_sweep_share_their_cells() -> None:
    plan = planned(batch="4,5,max")
    assert sorted(batches(plan)) == sorted({5, *batches(planned())})
    assert not plan.skipped


def test_named_lengths_and_a_sweep_stand_together() -> None:
    lengths = [p.cell.model.shape.seq_len for p in planned(seq="33,max", batch="1", memory="128KiB").cells]
    assert lengths[:2] == [33, 17]
    assert lengths[2] > 33


def test_a_model_too_large_for_the_memory_is_skipped_and_named() -> None:
    plan = planned(models="gmlp,vit", seq="257", memory="512KiB")
    (skipped,) = plan.skipped
    assert (skipped.model, batches(plan, "gmlp")) == ("gmlp", [])
    assert skipped.reason.startswith("batch 1 needs 747 KiB by prediction, more than 512 KiB (--memory)")
    with pytest.raises(RequestError, match="batch 1 needs") as refused:
        planned(seq="257", memory="512KiB")
    assert "more --memory" in refused.value.hint


def test_a_sweep_that_would_take_too_long_is_cut_and_says_so() -> None:
    whole = planned(seq="65", memory="8MiB")
    plan = planned(Settings(limit_s=0.401), seq="65", memory="8MiB")  # a job takes 0.4 s even for the smallest
    assert batches(plan) == batches(whole)[: len(batches(plan))]
    assert 0 < len(batches(plan)) < len(batches(whole))
    (skipped,) = plan.skipped
    assert f"batch {batches(whole)[len(batches(plan))]}" in skipped.reason
    assert "--limit-s allows 0.401" in skipped.reason
    assert plan.ladders[0].largest == whole.ladders[0].largest


def test_a_plan_with_sweeps_is_the_same_when_it_is_read_again(tmp_path: Path) -> None:
    plan = planned()
    data = json.loads(json.dumps(to_json(plan)))
    again = parse_plan(data, tmp_path)
    assert (again, again.plan_id) == (plan, plan.plan_id)
    check_plan(again, "memory")
    data["ladders"][0]["cells"].append("stray")
    with pytest.raises(RequestError, match="a sweep holds the cell 'stray'"):
        check_plan(parse_plan(data, tmp_path), "plan.json")


def test_a_plan_without_sweeps_does_not_mention_them() -> None:
    assert "ladders" not in to_json(planned(batch="1", memory=""))


def test_merged_runs_keep_the_sweeps_of_all() -> None:
    plans = [planned(), planned(models="vit")]
    runs = [StoredRun(folder=Path(f"results/{i}"), plan=plan, environment={}, records=()) for i, plan in enumerate(plans)]
    assert merge_runs(runs).plan.ladders == (*plans[0].ladders, *plans[1].ladders)


def test_a_cell_of_another_device_is_predicted_here_and_says_so() -> None:
    """No CPU has that attention: asked for on a GPU that is not here, torch chooses."""
    request = parse_request(**{"models": "vit", "seq": "17", "batch": "max", "memory": "1MiB", "attention": "efficient", **SMALL})
    if torch.cuda.is_available():
        pytest.skip("the GPU is here")
    plan = build_plan(request, settings=Settings(), recipe=Recipe(), device="cuda")
    assert plan.ladders[0].memory_source == "--memory, predicted as on a CPU"
    with pytest.raises(RequestError, match="its step cannot be predicted: "):
        build_plan(request, settings=Settings(), recipe=Recipe(), device="cpu")


def test_refused_engines_are_named_where_only_a_sweep_names_lengths() -> None:
    plan = planned(models="gmlp,vit", seq="max", batch="1", engine="eager,graph", memory="128KiB")
    assert [s.model for s in plan.skipped if s.reason.startswith("--engine graph")] == ["gmlp", "vit"]
    with pytest.raises(RequestError, match="--engine graph") as refused:
        planned(seq="max", batch="1", engine="graph", memory="128KiB")
    assert "--engine" in refused.value.hint


def test_lengths_whose_weights_alone_are_too_large_are_not_predicted(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Cell] = []

    def kept(cell: Cell) -> int:
        asked.append(cell)
        return peak_bytes(cell)

    monkeypatch.setattr(fit, "peak_bytes", kept)
    plan = planned(seq="max", batch="1", memory="128KiB")
    assert plan.ladders[0].beyond_bytes is not None
    assert max(cell.model.shape.seq_len for cell in asked) < (128 * 1024 / 4) ** 0.5  # one block has n^2 weights


@pytest.mark.slow
def test_a_stepwise_model_ends_where_predicting_would_take_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit, "MAX_PREDICTION_S", 2.0)
    plan = planned(models="metaformer+mixer=gru", seq="max", batch="1", memory="8GiB")
    (sweep,) = plan.ladders
    assert (sweep.largest, sweep.beyond) == (257, 1025)
    assert "one token after another, n = 1,025 takes about 4 s to predict" in sweep.ends_because


# the memory where none is stated


@pytest.fixture
def available(monkeypatch: pytest.MonkeyPatch) -> Callable[[int | None], None]:
    def tell(num_bytes: int | None) -> None:
        monkeypatch.setattr(environment, "available_memory_bytes", lambda: num_bytes)
        monkeypatch.setattr(environment, "gpu_facts", lambda: {"gpu_memory_bytes": num_bytes})

    return tell


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_without_a_stated_memory_a_share_of_the_devices_counts(device: str, available: Callable[[int | None], None]) -> None:
    available(int(13.4 * 2**30))
    headroom = headroom_of(parse_request(models="gmlp", seq="17", batch="max"), device)
    assert headroom.num_bytes == 10 * 2**30  # 80 % are 10.72 GiB
    assert headroom.source.startswith("80 % of the memory")


def test_a_device_that_does_not_say_needs_a_stated_memory(available: Callable[[int | None], None]) -> None:
    available(None)
    with pytest.raises(RequestError, match="--memory is missing"):
        planned(memory="")
    assert isinstance(planned().ladders[0], Sweep)


# weights of half precision, which are built in fp32


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_what_building_holds_is_predicted(dtype: str) -> None:
    (found,) = planned(models="gmlp", seq="129", batch="1", memory="", dtype=dtype).cells
    ledger = Ledger()
    with Watch(ledger):
        build_step(found.cell)
    ledger.close()
    counts = predicted_counts(found.cell)
    assert counts.building == ledger.peak.total
    assert counts.building > 4 * found.sizing.params
    assert peak_bytes(found.cell) == max(counts.building, counts.live.total)
    assert (counts.building > counts.live.total) is (dtype == "bf16")  # one sample is little beside the n x n weights


def test_a_sweep_leaves_headroom_for_building() -> None:
    plan = planned(models="gmlp", seq="max", batch="1", memory="1MiB", dtype="bf16")
    (sweep,) = plan.ladders
    params = plan.cells[-1].sizing.params
    assert 4 * params < sweep.peak_bytes <= MIB
    assert sweep.beyond_bytes is not None
    assert sweep.beyond_bytes > MIB


# models that are not ours


@pytest.mark.slow
def test_another_persons_model_is_predicted_too() -> None:
    """Its constructor reads values of tensors, which fakes do not have: it is built first and then copied."""
    pytest.importorskip("timm")
    flags = {"models": "timm:deit_tiny_patch16_224", "metrics": "latency", "batch": "2", "phase": "train"}
    plan = build_plan(parse_request(**flags), settings=Settings(), recipe=Recipe(), device="cpu")
    cell = plan.cells[0].cell
    assert peak_bytes(cell) == real_peak(cell)
