"""The marked places of README and docs say what the stored tables say, and no page rests on a superseded run."""

from __future__ import annotations

import json
import re

import pytest

from tests.docs.fill import PLACES, ROOT, filled, pages, place

OPENING = re.compile(r"<!--=(\w+)-->")


def test_pages_say_what_their_tables_say() -> None:
    for page in pages():
        text = page.read_text()
        assert filled(text) == text, f"{page.name} differs from results/: make docs"
        assert len(OPENING.findall(text)) == text.count("<!--/-->")


def test_every_place_stands_on_a_page() -> None:
    assert {name for page in pages() for name in OPENING.findall(page.read_text())} == set(PLACES)


def test_a_place_is_filled_and_keeps_its_name() -> None:
    assert filled("over <!--=share_vit-->9<!--/-->!") == "over <!--=share_vit-->86 %<!--/-->!"


def test_an_unknown_place_and_an_unclear_row_are_errors() -> None:
    with pytest.raises(KeyError, match="nothing"):
        filled("It took <!--=nothing-->1.2<!--/--> s.")
    with pytest.raises(LookupError, match="2 rows with"):
        place("2026-11-20_cpu_cifar10_17", "{accuracy:fraction}", model="vit").filled()


def test_no_page_rests_on_a_superseded_run() -> None:
    notes = json.loads((ROOT / "results" / "notes.json").read_text())
    replaced = [run for run, note in notes.items() if "superseded_by" in note and note.get("part", "all") == "all"]
    texts = {page.name: page.read_text() for page in pages() if page.name != "log.md"}
    assert [(name, run) for name, text in texts.items() for run in replaced if run in text] == []
