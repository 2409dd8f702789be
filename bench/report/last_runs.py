"""List every ablation with its latest run and that run's verdicts."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from bench import catalog
from bench.running.store import read_json
from bench.spec import PLAN

RESULTS, REPORTS = Path("results"), Path("reports")
VERDICTS = "verdicts.json"
COST = "Cost:"
"""First word of the paragraph on cost in an ablation's docstring."""


def listing() -> list[dict[str, Any]]:
    """Return every ablation with its question, cost and latest run.

    Each entry has `name`, `question`, `cost` and `last`: the latest run below results/ with its verdict counts, or None.
    """
    last = _last_results()
    return [
        {"name": name, "question": catalog.summary("ablations", name), "cost": cost_of(name), "last": last.get(name)}
        for name in catalog.names("ablations")
    ]


def cost_of(name: str) -> str:
    """Return an ablation's cost on CPU and GPU, from its docstring.

    Returns "" if the docstring names no cost.
    """
    found = [text for text in catalog.docstring("ablations", name).split("\n\n") if text.startswith(COST)]
    return " ".join(found[0].removeprefix(COST).split()) if found else ""


def _last_results() -> dict[str, str]:
    """Return the latest run of each plan, by plan name.

    The text is the run's folder, then the report's verdict counts, if any. A run of all parts takes precedence over newer partial runs.
    """
    runs = {folder: found for folder in sorted(RESULTS.glob("*")) if (found := _name_and_rank(folder / PLAN))}
    latest = {name: folder for folder, (name, _) in sorted(runs.items(), key=lambda item: item[1][1])}
    return {
        name: ": ".join(filter(None, (str(folder), _verdict_counts(REPORTS / folder.name / VERDICTS)))) for name, folder in latest.items()
    }


def _name_and_rank(path: Path) -> tuple[str, tuple[bool, str]] | None:
    """Return a plan's name and sort rank, or None if unreadable.

    A run of all parts ranks above a partial one (`--part`); otherwise, newer runs rank higher.
    """
    try:
        data: Any = read_json(path)
        return str(data["name"]), (" --part " not in data["command"], str(data["created"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _verdict_counts(path: Path) -> str:
    """Return counts such as "2 refuted, 3 supported"; "" without readable verdicts."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        counts = Counter(verdict["answer"] for verdict in found.get("predictions") or found["verdicts"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return ", ".join(f"{num} {answer}" for answer, num in sorted(counts.items()))
