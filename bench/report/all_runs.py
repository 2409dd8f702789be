"""Put the rows of all runs side by side, for one explorer over them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas

from bench.analysis.frame import prepare
from bench.analysis.study import Study
from bench.measure.hosts import identity, machine, training_identity
from bench.needs import depends_on_host, trains
from bench.reading.merge import SAME_SETTINGS
from bench.report.explorer import explorer_data
from bench.report.result_index import Entry, machine_text
from bench.report.sections.wording import join_names
from bench.serialize import canonical_json


def explorer_of(runs: Sequence[tuple[Entry, Study]]) -> dict[str, Any] | None:
    """Return the explorer's data over the rows of all runs; None without a plot.

    It opens on the run that timed the most lengths, the newest of several.
    """
    if not runs:
        return None
    frame = rows_of_all(runs)
    num_lengths = frame[frame["latency_ms"].notna()].groupby("run")["seq_len"].nunique()
    found = explorer_data(frame)
    return {**found, "run": max(num_lengths.index, key=lambda run: (num_lengths[run], run), default="")} if found else None


def rows_of_all(runs: Sequence[tuple[Entry, Study]]) -> pandas.DataFrame:
    """Return the prepared rows of all runs, by run.

    Added columns:
    `run`: the run's name.
    `host`: the machine; times of two machines are not comparable.
    `timed_by`: the first run of one person, of like host, software and timed code; `trained_by`: that of like training code and recipe. Rows that
    differ in it form no series; it is empty for runs without times or trainings.
    `doubts`: what `bench check` doubts, such as times; empty if it passes.
    """
    studies = [known for _, known in runs]
    names = [entry.name for entry, _ in runs]
    columns: dict[str, Sequence[Any]] = {
        "run": names,
        "host": _numbered([_host_text(known) for known in studies], [machine(known.environment) for known in studies]),
        "timed_by": _first_alike([_timing(entry, known) for entry, known in runs], "timed", names),
        "trained_by": _first_alike([_training(known) for known in studies], "trained", names),
        "doubts": [join_names(list(dict.fromkeys(about for doubt in entry.doubts for about in doubt.about))) for entry, _ in runs],
    }
    frames = [known.frame.assign(**{name: values[i] for name, values in columns.items()}) for i, known in enumerate(studies)]
    return prepare(pandas.concat(frames, ignore_index=True))


def _first_alike(facts: Sequence[Any], verb: str, names: Sequence[str]) -> list[str]:
    keys = [each and canonical_json(each) for each in facts]
    return [f"{verb} as in {names[keys.index(key)]}" if key else "" for key in keys]


def _numbered(texts: Sequence[str], facts: Sequence[Any]) -> list[str]:
    """Return the texts; unlike facts of one text are numbered."""
    known: dict[str, list[str]] = {}
    for text, each in zip(texts, facts, strict=True):
        known.setdefault(text, []).append(canonical_json(each))
    places = [list(dict.fromkeys(known[text])).index(canonical_json(each)) for text, each in zip(texts, facts, strict=True)]
    return [f"{text} ({place + 1})" if place else text for text, place in zip(texts, places, strict=True)]


def _host_text(known: Study) -> str:
    return machine_text(known.environment) or "host unknown"


def _timing(entry: Entry, known: Study) -> tuple[Any, ...]:
    timed = depends_on_host(known.plan) or trains(known.plan)  # trainings have their time
    return (identity(known.environment), known.plan.settings.quick, entry.by) if timed else ()


def _training(known: Study) -> tuple[Any, ...]:
    settings = known.plan.settings
    if not trains(known.plan):
        return ()
    return training_identity(known.environment), known.plan.recipe, *(getattr(settings, name) for name in SAME_SETTINGS)
