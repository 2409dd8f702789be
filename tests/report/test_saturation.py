"""The section on saturation: there where a run holds sweeps, with what fits, where throughput is near its peak, and a figure."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.analysis.study import Study
from bench.report.charts.saturation import draw_saturation, saturation_title, shown_sweeps
from bench.report.charts.style import figure_style, slug
from bench.report.document import Block, FigureBlock, TableBlock
from bench.report.sections.saturation import saturation_blocks, sweep_table
from bench.report.write import write_report
from bench.spec import Sweep
from tests.report.conftest import page_text

BATCHES = (1, 4, 16, 60)
MIB = 2**20


def run(
    make_data: Any, axis: str = "batch", lengths: tuple[int, ...] = (65,), metrics: tuple[str, ...] = ("params", "latency"), **ending: Any
) -> Study:
    """Sweeps of two models; in the batch, a step takes 1 ms and a tenth for each sample: 60 of them make 8,571 samples/s, 16 make 6,154."""

    def change(rows: Any) -> None:
        if axis == "batch":
            rows["latency_ms"] = 1.0 + 0.1 * rows["batch_size"]
            rows["latency_low_ms"], rows["latency_high_ms"] = 0.9 * rows["latency_ms"], 1.1 * rows["latency_ms"]
        rows["peak_memory_bytes"], rows["memory_source"] = 31.5 * MIB, "live_storages"

    works = [{"batch_size": b} for b in BATCHES] if axis == "batch" else [{}]
    data: Study = make_data(models=("gmlp", "vit"), lengths=lengths, works=works, metrics=metrics, change=change)
    return dataclasses.replace(data, plan=dataclasses.replace(data.plan, ladders=sweeps(data, axis, **ending)))


def sweeps(data: Study, axis: str, **ending: Any) -> tuple[Sweep, ...]:
    cells: dict[str, list[str]] = {}
    for planned in data.plan.cells:
        cells.setdefault(planned.cell.model.name, []).append(planned.cell.cell_id)
    largest = 60 if axis == "batch" else max(p.cell.model.shape.seq_len for p in data.plan.cells)
    values: dict[str, Any] = {
        "memory_bytes": 32 * MIB,
        "memory_source": "--memory",
        "largest": largest,
        "peak_bytes": round(31.5 * MIB),
        "beyond": largest + 1,
        "beyond_bytes": round(32.1 * MIB),
        "ends_because": "memory",
    }
    return tuple(Sweep(axis=axis, cells=tuple(ids), **{**values, **ending}) for ids in cells.values())


def section(data: Study) -> tuple[Block, ...]:
    return saturation_blocks(data)


def only_table(data: Study) -> list[dict[str, str]]:
    (table,) = [block.table for block in section(data) if isinstance(block, TableBlock)]
    return [dict(zip(table.headers, row, strict=True)) for row in table.rows]


def test_a_row_per_sweep_says_what_fits_and_where_it_saturates(make_data: Any) -> None:
    first, second = only_table(run(make_data))
    assert (first["model"], second["model"]) == ("gmlp", "vit")
    assert first["largest batch that fits"] == "60"
    assert (first["predicted peak"], first["measured peak"]) == ("31.5000 MiB", "31.5000 MiB")
    assert (first["memory"], first["one more needs"]) == ("32.0 MiB, --memory", "32.1000 MiB")
    assert first["peak samples/s"] == "8.57 k [7.79 k, 9.52 k]"
    assert (first["at batch"], first["90 % of it from batch"], first["status of largest"]) == ("60", "60", "measured")


def test_a_sweep_of_lengths_says_how_far_it_goes_and_why_no_further(make_data: Any) -> None:
    (row, _) = only_table(run(make_data, axis="seq", lengths=(17, 65), beyond_bytes=None, ends_because="no size"))
    assert (row["longest n that fits"], row["next n"], row["batch"]) == ("65", "66: no size", "32")


def test_a_largest_batch_that_was_too_slow_to_run_is_named(make_data: Any) -> None:
    (row, _) = only_table(run(make_data, largest=5000, beyond=5001))
    assert (row["largest batch that fits"], row["status of largest"]) == ("5,000", "not run: too slow")
    assert "measured peak" not in row


def drawn(data: Study) -> FigureBlock:
    with figure_style():
        block = draw_saturation(data)
    assert block is not None
    return block


def lines_of(block: FigureBlock) -> dict[str, list[list[float]]]:
    (axis,) = block.figure.axes
    return {str(line.get_gid()): np.asarray(line.get_xydata(), dtype=float).tolist() for line in axis.get_lines() if line.get_gid()}


def test_the_figure_holds_every_step_and_rings_the_saturated_one(make_data: Any) -> None:
    block = drawn(run(make_data))
    rates = [[b, 1e3 * b / (1.0 + 0.1 * b)] for b in BATCHES]
    lines = lines_of(block)
    assert lines[f"series-{slug('gMLP')}"] == lines[f"series-{slug('ViT')}"] == rates
    assert lines[f"near-{slug('gMLP')}"] == rates[-1:]
    assert block.figure.axes[0].get_xlabel() == "batch size"
    assert block.title == "Batch 60 reaches 90 % of the best throughput"
    assert block.caption.startswith("n = 65, infer, eager.")


def test_the_title_names_the_batch_of_each_model(make_data: Any) -> None:
    first, second = drawn_sweeps = shown_sweeps(run(make_data).saturations)
    earlier = dataclasses.replace(first, near=first.steps.to_dict("records")[1])
    assert saturation_title([earlier, second]) == "gMLP reaches 90 % of its best throughput at batch 4, ViT at 60"
    assert saturation_title([earlier, second, *drawn_sweeps]) == "Batch 4 to 60 reaches 90 % of the best throughput"


def test_one_scope_is_drawn_inference_before_training(make_data: Any) -> None:
    found = run(make_data).saturations
    longer = [dataclasses.replace(each, steps=each.steps.assign(seq_len=257)) for each in found]
    assert {each.steps["seq_len"].iloc[0] for each in shown_sweeps([*found, *longer])} == {257}
    training = [dataclasses.replace(each, steps=each.steps.assign(phase="train")) for each in found]
    assert {each.steps["phase"].iloc[0] for each in shown_sweeps([*training, found[0]])} == {"infer"}


def test_a_sweep_of_lengths_is_drawn_in_tokens(make_data: Any) -> None:
    data = run(make_data, axis="seq", lengths=(17, 65))
    block = drawn(data)
    rows = data.frame[data.frame["model"] == "gmlp"]
    assert lines_of(block)[f"series-{slug('gMLP')}"] == [
        [n, pytest.approx(32e3 * n / ms)] for n, ms in zip(rows["seq_len"], rows["latency_ms"], strict=True)
    ]
    assert block.title == "gMLP fits up to n = 65 and ViT fits up to n = 65"


def test_untimed_sweeps_have_no_figure(make_data: Any) -> None:
    data = run(make_data, metrics=("params",), axis="seq", lengths=(17, 65))
    with figure_style():
        assert draw_saturation(data) is None


def test_a_run_without_sweeps_has_no_such_section(make_data: Any) -> None:
    assert section(make_data(models=("gmlp",), lengths=(65,))) == ()


def test_the_report_has_the_section(make_data: Any, tmp_path: Path) -> None:
    data = run(make_data, metrics=("params",))
    write_report(data, tmp_path, every_figure=True)
    assert "## Saturation" in page_text(data)
    assert (tmp_path / "figures" / "saturation.svg").exists()


def test_a_plan_shows_its_sweeps_before_anything_is_measured(make_data: Any) -> None:
    table = sweep_table(run(make_data).plan)
    assert table.rows[0][:3] == ("gmlp", "batch at n = 65", "infer, eager, fp32")
    assert "61 needs 32.1000 MiB" in table.rows[0]
