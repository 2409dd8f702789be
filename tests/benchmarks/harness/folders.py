"""The folder that an experiment writes: tables as CSV, a page in Markdown, and the machine that they belong to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas

from bench.files import write_atomically, write_json, write_text
from bench.measure.hosts import disagreements
from bench.running.store import ENVIRONMENT
from bench.spec import RequestError

SETTINGS, PAGE = "settings.json", "README.md"


def write_csv(table: pandas.DataFrame, path: Path) -> None:
    write_atomically(path, lambda temporary: table.to_csv(temporary, index=False))


def start_folder(folder: Path, settings: Mapping[str, Any]) -> None:
    """Make the folder, or go on in one with the same settings. Raises RequestError for another's."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RequestError(f"cannot make {folder}: {error.strerror}", "choose another --out") from error
    path = folder / SETTINGS
    if not path.exists():
        if any(folder.iterdir()):
            raise RequestError(f"{folder} holds something else", "choose another --out")
        write_json(path, dict(settings))
    elif (before := json.loads(path.read_text())) != dict(settings):
        raise RequestError(f"{folder} was begun with {before}, not {dict(settings)}", "give the same flags, or choose another --out")


def agree_on_environment(folder: Path, facts: Mapping[str, Any]) -> None:
    """Keep the facts of the first run; refuse a later one from another machine, software or code."""
    path = folder / ENVIRONMENT
    if not path.exists():
        write_json(path, dict(facts))
        return
    before = json.loads(path.read_text())
    for key, (then, now) in disagreements(before, facts, trained=False).items():
        raise RequestError(f"{folder} was measured with another {key}: {then!r} then, {now!r} now", "choose another --out")


def machine_text(folder: Path) -> str:
    facts = json.loads((folder / ENVIRONMENT).read_text())
    return (
        f"{facts['cpu_model']}, {facts['num_cores']} cores, {facts['threads']} thread(s) per job; torch {facts['torch_version']}; "
        f"code {facts['code_version']}; other work took {facts['busy_cores']} cores when it began."
    )


def write_page(folder: Path, *parts: str) -> None:
    write_text(folder / PAGE, "\n\n".join(part.strip() for part in parts) + "\n")


def markdown_table(table: pandas.DataFrame) -> str:
    """Figures to three significant digits; empty where there is none."""
    lines = [list(table.columns), ["---"] * len(table.columns), *([_text(v) for v in row] for row in table.itertuples(index=False))]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _text(value: Any) -> str:
    if value is None or (isinstance(value, float) and value != value):
        return ""
    return f"{value:.3g}" if isinstance(value, float) and abs(value) < 1000 else f"{value:.0f}" if isinstance(value, float) else str(value)
