"""Writes the measured figures of README and docs into their marked places, and their pictures, from results/.

python -m tests.docs.figures

A place is `<!--=name-->text<!--/-->`, invisible when rendered; the modules beside this one say by name how its text is computed. `test_figures.py`
fails where a page differs. Literature, versions, the log and decisions have no such places.
"""

from __future__ import annotations

import re
from pathlib import Path

from tests.docs import accuracy, cost, escape, peers, questions, timing
from tests.docs.pictures import PICTURES, drawn
from tests.docs.reading import Figures

ROOT = Path(__file__).resolve().parents[2]
EXEMPT = ("log.md",)
"""Of docs/: a record of what was found when, which later runs do not change."""
PLACE = re.compile(r"<!--=([a-z0-9_]+)-->(.*?)<!--/-->", re.DOTALL)
FIGURES: Figures = {**accuracy.FIGURES, **cost.FIGURES, **escape.FIGURES, **peers.FIGURES, **questions.FIGURES, **timing.FIGURES}


def pages() -> list[Path]:
    """README and the pages of docs/ that hold measured figures."""
    return [ROOT / "README.md", *(page for page in sorted((ROOT / "docs").glob("*.md")) if page.name not in EXEMPT)]


def filled(text: str) -> str:
    """The page with the text of every place computed. Raises KeyError for a place that has no figure."""
    return PLACE.sub(lambda place: f"<!--={place[1]}-->{FIGURES[place[1]]()}<!--/-->", text)


def main() -> None:
    for page in pages():
        text = page.read_text()
        if (found := filled(text)) != text:
            page.write_text(found)
            print(f"written: {page.relative_to(ROOT)}")  # noqa: T201
    for name in PICTURES:
        for path, content in drawn(name).items():
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)


if __name__ == "__main__":
    main()
