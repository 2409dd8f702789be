"""Every question of `ablations/`, with its latest run here and what that decided."""

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
"""How the paragraph of a docstring begins that says what the ablation takes."""


def listing() -> list[dict[str, Any]]:
    """Every ablation: `name`, `question`, `cost`, and `last`, its latest run below results/ with what its report decided (None: there is none)."""
    last = _last_results()
    return [
        {"name": name, "question": catalog.summary("ablations", name), "cost": cost_of(name), "last": last.get(name)}
        for name in catalog.names("ablations")
    ]


def cost_of(name: str) -> str:
    """What it takes, on a CPU and on a GPU, as its file says it; "" where it does not say."""
    found = [text for text in catalog.docstring("ablations", name).split("\n\n") if text.startswith(COST)]
    return " ".join(found[0].removeprefix(COST).split()) if found else ""


def _last_results() -> dict[str, str]:
    """By the name of a plan: the folder of its latest run, of all its parts where there is one, and how many verdicts of its report, if it has one,
    came out how."""
    runs = {folder: found for folder in sorted(RESULTS.glob("*")) if (found := _name_and_rank(folder / PLAN))}
    latest = {name: folder for folder, (name, _) in sorted(runs.items(), key=lambda item: item[1][1])}
    return {
        name: ": ".join(filter(None, (str(folder), _verdict_counts(REPORTS / folder.name / VERDICTS)))) for name, folder in latest.items()
    }


def _name_and_rank(path: Path) -> tuple[str, tuple[bool, str]] | None:
    """The name of a plan, and what the last of them has the highest of: a run of all its parts counts more than one of some (`--part`). None where it
    is no plan."""
    try:
        data: Any = read_json(path)
        return str(data["name"]), (" --part " not in data["command"], str(data["created"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _verdict_counts(path: Path) -> str:
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        counts = Counter(verdict["answer"] for verdict in told.get("predictions") or told["verdicts"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return ", ".join(f"{num} {answer}" for answer, num in sorted(counts.items()))
