"""Exports hold what the records hold; where their program is absent, one line says so."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import pytest

from bench import catalog, cli
from bench.record import read_run
from bench.table import rows_of
from bench.training_curves import curves_of

TRAINED = Path(__file__).parents[1] / "results" / "2026-11-20_cpu_digits"


def test_every_training_has_its_curve() -> None:
    stored = read_run(TRAINED)
    curves = list(curves_of(stored))
    assert len(curves) == sum(rows_of(stored)["num_seeds"])
    assert len({curve.name for curve in curves}) == len(curves)
    for curve in curves:
        assert set(curve.series) == {"loss", "validation"}
        assert len(curve.series["loss"]) == curve.totals["num_epochs"]
        assert "/" not in curve.name


def test_tensorboard_reads_the_curves_back(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    stored = read_run(TRAINED)
    told = catalog.load("exports", "tensorboard").export(stored, str(tmp_path))
    assert str(tmp_path) in told
    curve = next(curves_of(stored))
    events = EventAccumulator(str(tmp_path / curve.name))
    events.Reload()
    assert [event.value for event in events.Scalars("loss")] == pytest.approx(list(curve.series["loss"]))
    assert {path.name for path in tmp_path.iterdir()} == {c.name for c in curves_of(stored)}


def test_mlflow_reads_the_rows_back(tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow")
    stored, address = read_run(TRAINED), (tmp_path / "mlruns").as_uri()
    catalog.load("exports", "mlflow").export(stored, address)
    client = mlflow.MlflowClient(tracking_uri=address)
    experiment = client.get_experiment_by_name(TRAINED.name)
    runs = {run.data.tags["cell_id"]: run for run in client.search_runs([experiment.experiment_id])}
    rows = rows_of(stored)
    assert set(runs) == set(rows["cell_id"])
    for row in rows.to_dict("records"):
        assert runs[row["cell_id"]].data.metrics["accuracy"] == pytest.approx(row["accuracy"])
        assert runs[row["cell_id"]].data.params["model"] == row["model"]


@pytest.mark.parametrize(("name", "package"), [("tensorboard", "torch.utils.tensorboard"), ("mlflow", "mlflow")])
def test_an_absent_program_is_named(name: str, package: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    true_import = builtins.__import__

    def without(module: str, *rest: Any, **others: Any) -> Any:
        if module == package:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return true_import(module, *rest, **others)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(SystemExit) as ended:
        cli.main(["export", str(TRAINED), "--to", name])
    assert ended.value.code == 2
    assert f"pip install {name}" in capsys.readouterr().err
