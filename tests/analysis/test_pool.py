"""Ratios by host: those of the runs' own reports, summarised within a type of host, never over types."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.analysis import frame
from bench.analysis.pool import HostRatio, pool_runs
from bench.analysis.study import study
from bench.reading.store import StoredRun, read_run
from bench.reading.table import rows_of
from bench.spec import Plan, PlannedArm, RequestError
from tests.planted_runs import planned, stored


def with_arms() -> Plan:
    """The baseline is not the plan's first cell."""
    plan = planned(seq="17,65", models="gmlp,vit")
    cells = {name: tuple(p.cell.cell_id for p in plan.cells if p.cell.model.name == name) for name in ("gmlp", "vit")}
    arms = tuple(PlannedArm(name=f"arm {name}", cells=found) for name, found in cells.items())
    return planned(seq="17,65", models="gmlp,vit", arms=arms, baseline="arm vit")


def two_runs(folder: Path, plan: Plan) -> list[StoredRun]:
    return [read_run(stored(folder / name, plan, i)) for i, name in enumerate("ab")]


def estimates(row: HostRatio) -> list[float]:
    return [ratio.estimate for _, ratio in row.ratios]


def test_runs_are_listed_within_a_type_and_one_version_of_the_timed_code(tmp_path: Path) -> None:
    plan = planned(seq="17", rounds=3)
    hosts = [("x", "w1", 1.0), ("y", "w1", 2.0), ("x", "w1", 4.0), ("x", "w2", 3.0)]
    runs = [
        read_run(stored(tmp_path / str(i), plan, i, slower={"gmlp": slower}, cpu_type=kind, work_version=version))
        for i, (kind, version, slower) in enumerate(hosts)
    ]
    found = pool_runs(runs).rows
    assert [(row.host.type, row.host.work_version, len(row.ratios)) for row in found] == [("x", "w1", 2), ("x", "w2", 1), ("y", "w1", 1)]
    assert [ratio for row in found for ratio in estimates(row)] == pytest.approx([1.0, 4.0, 3.0, 2.0], rel=0.02)
    assert found[0].extremes == pytest.approx((1.0, 4.0), rel=0.02)
    assert found[1].extremes is None


def test_ratio_and_interval_are_those_of_the_runs_table(tmp_path: Path) -> None:
    """Three models: the interval holds for all of their pairs."""
    runs = two_runs(tmp_path, planned(seq="17", models="gmlp,vit,transformer", rounds=20))
    known = rows_of(runs[0]).set_index("cell_id")
    for row in pool_runs(runs).rows:
        (name, found), own = row.ratios[0], known.loc[row.cells[0]]
        assert (name, found.estimate, found.low, found.high) == ("a", own["ratio"], own["ratio_low"], own["ratio_high"])


def test_arms_have_the_effects_of_the_runs_report(tmp_path: Path) -> None:
    runs = [read_run(stored(tmp_path / name, with_arms(), i, slower={"vit": 2.0})) for i, name in enumerate("ab")]
    effects = [effect for effect in study(runs[0]).effects if effect.measure.name == "latency_ms"]
    found = pool_runs(runs).rows
    assert [row.comparison for row in found] == ["arm gmlp / arm vit, n = 17", "arm gmlp / arm vit, n = 65"]
    assert [row.ratios[0][1] for row in found] == [effect.estimate for effect in effects]
    assert all(estimates(row) == pytest.approx([0.5] * 2, rel=0.02) for row in found)


def test_a_ratio_that_a_run_lacks_is_named(tmp_path: Path) -> None:
    plan = planned(seq="17,65")
    lacking = plan.cells[-1].cell.cell_id
    runs = [
        read_run(stored(tmp_path / name, plan, i, without=(lacking,) if name == "b" else (), cpu_type=name))
        for i, name in enumerate("abcd")
    ]
    found = pool_runs(runs)
    assert [row.host.type for row in found.rows] == [*"abcd", *"acd"]
    assert found.notes == ("gmlp / vit, n = 65 has no ratio in b.",)


def test_the_reference_is_the_attention_of_equal_workload(tmp_path: Path) -> None:
    runs = two_runs(tmp_path, planned(seq="17", batch="1,4", attention="auto,math"))
    assert [row.comparison for row in pool_runs(runs).rows] == [
        f"{name} / vit (auto), n = 17, batch {batch}" for batch in (1, 4) for name in ("gmlp", "vit (math)")
    ]


def test_cells_with_other_answers_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = two_runs(tmp_path, planned(seq="17", models="gmlp,vit,transformer"))
    prepare = frame.prepare
    monkeypatch.setattr("bench.analysis.study.prepare", lambda rows, parts: prepare(rows, parts).assign(equal=[False, None, True]))
    assert [row.comparison for row in pool_runs(runs).rows] == ["transformer / vit, n = 17"]


def test_names_tell_what_differs_once(tmp_path: Path) -> None:
    """The engine is told of both cells where they differ in it, the budget of the pair where they share it."""
    runs = two_runs(tmp_path, planned(seq="17", models="gmlp", params="300k,600k", engine="eager,compile"))
    names = [row.comparison for row in pool_runs(runs).rows]
    assert "gmlp, compile / gmlp, eager, n = 17, budget 300 k" in names
    assert len(set(names)) == 2


def test_a_run_without_pairs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="no two timed configurations of equal length"):
        pool_runs(two_runs(tmp_path, planned(models="gmlp", seq="17")))
