"""Exports hold what the records hold; where their program is absent, one line says so."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from bench import catalog, cli, console
from bench.commands.run import export_run
from bench.report import export as export_module
from bench.report.export import curves_of
from bench.running.store import StoredRun, read_run
from bench.running.table import num_missing, rows_of
from bench.spec import RequestError
from tests.processes import started, unpacked_records
from tests.specimens import ROOT, run_bench

TRAINED = ROOT / "results" / "2026-11-20_cpu_digits"
UNTRAINED = TRAINED.with_name("2026-11-20_cpu_published_pairs")
EVENTS = "events.out.tfevents.*"
TRAINING = (
    *("run", "--models", "vit", "--seq", "17", "--width", "16", "--depth", "1", "--task", "digits", "--metrics", "accuracy"),
    *("--epochs", "2", "--seeds", "2", "--out", "mine"),
)
MLFLOW_SETTINGS = (
    "MLFLOW_ALLOW_FILE_STORE",
    "MLFLOW_TRACKING_URI",
    "MLFLOW_DISABLE_TELEMETRY",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES",
    "MLFLOW_HTTP_REQUEST_TIMEOUT",
)


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
    with pytest.raises(RequestError, match="this run trained no model, so it has no curves") as refused:
        catalog.load("exports", "tensorboard").export(read_run(UNTRAINED), str(tmp_path / "tb"))
    assert refused.value.hint == "--to mlflow exports its figures"
    assert not (tmp_path / "tb").exists()


def test_a_repeated_tensorboard_export_keeps_what_is_still_true(tmp_path: Path) -> None:
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
    first = {name: next((tmp_path / name).glob(EVENTS)) for name in names}
    old = first[names[1]].rename(first[names[1]].with_suffix(".older"))
    export(stored, str(tmp_path))
    for name in names:
        (found,) = (tmp_path / name).glob(EVENTS)
        assert (found == first[name]) == (name != names[1])
    assert not old.exists()
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == set(names)
    assert [path.read_text() for path in others] == ["kept"] * len(others)


def test_a_repeated_mlflow_export_keeps_what_is_still_true(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    stored, address = read_run(TRAINED), (tmp_path / "mlruns").as_uri()
    export = catalog.load("exports", "mlflow").export
    export(stored, address)
    client = mlflow.MlflowClient(tracking_uri=address)
    experiment = client.get_experiment_by_name(TRAINED.name).experiment_id
    runs = {run.info.run_id: run for run in client.search_runs([experiment])}
    torn, changed, *kept = runs
    client.update_run(torn, status="RUNNING")  # an export that was killed
    client.set_tag(changed, "content", "of other figures")
    tags = runs[torn].data.tags
    before_sources = client.create_run(experiment, tags={"cell_id": tags["cell_id"]}).info.run_id
    others = {client.create_run(experiment, tags=tags).info.run_id for tags in ({}, {"cell_id": "c", "measured": "elsewhere"})}
    whole = mlflow.MlflowClient.search_runs
    monkeypatch.setattr(mlflow.MlflowClient, "search_runs", lambda *given, **named: whole(*given, **{**named, "max_results": 4}))
    export(stored, address)
    monkeypatch.undo()
    found = {run.info.run_id: run.data.tags.get("cell_id") for run in client.search_runs([experiment])}
    assert others | set(kept) <= set(found)
    assert not {torn, changed, before_sources} & set(found)
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
        ("foo://bar", "the installed MLflow supports only folders and file:"),
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
    assert hint.startswith("hint: choose another --target")


def test_mlflow_sends_nothing_unasked(tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    script = (
        "import sys; from pathlib import Path; from bench.report.exports.mlflow import export; from bench.running.store import read_run\n"
        "export(read_run(Path(sys.argv[1])), sys.argv[2])\n"
        "from mlflow.telemetry.client import get_telemetry_client, is_telemetry_disabled\n"
        "print(is_telemetry_disabled(), get_telemetry_client())\n"
    )
    # a bare environment: MLflow keeps quiet where it sees a test or a CI, and must do so without
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(Path(__file__).parents[2])}
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
    assert hint.startswith("hint: choose another --target")
    assert (tmp_path / "file").read_text() == "kept"


def test_a_curve_whose_folder_cannot_be_made_ends_in_one_line(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
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


@pytest.mark.parametrize("name", ["tensorboard", "mlflow"])
@pytest.mark.parametrize(
    "request_of", [lambda name: ("export", str(TRAINED), "--to", name), lambda name: (*TRAINING, "--export", name)], ids=["export", "run"]
)
def test_an_absent_program_is_named_before_anything_is_done(
    name: str,
    request_of: Callable[[str], tuple[str, ...]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(SystemExit) as ended:
        cli.main(list(request_of(name)))
    assert ended.value.code == 2
    assert capsys.readouterr().err.splitlines() == [
        f"error: exports to {name} need the package {name}",
        "hint: pip install 'gmlp-bench[exports]'",
    ]
    assert not list(tmp_path.iterdir())


def test_mlflow_goes_where_its_own_variable_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "ours").as_uri())
    told = catalog.load("exports", "mlflow").export(read_run(UNTRAINED), "")
    assert (tmp_path / "ours").is_dir()
    assert shlex.split(told)[-1] == (tmp_path / "ours").as_uri()


@pytest.mark.slow
def test_a_run_exports_itself_and_adds_what_is_new_when_it_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    pytest.importorskip("tensorboard")
    first = run_bench(ROOT, tmp_path, *TRAINING, "--export", "tensorboard,mlflow")
    assert first.returncode == 0, first.stderr
    assert "view it with: tensorboard --logdir mine/tensorboard" in first.stderr
    assert "mlflow ui --backend-store-uri" in first.stderr
    stored = read_run(tmp_path / "mine")
    events = {path.parent.name: path for path in (tmp_path / "mine" / "tensorboard").glob("*/events*")}
    assert set(events) == {curve.name for curve in curves_of(stored)}
    assert len(events) == 2
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    client = mlflow.MlflowClient(tracking_uri=(tmp_path / "mine" / "mlruns").as_uri())
    (run,) = client.search_runs([client.get_experiment_by_name("mine").experiment_id])
    assert {f"seed_{seed}_loss" for seed in (0, 1)} <= set(run.data.metrics)
    again = run_bench(ROOT, tmp_path, *TRAINING, "--export", "tensorboard")
    assert again.returncode == 0, again.stderr
    assert {path.parent.name: path for path in (tmp_path / "mine" / "tensorboard").glob("*/events*")} == events


@pytest.mark.slow
def test_an_export_that_fails_costs_no_measurement(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    assert run_bench(ROOT, tmp_path, *TRAINING).returncode == 0
    path = unpacked_records(tmp_path / "mine")
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    (tmp_path / "mine" / "tensorboard").write_text("in the way")
    ran = run_bench(ROOT, tmp_path, *TRAINING, "--export", "tensorboard")
    assert ran.returncode == 0, ran.stderr
    assert "Traceback" not in ran.stderr
    (told,) = (line for line in ran.stderr.splitlines() if line.startswith("not exported"))
    assert told.startswith("not exported to tensorboard: cannot write mine/tensorboard")
    assert told.endswith("; retry with: bench export mine --to tensorboard")
    stored = read_run(tmp_path / "mine")
    assert num_missing(stored) == 0
    assert len(list(curves_of(stored))) == 2


def test_a_program_that_fails_costs_the_others_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def export(_: StoredRun, program: str) -> str:
        if program == "failing":
            raise ValueError("planted")
        return "look here"

    monkeypatch.setattr(export_module, "export", export)
    export_run(read_run(TRAINED), ["failing", "working"], console.say)
    assert capsys.readouterr().err.splitlines() == [
        "exporting to failing",
        f"not exported to failing: planted; retry with: bench export {TRAINED} --to failing",
        "exporting to working",
        "view it with: look here",
    ]


@pytest.mark.slow
def test_an_interrupted_run_is_exported_as_far_as_it_came(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    request = (*TRAINING[:-6], "--epochs", "40", "--seeds", "5", "--out", "mine", "--export", "tensorboard")
    with started(tmp_path, *request, num_lines=1) as run:
        while run.poll() is None and not trained(tmp_path / "mine"):
            time.sleep(0.05)
        assert run.poll() is None
        run.send_signal(signal.SIGTERM)
        _, err = run.communicate(timeout=300)
    assert run.returncode == 130, err
    assert "finish it with: bench run --resume mine --export tensorboard" in err
    assert 0 < len(list((tmp_path / "mine" / "tensorboard").glob("*/events*"))) == trained(tmp_path / "mine") < 5


def trained(folder: Path) -> int:
    """Count the trainings of a run that may be going on: its last line may be torn."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return len(list(curves_of(read_run(folder)))) if (folder / "records.jsonl").exists() else 0


@pytest.mark.slow
def test_a_run_that_trains_nothing_is_exported_to_mlflow_alone(tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    run = ("run", "--models", "vit", "--seq", "17", "--width", "16", "--depth", "1", "--metrics", "params", "--out", "a b")
    refused = run_bench(ROOT, tmp_path, *run, "--export", "tensorboard,mlflow")
    assert refused.returncode == 2
    assert refused.stderr.startswith("error: --export tensorboard needs training curves, but this plan trains no model\n")
    assert not (tmp_path / "a b").exists()
    ran = run_bench(ROOT, tmp_path, *run, "--export", "mlflow")
    assert ran.returncode == 0, ran.stderr
    assert "not exported" not in ran.stderr
    assert {path.name for path in (tmp_path / "a b").iterdir()} >= {"mlruns"}


def test_a_program_that_is_broken_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    monkeypatch.setitem(sys.modules, "mlflow.exceptions", None)
    with pytest.raises(RequestError, match="cannot export to mlflow") as refused:
        export_module.export(read_run(TRAINED), "mlflow", str(tmp_path))
    assert refused.value.hint == "pip install 'gmlp-bench[exports]'"


def test_no_secret_of_an_address_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow")
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://user:secret@127.0.0.1:{bound.getsockname()[1]}")
        with pytest.raises(RequestError, match=r"cannot write http://127\.0\.0\.1:\d+: no MLflow server answers there"):
            export_module.export(read_run(UNTRAINED), "mlflow")
