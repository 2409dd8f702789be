"""List all runs of a folder, and write results/README.md from the list.

Each run has one row: question, one-line answer, host, and whether it is complete. Runs of several people lie in a folder of each: FOLDER/NAME/RUN.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import numbers
from bench.analysis.study import Study, study
from bench.analysis.trust import ALL, Concern
from bench.files import write_text, writing
from bench.measure.hosts import host_type
from bench.reading.store import ENVIRONMENT, NOTES, holds_records, is_stored, note_of, read_environment, read_plan, read_run
from bench.report.markdown import escape
from bench.report.sections.answer import answer_sentences, question_of
from bench.spec import PLAN, RequestError

PAGE = "README.md"
MARK = "Written by `bench index`"
"""Text of every page that this command wrote, and may therefore replace."""
COMPLETE, QUICK, UNFINISHED, UNREADABLE = "complete", "a first look", "unfinished", "cannot be read"
HEADERS = ("run", "question", "answer", "host", "status")
INTRODUCTION = f"""# Results

{MARK}; change [notes.json](notes.json) or the runs, not this page. Build a run's report with `bench report results/RUN`.
"""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One row of the index; unknown facts are empty.

    `name`: its folder's, below that of all runs.
    `date`: the day in its name, else that of its plan, as 2026-11-23.
    `state`: COMPLETE, QUICK for a first look, UNFINISHED, or UNREADABLE.
    `report`: the name of its report, which may be one of several runs together; by default the run's own.
    `doubts`: why `bench check` does not pass it.
    """

    name: str
    question: str
    answer: str
    date: str
    host: str
    report: str
    state: str = COMPLETE
    doubts: tuple[Concern, ...] = ()

    @property
    def by(self) -> str:
        """Whose folder it lies in; empty if it lies among all runs."""
        return self.name.rpartition("/")[0]


def doubt(error: RequestError) -> Concern:
    """Return what refuses a whole run, as a reason to distrust it."""
    return Concern(text=str(error), advice=error.hint, serious=True, about=(ALL,))


def write_index(results: Path) -> Path:
    """Write the index into the folder of results; return its path.

    Raises RequestError if the folder is missing, holds no runs, has a wrong note or another README.md, or cannot be written.
    """
    page = results / PAGE
    if page.exists() and not (page.is_file() and MARK in page.read_text(encoding="utf-8", errors="replace")):
        raise RequestError(f"{page} was not written by bench index and would be lost", "move it, or name the folder that holds the runs")
    text = index_text(results)
    with writing(page):
        write_text(page, text)
    return page


def index_text(results: Path) -> str:
    """Return the index as Markdown; equal runs give equal text."""
    rows = [(f"[{escape(e.name)}]({e.name}/)", *map(escape, (e.question, e.answer, e.host)), e.state) for e, _ in entries_of(results)]
    lines = [HEADERS, tuple("---" for _ in HEADERS), *rows]
    return INTRODUCTION + "\n" + "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def entries_of(results: Path) -> Iterator[tuple[Entry, Study | None]]:
    """Yield an entry per folder with a run or note, by name, with the run's study; None without records that can be read.

    A folder that is neither may hold the runs of one person. Raises RequestError if the folder is missing or holds no runs, or a note is wrong.
    """
    if not results.is_dir():
        raise RequestError(f"there is no folder {results}", "name the folder that holds the runs: results")
    notes = _notes(results)
    found = [_runs_in(path, notes) for path in sorted(results.iterdir()) if path.is_dir()]
    folders = [folder for each in found for folder in each]
    if not folders:
        example = results.parent if is_stored(results / PLAN) else "results"
        raise RequestError(f"{results} holds no runs", f"name the folder that holds the runs: {example}")
    for folder in folders:
        name = folder.relative_to(results).as_posix()
        try:
            if not is_stored(folder / PLAN) and folder.name not in notes:
                raise RequestError(f"{folder} has no {PLAN}", "restore it")
            known = study(read_run(folder)) if holds_records(folder) else None
            yield _entry(name, folder, known, note_of(folder)), known
        except RequestError as error:
            day = _day_in(folder.name)
            yield Entry(name=name, question="", answer="", date=day, host="", report=name, state=UNREADABLE, doubts=(doubt(error),)), None


def _runs_in(folder: Path, notes: Collection[str]) -> list[Path]:
    """Return the folder if it is a run, what is left of one, or has a note, else the runs in it."""
    if _is_run(folder) or folder.name in notes:
        return [folder]
    return [path for path in sorted(folder.iterdir()) if _is_run(path)]


def _is_run(folder: Path) -> bool:
    return is_stored(folder / PLAN) or holds_records(folder) or (folder / ENVIRONMENT).exists()


def _day_in(name: str) -> str:
    return found[0] if (found := re.match(r"\d{4}-\d\d-\d\d", name)) else ""


def _entry(name: str, folder: Path, known: Study | None, note: Mapping[str, str]) -> Entry:
    plan = read_plan(folder) if is_stored(folder / PLAN) else None
    facts = read_environment(folder) if (folder / ENVIRONMENT).exists() else {}
    return Entry(
        name=name,
        question=note.get("question") or (question_of(plan) if plan else ""),
        answer=note.get("answer") or (" ".join(answer_sentences(known)) if known else ""),
        date=_day_in(folder.name) or (plan.created[:10] if plan else ""),
        host=", ".join(filter(None, (machine_text(facts), f"torch {facts['torch_version']}" if facts.get("torch_version") else ""))),
        report=note.get("report", name),
        state=QUICK if plan and plan.settings.quick else UNFINISHED if plan and (known is None or known.num_missing) else COMPLETE,
        doubts=tuple(concern for concern in known.concerns if concern.serious) if known else (),
    )


def machine_text(facts: Mapping[str, Any]) -> str:
    """Name the type of processor and its cores."""
    name = host_type(facts) or facts.get("gpu") or facts.get("cpu_model")
    return ", ".join(str(fact) for fact in (name, numbers.counted(facts["num_cores"], "core") if facts.get("num_cores") else "") if fact)


def _notes(results: Path) -> dict[str, dict[str, str]]:
    """Read and check the notes, by run; empty without a file."""
    path = results / NOTES
    if not path.exists():
        return {}
    try:
        notes = {run: dict(note) for run, note in json.loads(path.read_text(encoding="utf-8")).items()}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise RequestError(f"{path} cannot be read: {error}", "restore it: a JSON object with one entry per run") from error
    if absent := sorted(run for run in notes if not (results / run).is_dir()):
        raise RequestError(f"{path} names {absent[0]}, but {results} has no such folder", "correct the name in the notes")
    return notes
