"""What a report is made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas

from bench.analysis.significance import Scores
from bench.spec import Plan, Record


@dataclass(frozen=True, kw_only=True)
class ReportData:
    """A run as data: nothing here is measured or read from disk by the report.

    `rows`: one row per cell (docs: Records and tables); missing columns count as empty. `environment`: facts by name; whatever is there is shown.
    `control`: the A/A control, with `cell`, `ratio`, `low`, `high`, `contains_one` and `level`; None where none was run. `findings`: advice on
    trust, one sentence each. `rounds`: `cell_id`, `round`, `latency_ms`, for ratios paired by round; without it, ratios are of medians.
    `folders`: the names of the runs that were merged. `scores`: the test items' scores of every trained model, by cell id. `records`: all of them.
    """

    name: str
    plan: Plan
    rows: pandas.DataFrame
    environment: Mapping[str, Any]
    control: Mapping[str, Any] | None = None
    findings: tuple[str, ...] | list[str] = ()
    rounds: pandas.DataFrame | None = None
    folders: tuple[str, ...] = ()
    scores: Mapping[str, Scores] = field(default_factory=dict)
    records: tuple[Record, ...] = ()
