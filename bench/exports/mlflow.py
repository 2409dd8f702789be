"""Rows of the table as MLflow runs, with their sizes as parameters and their figures as metrics; training curves by epoch."""

from __future__ import annotations

import os
import re
import shlex
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.plain_data import content_id
from bench.record import StoredRun
from bench.spec import RequestError
from bench.table import json_rows, rows_of
from bench.training_curves import Curve, curves_of

PACKAGE = "mlflow"
ADDRESS_VARIABLE = "MLFLOW_TRACKING_URI"
LONGEST_PARAMETER, LONGEST_REASON = 500, 240
PARAMETERS = (
    *("model", "family", "seq_len", "batch_size", "phase", "engine", "dtype", "device", "attention", "task", "recipe", "match", "budget"),
    *("width", "depth", "heads", "ffn_width", "status", "reason", "quick"),
)
CELL, SOURCE, CONTENT = "cell_id", "measured", "content"
"""Tags of a run: its cell; when and where the run that it comes from was measured, as runs of one name may share a server; an id of all it holds."""
COMPLETE = "FINISHED"
SETTINGS = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "MLFLOW_HTTP_REQUEST_TIMEOUT": "10"}
"""Nothing is sent to MLflow's makers, and a server that does not answer is given up within seconds; the user's own settings come first."""
FOLDER_ALLOWED = {"MLFLOW_ALLOW_FILE_STORE": "true"}
"""A folder needs no server and no database; MLflow asks to be told so."""
SCHEME = re.compile(r"[A-Za-z][\w+.-]+:")


def export(stored: StoredRun, target: str) -> str:
    """One experiment, named as the run, in the tracking store at `target` (default: `MLFLOW_TRACKING_URI`, or a folder `mlruns` in the run's folder).

    Raises RequestError where `target` cannot be written, or no server answers there.
    """
    address = _address(target or os.environ.get(ADDRESS_VARIABLE) or str(stored.folder / "mlruns"))
    in_folder = address.startswith("file:")
    for name, value in {**SETTINGS, **(FOLDER_ALLOWED if in_folder else {})}.items():
        os.environ.setdefault(name, value)
    import mlflow
    from mlflow.exceptions import MlflowException

    rows, curves = json_rows(rows_of(stored)), curves_of(stored)
    try:
        _write(mlflow.MlflowClient(tracking_uri=address), stored, rows, curves)
    except (MlflowException, OSError, ValueError) as error:
        raise RequestError(f"cannot write {target or address}: {_reason(error)}", "choose another --target") from error
    allowed = "".join(f"{name}={value} " for name, value in FOLDER_ALLOWED.items()) if in_folder else ""
    return f"{allowed}mlflow ui --backend-store-uri {shlex.quote(address)}"


def _address(target: str) -> str:
    """What has no scheme is a folder."""
    return target if SCHEME.match(target) else Path(target).resolve().as_uri()


def _write(client: Any, stored: StoredRun, rows: Sequence[Mapping[str, Any]], curves: Iterable[Curve]) -> None:
    """A row that is there as it is now stays; the other runs of an earlier export go when the new ones are complete."""
    name, source = stored.folder.resolve().name, f"{stored.plan.created} {stored.environment.get('environment_id', '')}".strip()
    known = client.get_experiment_by_name(name)
    experiment = known.experiment_id if known else client.create_experiment(name)
    earlier = {run.info.run_id: run for run in _earlier_runs(client, experiment, source)}
    present = {run.data.tags.get(CONTENT): identity for identity, run in earlier.items() if run.info.status == COMPLETE}
    curves_by_cell: dict[str, list[Curve]] = {}
    for curve in curves:
        curves_by_cell.setdefault(curve.cell_id, []).append(curve)
    for row in rows:
        own = curves_by_cell.get(str(row["cell_id"]), [])
        content = content_id([row, own])
        if content in present:
            del earlier[present.pop(content)]
            continue
        tags = {CELL: str(row["cell_id"]), SOURCE: source, CONTENT: content}
        run = client.create_run(experiment, run_name=f"{row['model']} n={row['seq_len']}", tags=tags).info.run_id
        for key in PARAMETERS:
            if row.get(key) not in (None, ""):
                client.log_param(run, key, str(row[key])[:LONGEST_PARAMETER])
        for key, value in _figures(row).items():
            client.log_metric(run, key, value)
        for curve in own:
            _log_curve(client, run, curve)
        client.set_terminated(run)
    for run in earlier:
        client.delete_run(run)


def _earlier_runs(client: Any, experiment: str, source: str) -> list[Any]:
    """Those that an export of this run wrote; one without a source is of an older export."""
    found, page = [], None
    while page != "":
        runs = client.search_runs([experiment], page_token=page)
        found += [run for run in runs if CELL in run.data.tags and run.data.tags.get(SOURCE, source) == source]
        page = runs.token or ""
    return found


def _log_curve(client: Any, run: str, curve: Curve) -> None:
    for series, values in curve.series.items():
        for epoch, value in enumerate(values, start=1):
            client.log_metric(run, f"seed_{curve.seed}_{series}", value, step=epoch)


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or str(error)
    if isinstance(error.__context__, OSError):  # what the connection came to, which MLflow wraps in a long message
        return "no MLflow server answers there"
    if known := getattr(error, "supported_uri_schemes", None):
        return f"MLflow, as installed, knows only folders and {', '.join(f'{scheme}:' for scheme in known if scheme)}"
    return textwrap.shorten(str(error), LONGEST_REASON, placeholder=" ...")


def _figures(row: Mapping[str, Any]) -> dict[str, float]:
    return {
        key: float(value)
        for key, value in row.items()
        if key not in PARAMETERS and isinstance(value, int | float) and not isinstance(value, bool)
    }
