"""gmlp-bench: what token mixing costs and buys at matched size, as sequences grow."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas

__version__ = "0.1.0"


def load(*runs: str | Path | Iterable[str | Path]) -> pandas.DataFrame:
    """The table of a run, one row per cell with the columns of docs/columns.md that its metrics have, from its records; of several runs, named one by
    one or in a list, that of all, if the keys that must agree do.

    Example: bench.load("results/2026-11-20_cpu_main_job").query("seq_len == 257")[["model", "latency_ms"]]

    Raises ValueError (`bench.spec.RequestError`), saying what is wrong with which file.
    """
    named = [run for entry in runs for run in ((entry,) if isinstance(entry, str | Path) else entry)]
    if not named:
        raise TypeError("load needs the folder of a run, such as results/2026-11-20_cpu_main_job")
    # by name: all of the program imports this package first, and imports run down the layers
    merge, record = (importlib.import_module(f"bench.{name}") for name in ("running.merge", "running.store"))
    found: pandas.DataFrame = merge.rows_of_runs(record.read_runs(named))
    return found
