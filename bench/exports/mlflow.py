"""Rows of the table as MLflow runs, with their sizes as parameters and their figures as metrics; training curves by epoch."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from bench.record import StoredRun
from bench.table import json_rows, rows_of
from bench.training_curves import curves_of

LONGEST_PARAMETER = 500
PARAMETERS = (
    *("model", "family", "seq_len", "batch_size", "phase", "engine", "dtype", "device", "attention", "task", "recipe", "match", "budget"),
    *("width", "depth", "heads", "ffn_width", "status", "reason", "quick"),
)


def export(stored: StoredRun, target: str) -> str:
    """One experiment, named as the run, in the tracking store at `target` (default: a folder `mlruns` in the run's folder)."""
    if not target or target.startswith("file:"):
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # a folder needs no server and no database; MLflow asks to be told so
    import mlflow

    address = target or (stored.folder.resolve() / "mlruns").as_uri()
    client = mlflow.MlflowClient(tracking_uri=address)
    name = stored.folder.resolve().name
    known = client.get_experiment_by_name(name)
    experiment = known.experiment_id if known else client.create_experiment(name)
    curves: dict[str, list[Any]] = {}
    for curve in curves_of(stored):
        curves.setdefault(curve.cell_id, []).append(curve)
    for row in json_rows(rows_of(stored)):
        run = client.create_run(
            experiment, run_name=f"{row['model']} n={row['seq_len']}", tags={"cell_id": str(row["cell_id"])}
        ).info.run_id
        for key in PARAMETERS:
            if row.get(key) not in (None, ""):
                client.log_param(run, key, str(row[key])[:LONGEST_PARAMETER])
        for key, value in _figures(row).items():
            client.log_metric(run, key, value)
        for curve in curves.get(str(row["cell_id"]), ()):
            for series, values in curve.series.items():
                for epoch, value in enumerate(values, start=1):
                    client.log_metric(run, f"seed_{curve.seed}_{series}", value, step=epoch)
        client.set_terminated(run)
    return f"mlflow ui --backend-store-uri {address}"


def _figures(row: Mapping[str, Any]) -> dict[str, float]:
    return {
        key: float(value)
        for key, value in row.items()
        if key not in PARAMETERS and isinstance(value, int | float) and not isinstance(value, bool)
    }
