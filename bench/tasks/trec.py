"""5,952 short questions, classified by expected answer (TREC), 6 classes.

Source: Li and Roth, Learning Question Classifiers, COLING 2002: 5,452 questions for training and the 500 of TREC 10 for testing. The coarse class
precedes the colon, as in `HUM:ind Who was Galileo ?`. The files are Latin-1; downloads are from CogComp/trec on the
Hugging Face hub. Options: `tokenizer` (bytes or bpe), `vocab_size` (of bpe), `spare_ids` (for weights pre-trained by masked_token: 1).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.spec import RequestError
from bench.tasks import Place, Splits
from bench.tasks._info import Sequences, TaskChoice, TaskInfo
from bench.tasks.readers.hub import CONVERTED, HubSplit, PublishedTexts, read_published
from bench.tasks.readers.text import Texts, TextSplits, info_with_tokens, to_splits
from bench.tasks.readers.tokenise import BYTE_VOCAB_SIZE, LABELLED_OPTIONS

OPTIONS = LABELLED_OPTIONS
CLASSES = ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")
TRAIN_FILE, TEST_FILE = "train_5500.label", "TREC_10.label"
FOLDERS = ("trec6", "trec")
INFO = TaskInfo(
    name="trec",
    summary="5,952 short questions, 6 classes",
    source="Li and Roth, COLING 2002",
    reads=Sequences(vocab_size=BYTE_VOCAB_SIZE),
    num_classes=len(CLASSES),
    chance=1 / len(CLASSES),
    num_train=5452,
    num_test=500,
)
WHERE = (
    "copy the question classification data of Li and Roth (COLING 2002) there, from the Cognitive Computation Group, University of Illinois"
)


def info(choice: TaskChoice) -> TaskInfo:
    return info_with_tokens(INFO, choice)


def require_data(choice: TaskChoice, place: Place) -> None:
    _read(choice, place)


def load(choice: TaskChoice, *, num_tokens: int, place: Place) -> Splits:
    return to_splits(_read(choice, place), options=choice.options, num_tokens=num_tokens)


def _read(choice: TaskChoice, place: Place) -> TextSplits:
    return read_published(PUBLISHED, choice, place, *FOLDERS)


def read_questions(path: Path) -> Texts:
    """Read a file's questions with their coarse classes.

    Raises RequestError, naming the line, for an unknown class.
    """
    texts, labels = [], []
    for number, line in enumerate(path.read_bytes().decode("latin-1").rstrip("\n").split("\n"), start=1):
        name, _, text = line.rstrip("\r").partition(" ")
        coarse = name.partition(":")[0]
        if coarse not in CLASSES:
            raise RequestError(f"{path} line {number}: unknown class {coarse!r}; allowed: {', '.join(CLASSES)}", WHERE)
        texts.append(text)
        labels.append(CLASSES.index(coarse))
    return Texts(texts=texts, labels=labels)


def file_content(rows: Any) -> bytes:
    """Return rows of the hub as the published file, byte for byte.

    The hub has a space in place of the only byte that is not ASCII.
    """
    name_of = rows.features["fine_label"].int2str
    lines = "".join(f"{name_of(row['fine_label'])} {row['text']}\n" for row in rows)
    return lines.replace("sister city", "sister\xf0city").encode("latin-1")


PUBLISHED = PublishedTexts(
    info=INFO,
    files={
        TRAIN_FILE: HubSplit(repository="CogComp/trec", split="train", revision=CONVERTED),
        TEST_FILE: HubSplit(repository="CogComp/trec", split="test", revision=CONVERTED),
    },
    content=file_content,
    read=read_questions,
    where=WHERE,
)
