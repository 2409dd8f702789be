"""Exports hold what the records hold; where their program is absent, one line says so."""

from __future__ import annotations

import builtins
import os
import shlex
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench import catalog, cli
from bench.record import read_run
from bench.spec import RequestError
from bench.table import rows_of
from bench.training_curves import curves_of

TRAINED = Path(__file__).parents[1] / "results" / "2026-11-20_cpu_digits"
UNTRAINED = TRAINED.with_name("2026-11-20_cpu_published_pairs")
MLFLOW_SETTINGS = ("MLFLOW_ALLOW_FILE_STORE", "MLFLOW_DISABLE_TELEMETRY", "MLFLOW_HTTP_REQUEST_MAX_RETRIES", "MLFLOW_HTTP_REQUEST_TIMEOUT")


@pytest.fixture(autouse=True)
def _as_a_user_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings of MLflow, and those that an export makes are gone after the test."""
    for name in MLFLOW_SETTINGS:
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


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


def test_a_run_without_trainings_has_nothing_for_tensorboard(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="this run trained nothing: there are no curves") as refused:
        catalog.load("exports", "tensorboard").export(read_run(UNTRAINED), str(tmp_path / "tb"))
    assert refused.value.hint == "--to mlflow takes its figures"
    assert not (tmp_path / "tb").exists()


def test_a_repeated_tensorboard_export_takes_the_place_of_the_first(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    stored = read_run(TRAINED)
    names = [curve.name for curve in curves_of(stored)]
    export = catalog.load("exports", "tensorboard").export
    export(stored, str(tmp_path))
    others = [
        tmp_path / "events.out.tfevents.1.other",
        tmp_path / names[0] / "notes.txt",
        tmp_path / names[0] / "eval" / "events.out.tfevents.1.other",
    ]
    for path in others:
        path.parent.mkdir(exist_ok=True)
        path.write_text("kept")
    export(stored, str(tmp_path))
    for name in names:
        assert len(list((tmp_path / name).glob("events.out.tfevents.*"))) == 1
    assert [path.read_text() for path in others] == ["kept"] * len(others)


def test_a_repeated_mlflow_export_takes_the_place_of_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    stored, address = read_run(TRAINED), (tmp_path / "mlruns").as_uri()
    export = catalog.load("exports", "mlflow").export
    export(stored, address)
    client = mlflow.MlflowClient(tracking_uri=address)
    experiment = client.get_experiment_by_name(TRAINED.name).experiment_id
    first = {run.info.run_id for run in client.search_runs([experiment])}
    (one, *_) = first
    older = client.create_run(
        experiment, tags={"cell_id": client.get_run(one).data.tags["cell_id"]}
    ).info.run_id  # of an export without `measured`
    others = {client.create_run(experiment, tags=tags).info.run_id for tags in ({}, {"cell_id": "c", "measured": "elsewhere"})}
    whole = mlflow.MlflowClient.search_runs
    monkeypatch.setattr(mlflow.MlflowClient, "search_runs", lambda *given, **named: whole(*given, **{**named, "max_results": 4}))
    export(stored, address)
    monkeypatch.undo()
    found = {run.info.run_id: run.data.tags.get("cell_id") for run in client.search_runs([experiment])}
    assert others <= set(found)
    assert not (first | {older}) & set(found)
    assert sorted(str(cell) for run, cell in found.items() if run not in others) == sorted(rows_of(stored)["cell_id"])


@pytest.mark.parametrize("form", ["ml", "{tmp_path}/ml", "{tmp_path}/a b#c/ml"])
def test_mlflow_takes_a_plain_folder(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.chdir(tmp_path)
    stored, target = read_run(UNTRAINED), form.format(tmp_path=tmp_path)
    told = catalog.load("exports", "mlflow").export(stored, target)
    assert Path(target).is_dir()
    address = Path(target).resolve().as_uri()
    assert shlex.split(told) == ["MLFLOW_ALLOW_FILE_STORE=true", "mlflow", "ui", "--backend-store-uri", address]
    client = mlflow.MlflowClient(tracking_uri=address)
    assert len(client.search_runs([client.get_experiment_by_name(UNTRAINED.name).experiment_id])) == len(rows_of(stored))


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("foo://bar", "MLflow, as installed, knows only folders and file:"),
        ("http://127.0.0.1:{closed}", "no MLflow server answers there"),
        ("http://[bad", "Invalid IPv6 URL"),
    ],
)
def test_an_address_that_mlflow_cannot_use_is_said_in_one_line(target: str, reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("mlflow")
    with socket.socket() as bound:  # bound and not listening: whoever connects is refused
        bound.bind(("127.0.0.1", 0))
        named = target.format(closed=bound.getsockname()[1])
        with pytest.raises(SystemExit) as ended:
            cli.main(["export", str(UNTRAINED), "--to", "mlflow", "--target", named])
    assert ended.value.code == 2
    error, hint = capsys.readouterr().err.splitlines()
    assert error.startswith(f"error: cannot write {named}: {reason}")
    assert hint == "hint: choose another --target"


def test_mlflow_sends_nothing_unasked(tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    script = (
        "import sys; from pathlib import Path; from bench.exports.mlflow import export; from bench.record import read_run\n"
        "export(read_run(Path(sys.argv[1])), sys.argv[2])\n"
        "from mlflow.telemetry.client import get_telemetry_client, is_telemetry_disabled\n"
        "print(is_telemetry_disabled(), get_telemetry_client())\n"
    )
    # a bare environment: MLflow keeps quiet where it sees a test or a CI, and must do so without
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", script, str(UNTRAINED), (tmp_path / "ml").as_uri()],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "True None"


@pytest.mark.parametrize("name", ["tensorboard", "mlflow"])
@pytest.mark.parametrize("place", ["file", "file/below", "read_only"])
def test_a_folder_that_cannot_be_written_is_said_in_one_line(
    name: str, place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip(name)
    (tmp_path / "file").write_text("kept")
    (tmp_path / "read_only").mkdir(mode=0o555)
    if place == "read_only" and os.access(tmp_path / place, os.W_OK):
        pytest.skip("root may write anywhere")
    with pytest.raises(SystemExit) as ended:
        cli.main(["export", str(TRAINED), "--to", name, "--target", str(tmp_path / place)])
    assert ended.value.code == 2
    error, hint = capsys.readouterr().err.splitlines()
    assert error.startswith(f"error: cannot write {tmp_path / place}: ")
    assert hint == "hint: choose another --target"
    assert (tmp_path / "file").read_text() == "kept"


def test_a_curve_whose_folder_cannot_be_made_ends_in_one_line(tmp_path: Path) -> None:
    stored = read_run(TRAINED)
    (tmp_path / next(curves_of(stored)).name).write_text("in the way")
    with pytest.raises(RequestError, match="cannot write"):
        catalog.load("exports", "tensorboard").export(stored, str(tmp_path))


@pytest.mark.parametrize(("name", "form"), [("tensorboard", "{folder}"), ("mlflow", "file://{folder}")])
def test_what_to_type_next_is_fit_for_a_shell(name: str, form: str, tmp_path: Path) -> None:
    pytest.importorskip(name)
    target = form.format(folder=tmp_path / "it's $HOME; a b")
    told = catalog.load("exports", name).export(read_run(TRAINED), target)
    assert shlex.split(told)[-1] == target


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
