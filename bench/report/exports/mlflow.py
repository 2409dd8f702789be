"""Export the rows of a run's table as MLflow runs.

Sizes become parameters, figures become metrics, and training curves become metrics by epoch.
"""

from __future__ import annotations

import os
import re
import shlex
import textwrap
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.report.export import Curve, curves_of
from bench.running.store import StoredRun
from bench.running.table import json_rows, rows_of
from bench.serialize import content_id
from bench.spec import RequestError

PACKAGE, NEEDS_TRAINING = "mlflow", False
ADDRESS_VARIABLE = "MLFLOW_TRACKING_URI"
LONGEST_PARAMETER, LONGEST_REASON = 500, 240
PARAMETERS = (
    *("model", "family", "seq_len", "batch_size", "phase", "engine", "dtype", "device", "attention", "task", "recipe", "match", "budget"),
    *("width", "depth", "heads", "ffn_width", "status", "reason", "quick"),
)
CELL, SOURCE, CONTENT = "cell_id", "measured", "content"
"""Tags of an MLflow run.

`cell_id`: the row's cell.
`measured`: time and environment of the source run, because runs with equal names may share a server.
`content`: an id of the row and its curves.
"""
COMPLETE = "FINISHED"
SETTINGS = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "MLFLOW_HTTP_REQUEST_TIMEOUT": "10"}
"""Defaults for MLflow's variables; the user's settings take precedence.

They switch telemetry off, and give up on a silent server within seconds.
"""
FOLDER_ALLOWED = {"MLFLOW_ALLOW_FILE_STORE": "true"}
"""MLflow requires this variable before it stores runs in a plain folder."""
SCHEME = re.compile(r"[A-Za-z][\w+.-]+:")
SECRETS = re.compile(r"(?<=//)[^/@\s]*@")
MOST_METRICS = 1000
"""MLflow's limit per request."""


def export(stored: StoredRun, target: str) -> str:
    """Write the run as one MLflow experiment; return how to view it.

    The experiment has the run's name. The tracking store is `target`, by default `MLFLOW_TRACKING_URI` or the folder `mlruns` in the run's folder.
    Raises RequestError if `target` cannot be written or no server answers there.
    """
    address = _address(target) if target else _usual_address(stored)
    in_folder = address.startswith("file:")
    for name, value in {**SETTINGS, **(FOLDER_ALLOWED if in_folder else {})}.items():
        os.environ.setdefault(name, value)
    import mlflow
    from mlflow.exceptions import MlflowException

    rows, curves = json_rows(rows_of(stored)), curves_of(stored)
    try:
        _write(mlflow.MlflowClient(tracking_uri=address), stored, rows, curves)
    except (MlflowException, OSError, ValueError) as error:
        message = SECRETS.sub("", f"cannot write {target or address}: {_reason(error)}")
        raise RequestError(message, f"choose another --target or {ADDRESS_VARIABLE}") from error
    if not in_folder:
        return SECRETS.sub("", address)
    return f"{' '.join(f'{name}={value}' for name, value in FOLDER_ALLOWED.items())} mlflow ui --backend-store-uri {shlex.quote(address)}"


def _usual_address(stored: StoredRun) -> str:
    """Return the address in MLflow's variable, or else a folder.

    The variable may hold the bare name of a service.
    """
    named = os.environ.get(ADDRESS_VARIABLE, "")
    return named if named and not named.startswith(("/", ".")) else _address(named or str(stored.folder / "mlruns"))


def _address(target: str) -> str:
    """Return the target's address; targets without a scheme are folders."""
    return target if SCHEME.match(target) else Path(target).resolve().as_uri()


def _write(client: Any, stored: StoredRun, rows: Sequence[Mapping[str, Any]], curves: Iterable[Curve]) -> None:
    """Write all rows that are not yet stored with equal content.

    Other MLflow runs of earlier exports are deleted once the new ones are complete.
    """
    name, source = stored.folder.resolve().name, f"{stored.plan.created} {stored.environment.get('environment_id', '')}".strip()
    existing = client.get_experiment_by_name(name)
    experiment = existing.experiment_id if existing else client.create_experiment(name)
    earlier = {run.info.run_id: run for run in _earlier_runs(client, experiment, source)}
    present = {run.data.tags.get(CONTENT): identity for identity, run in earlier.items() if run.info.status == COMPLETE}
    curves_by_cell: dict[str, list[Curve]] = {}
    for curve in curves:
        curves_by_cell.setdefault(curve.cell_id, []).append(curve)
    for row in rows:
        row_curves = curves_by_cell.get(str(row["cell_id"]), [])
        content = content_id([row, row_curves])
        if content in present:
            del earlier[present.pop(content)]
            continue
        tags = {CELL: str(row["cell_id"]), SOURCE: source, CONTENT: content}
        run = client.create_run(experiment, run_name=f"{row['model']} n={row['seq_len']}", tags=tags).info.run_id
        _log(client, run, row, row_curves)
        client.set_terminated(run)
    for run in earlier:
        client.delete_run(run)


def _earlier_runs(client: Any, experiment: str, source: str) -> list[Any]:
    """Return the MLflow runs that earlier exports of this run wrote.

    Older exports wrote no source tag.
    """
    found, page = [], None
    while page != "":
        runs = client.search_runs([experiment], page_token=page)
        found += [run for run in runs if CELL in run.data.tags and run.data.tags.get(SOURCE, source) == source]
        page = runs.token or ""
    return found


def _log(client: Any, run: str, row: Mapping[str, Any], curves: Iterable[Curve]) -> None:
    """Write a row's parameters, figures and curves to an MLflow run."""
    from mlflow.entities import Metric, Param

    now_ms = time.time_ns() // 1_000_000
    params = [Param(key, str(row[key])[:LONGEST_PARAMETER]) for key in PARAMETERS if row.get(key) not in (None, "")]
    figures = {
        key: value for key, value in row.items() if key not in PARAMETERS and isinstance(value, int | float) and not isinstance(value, bool)
    }
    metrics = [Metric(key, float(value), now_ms, 0) for key, value in figures.items()]
    for curve in curves:
        for series, values in curve.series.items():
            metrics += [Metric(f"seed_{curve.seed}_{series}", value, now_ms, epoch) for epoch, value in enumerate(values, start=1)]
    client.log_batch(run, params=params)
    for start in range(0, len(metrics), MOST_METRICS):
        client.log_batch(run, metrics=metrics[start : start + MOST_METRICS])


def _reason(error: Exception) -> str:
    """Return the cause of a failure, without MLflow's wrapping."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    if isinstance(error.__context__, OSError):  # MLflow wraps a failed connection in a long message
        return "no MLflow server answers there"
    if schemes := getattr(error, "supported_uri_schemes", None):
        return f"the installed MLflow supports only folders and {', '.join(f'{scheme}:' for scheme in schemes if scheme)}"
    return textwrap.shorten(str(error), LONGEST_REASON, placeholder=" ...")
