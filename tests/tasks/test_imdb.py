"""IMDb: the same items from JSON lines, plain or compressed, and from the original folder of text files."""

from __future__ import annotations

import gzip
import json
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.spec import RequestError
from bench.tasks import DATA_VARIABLE, imdb, require_data
from bench.tasks.readers.text import Texts

REVIEWS = [(1, "great\u2028film"), (0, "dull"), (1, "a joy"), (0, "bad<br />worse\r\nworst")]
SORTED = Texts(texts=["bad<br />worse\r\nworst", "dull", "a joy", "great\u2028film"], labels=[0, 0, 1, 1])
WRITERS: dict[str, Callable[..., Any]] = {".jsonl": open, ".jsonl.xz": lzma.open, ".jsonl.gz": gzip.open}


def write_lines(path: Path, reviews: list[tuple[Any, str]], ending: str = ".jsonl") -> None:
    path.parent.mkdir(exist_ok=True)
    with WRITERS[ending](path, "wt", encoding="utf-8") as file:
        for label, text in reviews:
            file.write(json.dumps({"id": "x", "label": label, "text": text}, ensure_ascii=False) + "\n")


@pytest.mark.parametrize("ending", imdb.ENDINGS)
def test_json_lines_are_read_plain_or_compressed(tmp_path: Path, ending: str) -> None:
    write_lines(tmp_path / "imdb" / f"train{ending}", REVIEWS, ending)
    assert imdb.read_reviews(imdb.source(tmp_path, "train")) == SORTED


def test_the_original_folder_gives_the_same_items_in_the_same_order(tmp_path: Path) -> None:
    for number, (label, text) in enumerate(REVIEWS):
        path = tmp_path / "aclImdb" / "train" / imdb.CLASSES[label] / f"{number}_7.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
    assert imdb.read_reviews(imdb.source(tmp_path, "train")) == SORTED


def test_absent_data_are_refused_naming_both_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path))
    write_lines(tmp_path / "imdb" / "train.jsonl", REVIEWS)
    with pytest.raises(RequestError, match=f"test.jsonl or .* in {tmp_path / 'imdb'}, or .* {tmp_path / 'aclImdb' / 'test'}") as refused:
        require_data("imdb")
    assert "Maas" in refused.value.hint


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"label": -1, "text": "unlabelled"}', "line 2: label -1"),
        ('{"label": 1, "text": null}', "line 2: label 1 .* and the field text a string"),
        ('{"label": 1}', "line 2 has no field 'text'"),
        ("[1, 2]", "line 2 is not a JSON object"),
        ('{"label": 1, ', "line 2 is not valid JSON"),
    ],
)
def test_a_broken_line_is_refused_naming_it(tmp_path: Path, line: str, said: str) -> None:
    path = tmp_path / "train.jsonl"
    path.write_text('{"label": 0, "text": "dull"}\n' + line + "\n")
    with pytest.raises(RequestError, match=said):
        imdb.read_reviews(path)


def test_a_torn_archive_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "imdb" / "train.jsonl.xz"
    write_lines(path, REVIEWS * 50, ".jsonl.xz")
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(RequestError, match="cannot be read"):
        imdb.read_reviews(path)
