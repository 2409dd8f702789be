"""List the ablations, each with the run that answers it best."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from bench import catalog
from bench.reading.store import note_of, read_json
from bench.spec import PLAN

RESULTS, REPORTS = Path("results"), Path("reports")
VERDICTS = "verdicts.json"
COST = "Cost:"
"""First word of the paragraph on cost in an ablation's docstring."""


def listing() -> list[dict[str, Any]]:
    """Return every ablation with its question, cost and best run.

    Each entry has `name`, `question`, `cost` and `last`. The last is the run below results/ that answers it best, or the report of several runs, with
    its verdict counts; None without one.
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
    """Return the run of each plan that answers it best, by plan name.

    The text is the run's folder, then the report's verdict counts, if any.
    """
    runs = [found for folder in sorted(RESULTS.glob("*")) if (found := _run(folder))]
    return {name: text for name, _, text in sorted(runs, key=lambda run: run[1])}


def _run(folder: Path) -> tuple[str, tuple[bool, bool, bool, bool, str], str] | None:
    """Return a run's plan name, its rank and its text; None without a readable plan.

    Complete runs, whose files are packed, rank above unfinished ones, and full runs above quick ones. Then those of all parts: without `--part`, or
    with a report of several runs together. Then those with verdicts, then newer ones.
    """
    data = _plan_data(folder / PLAN)
    if data is None:
        return None
    note = note_of(folder)
    shared = note.get("report")
    counts = _verdict_counts(REPORTS / str(shared or folder.name) / VERDICTS)
    is_quick = bool(data["settings"]["quick"])
    is_complete = not (folder / PLAN).exists()
    rank = (is_complete, not is_quick, bool(shared) or " --part " not in data["command"], bool(counts), str(data["created"]))
    place = f"{REPORTS / shared if shared else folder}{', a first look' if is_quick else ''}{'' if is_complete else ', unfinished'}"
    return str(data["name"]), rank, ": ".join(filter(None, (place, counts)))


def _plan_data(path: Path) -> dict[str, Any] | None:
    """Return the fields of a stored plan, or None if unreadable."""
    try:
        data: Any = read_json(path)
        return {key: data[key] for key in ("name", "command", "created", "settings")}
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
