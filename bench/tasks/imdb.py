"""50,000 film reviews, negative or positive (IMDb), 2 classes.

Source: Maas et al., Learning Word Vectors for Sentiment Analysis, ACL 2011: 25,000 reviews for training and 25,000, of other films, for testing.
As bytes, with 1,024 to 4,096 tokens, this is the Text task of Long Range Arena (arXiv 2011.04006, Sec. 2.2.2). We found no published gMLP result
for it. Reads `imdb/train.jsonl` and `imdb/test.jsonl` (or `.jsonl.xz`, `.jsonl.gz`; fields label, text), or the original folder `aclImdb`. Both give
the same items in the same order: by class, then by text. Downloads are from stanfordnlp/imdb on the Hugging Face hub. Options: `tokenizer` (bytes or
bpe), `vocab_size` (of bpe), `spare_ids` (for weights pre-trained by masked_token: 1).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench.spec import RequestError
from bench.tasks import Place, Splits
from bench.tasks._info import MissingDataError, Sequences, TaskChoice, TaskInfo
from bench.tasks.readers.hub import HubSplit, PublishedTexts, download
from bench.tasks.readers.text import Texts, TextSplits, info_with_tokens, read_json_lines, require_tokenizer, to_splits, whole
from bench.tasks.readers.tokenise import BYTE_VOCAB_SIZE, LABELLED_OPTIONS

OPTIONS = LABELLED_OPTIONS
CLASSES = ("neg", "pos")
PARTS = ("train", "test")
ENDINGS = (".jsonl", ".jsonl.xz", ".jsonl.gz")
INFO = TaskInfo(
    name="imdb",
    summary="50,000 film reviews, 2 classes",
    source="Maas et al., ACL 2011; as bytes the Text task of Long Range Arena, arXiv 2011.04006, Sec. 2.2.2",
    reads=Sequences(vocab_size=BYTE_VOCAB_SIZE),
    num_classes=len(CLASSES),
    chance=1 / len(CLASSES),
    num_train=25000,
    num_test=25000,
)
WHERE = "get the Large Movie Review Dataset v1.0 (aclImdb) of Maas et al. (ACL 2011) from Stanford, and unpack it into the data root"


def info(choice: TaskChoice) -> TaskInfo:
    return info_with_tokens(INFO, choice)


def require_data(choice: TaskChoice, place: Place) -> None:
    _read(choice, place)


def load(choice: TaskChoice, *, num_tokens: int, place: Place) -> Splits:
    return to_splits(_read(choice, place), options=choice.options, num_tokens=num_tokens)


def _read(choice: TaskChoice, place: Place) -> TextSplits:
    require_tokenizer(choice)
    root = place.folder("imdb")
    missing = [part for part in PARTS if _found(root, part) is None]
    if missing and place.download:
        download(PUBLISHED, [f"{part}.jsonl" for part in missing], root / "imdb")
    found = {part: source(root, part) for part in PARTS}
    return whole(INFO, TextSplits(**{part: read_reviews(path) for part, path in found.items()}), found["train"].parent)


def source(root: Path, part: str) -> Path:
    """Return the file or folder that holds `train` or `test`.

    Raises RequestError if neither exists.
    """
    if found := _found(root, part):
        return found
    files, original = " or ".join(f"{part}{ending}" for ending in ENDINGS), root / "aclImdb" / part
    raise MissingDataError(
        f"task imdb needs {files} in {root / 'imdb'}, or the folders neg and pos in {original}; neither was found",
        f"add `download`, or {WHERE}",
    )


def _found(root: Path, part: str) -> Path | None:
    for ending in ENDINGS:
        if (root / "imdb" / f"{part}{ending}").is_file():
            return root / "imdb" / f"{part}{ending}"
    original = root / "aclImdb" / part
    return original if all((original / name).is_dir() for name in CLASSES) else None


def read_reviews(path: Path) -> Texts:
    """Read one part's reviews, sorted by class, then by text.

    Raises RequestError, naming the line, for a label other than 0 (negative) or 1 (positive).
    """
    if path.is_dir():
        files = ((label, file) for label, name in enumerate(CLASSES) for file in (path / name).glob("*.txt"))
        items = [(label, file.read_bytes().decode("utf-8")) for label, file in files]
    else:
        items = _items_of_lines(path)
    items.sort()
    return Texts(texts=[text for _, text in items], labels=[label for label, _ in items])


def _items_of_lines(path: Path) -> list[tuple[int, str]]:
    items = []
    for number, found in enumerate(read_json_lines(path, ("label", "text")), start=1):
        if found["label"] not in (0, 1) or not isinstance(found["text"], str):
            raise RequestError(f"{path} line {number}: label {found['label']!r} must be 0 or 1, and the field text a string", WHERE)
        items.append((int(found["label"]), found["text"]))
    return items


def file_content(rows: Any) -> bytes:
    """Return rows of the hub as JSON lines."""
    return "".join(json.dumps({"label": row["label"], "text": row["text"]}) + "\n" for row in rows).encode()


PUBLISHED = PublishedTexts(
    info=INFO,
    files={f"{part}.jsonl": HubSplit(repository="stanfordnlp/imdb", split=part) for part in PARTS},
    content=file_content,
    read=read_reviews,
    where=WHERE,
)
