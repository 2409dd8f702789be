"""Records become one tidy row per cell; what was not measured is empty; the control stands apart."""

from __future__ import annotations

import csv
import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from bench.analysis.study import study
from bench.planning.jobs import control_cell
from bench.reading.store import StoredRun
from bench.reading.table import IDENTITY, control_of, json_rows, references_of, rows_of, write_table
from bench.spec import Job, Outcome, Plan, Recipe, RequestError, Settings
from tests import fake_executor
from tests.fake_executor import stored_run
from tests.planning.plans import plan_of, plan_of_arms
from tests.requested import parse_request

ROUNDS = 7


def planned(rounds: int = ROUNDS, **flags: Any) -> Plan:
    wanted = {"models": "gmlp,vit", "seq": "17,65", "params": "250k", "metrics": "params,latency", **flags}
    return plan_of(settings=Settings(rounds=rounds, seeds=3), **wanted)


def latency_ms(job: Job) -> float:
    """A cell's own cost, times what the whole round suffered."""
    return job.cell.model.shape.seq_len * (1.0 + 0.01 * (job.repeat % 3))


def measured(job: Job) -> Outcome:
    found = fake_executor.measured(job, 1.0 if job.metric == "pilot" else latency_ms(job), num_bursts=10)
    return dataclasses.replace(found, values={"accuracy": 0.9 + 0.01 * job.repeat}) if job.metric == "accuracy" else found


def slower(job: Job, factor: float) -> Outcome:
    """It takes so many times as long, in every burst."""
    return fake_executor.measured(job, factor * latency_ms(job), num_bursts=10) if job.metric == "latency" else measured(job)


def test_one_row_per_cell_with_the_contracted_columns() -> None:
    rows = rows_of(stored_run(planned(), measured))
    assert list(rows.columns[: len(IDENTITY)]) == IDENTITY
    assert rows["cell_id"].is_unique
    assert len(rows) == 4
    assert (rows["status"] == "measured").all()
    assert rows["latency_ms"].tolist() == pytest.approx([17.17, 65.65, 17.17, 65.65])
    assert (rows["latency_low_ms"] < rows["latency_ms"]).all()
    assert (rows["latency_ms"] < rows["latency_high_ms"]).all()
    assert rows["latency_stable"].tolist() == [True] * 4
    assert rows["throughput_per_s"].tolist() == pytest.approx((32 / rows["latency_ms"] * 1000).tolist())
    assert (rows["num_rounds"] == ROUNDS).all()
    assert "accuracy" not in rows
    assert rows["heads"].isna().tolist() == [True, True, False, False]


def test_what_was_not_measured_is_empty_and_never_zero() -> None:
    def only_vit(job: Job) -> Outcome | None:
        if job.cell.model.family == "vit":
            return measured(job)
        return Outcome(status="timed_out", reason="too long") if job.metric == "latency" else None

    rows = rows_of(stored_run(planned(), only_vit)).set_index(["model", "seq_len"])
    assert rows.loc[("gmlp", 17), "status"] == "timed_out"
    assert rows.loc[("gmlp", 17), "reason"] == "latency: too long"
    assert pd.isna(rows.loc[("gmlp", 17), "latency_ms"])
    assert pd.isna(rows.loc[("gmlp", 17), "num_rounds"])
    gmlp, _, vit, _ = json_rows(rows.reset_index())
    assert (gmlp["latency_ms"], gmlp["heads"], vit["heads"]) == (None, None, 3)
    assert isinstance(vit["heads"], int)


def test_a_run_cut_short_says_so() -> None:
    before_timing = rows_of(stored_run(planned(), lambda job: measured(job) if job.metric == "params" else None))
    assert set(before_timing["status"]) == {"unmeasured"}
    assert set(before_timing["reason"]) == {"latency: not run yet"}


def test_a_record_without_its_values_is_refused_by_name() -> None:
    with pytest.raises(RequestError, match=r"latency records of .* are corrupt"):
        rows_of(stored_run(planned(), lambda job: measured(job) if job.metric == "params" else Outcome(status="measured")))


def test_one_training_is_joined_to_every_cell_of_its_model() -> None:
    plan = planned(task="digits", metrics="latency,accuracy", batch="1,8", accuracy_seq="17")
    rows = rows_of(stored_run(plan, measured))
    trained = rows[rows["seq_len"] == 17]
    assert len(trained) == 4
    assert trained["accuracy"].tolist() == pytest.approx([0.91] * 4)
    assert (trained["num_seeds"] == 3).all()
    assert rows[rows["seq_len"] == 65]["accuracy"].isna().all()


def with_control(logs: Sequence[float]) -> StoredRun:
    """Log-ratios of the control to its cell, by round."""
    return stored_run(planned(rounds=len(logs)), lambda job: slower(job, math.exp(logs[job.repeat]) if job.control else 1.0))


@pytest.mark.parametrize(("num_below", "contains_one"), [(6, False), (7, True)])
def test_a_control_is_held_to_99_9_percent_and_forbids_nothing(num_below: int, contains_one: bool) -> None:
    """The sum of the ranks below 1 is 21 or 28; of 20 rounds at most 21 is that rare."""
    run = with_control([0.01 * rank * (-1 if rank <= num_below else 1) for rank in range(1, 21)])
    control = control_of(run)
    assert control is not None
    assert control["cell_id"] == control_cell(run.plan).cell_id
    assert (control["level"], control["num_rounds"], control["contains_one"], control["is_range"]) == (0.999, 20, contains_one, False)
    assert 1.0 < control["ratio"] < control["high"]
    assert study(run).caveat == ""


def test_a_control_of_few_rounds_has_their_range() -> None:
    control = control_of(with_control([0.01, 0.02, 0.03]))
    assert control is not None
    assert (control["low"], control["ratio"], control["high"]) == pytest.approx((math.exp(0.01), math.exp(0.02), math.exp(0.03)))
    assert (control["is_range"], control["contains_one"]) == (True, True)


def test_tables_are_written_whole_and_hold_no_formula(tmp_path: Path) -> None:
    rows = rows_of(stored_run(planned(), lambda _: Outcome(status="failed", reason="x")))
    rows["reason"] = ["=HYPERLINK(1)", "\r=1+1", "\n@x", "-1"]
    write_table(rows, tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["table.csv", "table.json", "table.parquet"]
    with open(tmp_path / "table.csv", newline="") as file:
        assert [row["reason"] for row in csv.DictReader(file)] == ["'=HYPERLINK(1)", "' =1+1", "' @x", "'-1"]
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "table.parquet"), rows, check_dtype=False)


def test_a_csv_reads_back_with_nine_digits_of_what_is_not_whole(tmp_path: Path) -> None:
    rows = rows_of(stored_run(planned(), lambda _: Outcome(status="failed", reason="x")))
    rows["latency_ms"], rows["flops"] = [2 / 3, 5.0, 1e-7 / 3, None], [1.2345678901234e13, 2.0, 0.0, None]
    write_table(rows, tmp_path)
    found = pd.read_csv(tmp_path / "table.csv")
    assert found["latency_ms"].tolist()[:3] == [0.666666667, 5.0, 3.33333333e-8]
    assert found["flops"].tolist()[:3] == [12345678901234, 2, 0]
    assert found[["latency_ms", "flops"]].iloc[3].isna().all()


def test_an_own_recipe_has_its_column_and_its_own_accuracy() -> None:
    """Only what it has other than the plan's is told; the plan's own recipe is empty."""
    request = parse_request(models="vit", seq="17", params="250k", task="digits", metrics="params,accuracy")
    smooth = dataclasses.replace(request, own_recipe=Recipe(label_smoothing=0.3, augment=("flip",)))
    plan = plan_of_arms({"plain": request, "smooth": smooth}, baseline="plain", settings=Settings(rounds=ROUNDS, seeds=3))

    def outcome(job: Job) -> Outcome:
        found = measured(job)
        own = job.recipe is not None and job.recipe.label_smoothing == 0.3
        return dataclasses.replace(found, values={**found.values, "accuracy": 0.5 + 0.01 * job.repeat}) if own else found

    rows = rows_of(stored_run(plan, outcome))
    assert rows["recipe"].fillna("").tolist() == ["", "label_smoothing=0.3,augment=flip"]
    assert rows["accuracy"].tolist() == pytest.approx([0.91, 0.51])
    assert rows["num_seeds"].tolist() == [3, 3]


RATIOS = ["ratio", "ratio_low", "ratio_high", "ratio_to", "num_blocks"]


def slower_vit(job: Job) -> Outcome:
    return slower(job, 1.5 if job.cell.model.family == "vit" else 1.0)


def test_every_cell_has_its_ratio_to_the_attention_of_its_length_and_attention_has_none() -> None:
    rows = rows_of(stored_run(planned(), slower_vit)).set_index(["model", "seq_len"])
    for n in (17, 65):
        assert rows.loc[("vit", n), RATIOS].isna().all()
        assert rows.loc[("gmlp", n), RATIOS[:3]].tolist() == pytest.approx([1 / 1.5] * 3)
        assert rows.loc[("gmlp", n), RATIOS[3:]].tolist() == [f"vit n={n}", 10]
    assert [column for column in rows.columns if column in RATIOS] == RATIOS


def labels(plan: Plan) -> dict[str, str]:
    """Of a cell and its reference."""
    names = {p.cell.cell_id: f"{p.cell.model.name}-{p.cell.model.shape.seq_len}-{p.sizing.budget or ''}" for p in plan.cells}
    return {names[cell]: names[reference] for cell, reference in references_of(plan).items()}


def test_ratios_are_to_a_cell_of_equal_budget() -> None:
    found = labels(planned(seq="17", params="250k,500k"))
    assert found == {"gmlp-17-250000": "vit-17-250000", "gmlp-17-500000": "vit-17-500000"}


def test_ratios_are_to_the_baseline_of_a_part() -> None:
    names = ("gmlp", "vit", "transformer")
    arms = {name: parse_request(models=name, seq="17", params="250k", metrics="latency") for name in names}
    assert labels(plan_of_arms(arms, baseline="vit")) == {"gmlp-17-250000": "vit-17-250000", "transformer-17-250000": "vit-17-250000"}


def test_lengths_that_grow_together_are_no_reference_of_one_another() -> None:
    """Another length is not what a cell is compared with."""
    plan = planned(seq="17,33,65", params="", width="16", depth="1", metrics="latency")
    assert labels(plan) == {f"gmlp-{n}-": f"vit-{n}-" for n in (17, 33, 65)}
    assert rows_of(stored_run(plan, slower_vit))["num_rounds"].tolist() == [ROUNDS] * 6


def test_the_time_of_compilation_is_the_pilots_which_found_nothing_compiled() -> None:
    """Rounds read what it compiled."""

    def of_pilot(job: Job) -> Outcome:
        found = measured(job)
        return dataclasses.replace(found, values={**found.values, "compile_s": 12.5}) if job.metric == "pilot" else found

    assert set(rows_of(stored_run(planned(), of_pilot))["compile_s"]) == {12.5}
