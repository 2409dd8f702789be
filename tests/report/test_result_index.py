"""results/README.md says of every run what it asked, what it found, and whether it is complete."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import pytest

from bench.analysis.study import Study, study
from bench.reading.store import NOTES, StoredRun, is_stored, note_of, read_plan
from bench.report.result_index import COMPLETE, PAGE, QUICK, UNFINISHED, UNREADABLE, Entry, entries_of, index_text, write_index
from bench.report.sections.answer import MAX_SENTENCES, answer_sentences, question_of
from bench.running.writer import start_run
from bench.spec import PLAN, RequestError
from tests.answered import Answer

RESULTS = Path(__file__).parents[2] / "results"
FIRST, SECOND = "2026-11-25_cpu_peers_mamba2", "2026-11-30_cpu_digits"
FEW = ("2026-11-30_cpu_digits", "2026-11-20_cpu_published_pairs", "2026-11-27_cpu_three_families", "2026-11-25_cpu_spatial_gating")
MAX_WORDS = 40


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Two runs, of which the first has no notes."""
    folder = tmp_path / "results"
    for name in (FIRST, SECOND):
        shutil.copytree(RESULTS / name, folder / name)
    return folder


def entries(results: Path) -> list[Entry]:
    return [entry for entry, _ in entries_of(results)]


def committed() -> Path:
    """The runs of this tree. A user's own runs beside them are no fault of the page."""
    known = (RESULTS / PAGE).read_text()
    if own := [path.name for path in RESULTS.iterdir() if is_stored(path / PLAN) and path.name not in known]:
        pytest.skip(f"results/ holds runs that the page does not know: {own}; write it with bench index")
    return RESULTS


def in_few_sentences(stored: StoredRun) -> Study:
    found = study(stored)
    assert question_of(found.plan).endswith("?")
    sentences = answer_sentences(found)
    assert 1 <= len(sentences) <= MAX_SENTENCES, stored.plan.name
    assert all(sentence.endswith(".") and len(sentence.split()) <= MAX_WORDS for sentence in sentences), sentences
    return found


@pytest.mark.slow
def test_the_page_is_what_the_command_would_write_now_and_says_what_every_run_asked_and_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.report.result_index.study", in_few_sentences)
    assert (RESULTS / PAGE).read_text() == index_text(committed())


def test_the_page_has_a_row_of_every_run_and_those_of_a_few_are_what_the_command_would_write_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench.report.result_index.study", in_few_sentences)
    lines = (committed() / PAGE).read_text().splitlines()
    rows = [line.split(" | ") for line in lines if line.startswith("| [")]
    assert {row[0].removeprefix("| [").partition("]")[0] for row in rows} == {path.name for path in RESULTS.iterdir() if path.is_dir()}
    assert all(question and answer for _, question, answer, *_ in rows)
    for name in FEW:
        (tmp_path / name).symlink_to(RESULTS / name)
    notes = json.loads((RESULTS / NOTES).read_text())
    (tmp_path / NOTES).write_text(json.dumps({name: facts for name, facts in notes.items() if name in FEW}))
    written = index_text(tmp_path).splitlines()
    assert len([line for line in written if line.startswith("| [")]) == len(FEW)
    assert set(written) <= set(lines)


def test_a_run_is_shown_with_its_facts(results: Path, answer: Answer) -> None:
    code, _, err = answer("index", results)
    assert code == 0
    assert str(results / PAGE) in err
    assert [(entry.name, entry.date) for entry in entries(results)] == [(name, name[:10]) for name in (FIRST, SECOND)]
    assert (results / PAGE).read_text() == index_text(results)


def test_a_quick_run_and_an_unfinished_one_are_not_complete(results: Path) -> None:
    plan = read_plan(results / FIRST)
    quick = dataclasses.replace(plan, settings=dataclasses.replace(plan.settings, quick=True))
    start_run(results / "quick", quick, {})
    start_run(results / "begun", plan, {})
    assert {entry.name: entry.state for entry in entries(results)} == {
        "begun": UNFINISHED,
        FIRST: COMPLETE,
        SECOND: COMPLETE,
        "quick": QUICK,
    }


def test_a_folder_without_a_plan_is_listed_where_it_has_a_note(results: Path) -> None:
    (results / "bare").mkdir()
    assert len(entries(results)) == 2
    (results / NOTES).write_text(json.dumps({"bare": {"question": "why?", "answer": "because"}}))
    found = {entry.name: entry for entry in entries(results)}["bare"]
    assert (found.question, found.answer, found.date, found.host) == ("why?", "because", "", "")


@pytest.mark.parametrize(
    ("notes", "message"),
    [
        ("[", "cannot be read"),
        ("[]", "cannot be read"),
        (json.dumps({"gone": {}}), "names gone"),
    ],
)
def test_wrong_notes_are_refused(notes: str, message: str, results: Path) -> None:
    (results / NOTES).write_text(notes)
    with pytest.raises(RequestError, match=message):
        entries(results)


def test_a_folder_without_runs_is_refused_and_left_as_it_is(results: Path, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    refused = {
        tmp_path / "nowhere": ("there is no folder", "results"),
        tmp_path / "notes": ("holds no runs", "results"),
        results / FIRST: ("holds no runs", str(results)),
    }
    for folder, (message, example) in refused.items():
        with pytest.raises(RequestError, match=message) as caught:
            write_index(folder)
        assert caught.value.hint.endswith(f": {example}")
    assert not [folder for folder in refused if (folder / PAGE).exists()]


def test_only_a_page_of_its_own_is_replaced(results: Path) -> None:
    (results / PAGE).write_bytes(b"# My notes \xff\n")
    with pytest.raises(RequestError, match="would be lost"):
        write_index(results)
    assert (results / PAGE).read_bytes() == b"# My notes \xff\n"
    (results / PAGE).unlink()
    write_index(results)
    shutil.rmtree(results / SECOND)
    write_index(results)
    assert SECOND not in (results / PAGE).read_text()


def test_notes_that_cannot_be_read_are_no_reason_to_refuse_a_page(results: Path) -> None:
    for content in ("torn", "[]", json.dumps({SECOND: "x"})):
        (results / NOTES).write_text(content)
        assert note_of(results / SECOND) == {}


@pytest.mark.parametrize("place", ["left", "bob/left"])
def test_what_is_left_of_a_run_without_its_plan_has_a_row(place: str, results: Path) -> None:
    (results / place).mkdir(parents=True)
    shutil.copy(RESULTS / FIRST / "environment.json", results / place)
    (found,) = (entry for entry in entries(results) if entry.name == place)
    assert (found.state, "has no plan.json" in found.doubts[0].text) == (UNREADABLE, True)
    assert len(entries(results)) == 3
