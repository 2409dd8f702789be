"""Measure the costs and benefits of token mixing at matched size."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas

__version__ = "0.1.0"


def load(*runs: str | Path | Iterable[str | Path]) -> pandas.DataFrame:
    """Return the table of one or more runs, built from their records.

    One row per configuration (a cell); docs/columns.md describes the columns, which depend on the run's metrics. Runs are given
    one by one or in a list; the keys that must agree between runs are compared.

    Example: bench.load("results/2026-11-20_cpu_main_job").query("seq_len == 257")[["model", "latency_ms"]]

    Raises RequestError (`bench.spec`), a ValueError that names the file and its problem. Raises TypeError without a run.
    """
    named = [run for entry in runs for run in ((entry,) if isinstance(entry, str | Path) else entry)]
    if not named:
        raise TypeError("load needs the folder of a run, such as results/2026-11-20_cpu_main_job")
    # imported by name: every module imports this package first, and the layers forbid imports upwards from here
    merge, store = (importlib.import_module(f"bench.{name}") for name in ("running.merge", "running.store"))
    found: pandas.DataFrame = merge.rows_of_runs(store.read_runs(named))
    return found
