"""Phrases and sentences of film reviews, negative or positive (SST-2), 2 classes.

Source: Socher et al., EMNLP 2013, as split by GLUE (Wang et al., arXiv 1804.07461): 67,349 phrases for training, 872 sentences (dev) for validation.
The test split is the treebank's own 1,821 labelled sentences, because GLUE's test file has no labels. Downloads are from the Hugging Face hub:
train and dev from stanfordnlp/sst2; the test from SetFit/sst2, in the treebank's order, with brackets and slashes as GLUE writes them. Options:
`tokenizer` (bytes or bpe), `vocab_size` (of bpe), `spare_ids` (for weights pre-trained by masked_token: 1).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.spec import RequestError
from bench.tasks import Place, Splits
from bench.tasks._info import Sequences, TaskChoice, TaskInfo
from bench.tasks.readers.hub import HubSplit, PublishedTexts, read_published
from bench.tasks.readers.text import Texts, TextSplits, info_with_tokens, read_lines, to_splits
from bench.tasks.readers.tokenise import BYTE_VOCAB_SIZE, LABELLED_OPTIONS

OPTIONS = LABELLED_OPTIONS
HEADER = "sentence\tlabel"
LABELS = ("0", "1")
UNESCAPED = {"-lrb-": "(", "-rrb-": ")", r"\/": "/", r"\*": "*"}
"""What the treebank writes, and GLUE in its place."""
INFO = TaskInfo(
    name="sst2",
    summary="phrases of film reviews, 2 classes",
    source="Socher et al., EMNLP 2013; GLUE, arXiv 1804.07461",
    reads=Sequences(vocab_size=BYTE_VOCAB_SIZE),
    num_classes=len(LABELS),
    chance=1 / len(LABELS),
    num_train=67349,
    num_validation=872,
    num_test=1821,
)
WHERE = (
    "copy SST-2 of GLUE (arXiv 1804.07461) there, and the test of the Stanford Sentiment Treebank (Socher et al. 2013) as test_labelled.tsv"
)


def info(choice: TaskChoice) -> TaskInfo:
    return info_with_tokens(INFO, choice)


def require_data(choice: TaskChoice, place: Place) -> None:
    _read(choice, place)


def load(choice: TaskChoice, *, num_tokens: int, place: Place) -> Splits:
    return to_splits(_read(choice, place), options=choice.options, num_tokens=num_tokens)


def _read(choice: TaskChoice, place: Place) -> TextSplits:
    return read_published(PUBLISHED, choice, place, "sst2")


def read_phrases(path: Path) -> Texts:
    """Read a file's phrases and labels.

    Quotation marks stay part of the text. Raises RequestError for a wrong header or, naming the line, for a missing label.
    """
    lines = read_lines(path)
    header = next(lines, "")
    if header != HEADER:
        raise RequestError(f"{path} starts with {header!r}, not with the header sentence, tab, label", WHERE)
    texts, labels = [], []
    for number, line in enumerate(lines, start=2):
        text, tab, label = line.rpartition("\t")
        if not tab or label not in LABELS:
            raise RequestError(f"{path} line {number} does not end in a tab and 0 or 1", WHERE)
        texts.append(text)
        labels.append(LABELS.index(label))
    return Texts(texts=texts, labels=labels)


def file_content(rows: Any) -> bytes:
    """Return rows of the hub as a file with the GLUE header.

    Each phrase ends in one space, as in GLUE.
    """
    phrases = rows["sentence" if "sentence" in rows.column_names else "text"]
    lines = (f"{_as_in_glue(phrase)} \t{label}" for phrase, label in zip(phrases, rows["label"], strict=True))
    return "".join(f"{line}\n" for line in (HEADER, *lines)).encode()


def _as_in_glue(phrase: str) -> str:
    for escaped, plain in UNESCAPED.items():
        phrase = phrase.replace(escaped, plain)
    return phrase.strip()


PUBLISHED = PublishedTexts(
    info=INFO,
    files={
        "train.tsv": HubSplit(repository="stanfordnlp/sst2", split="train"),
        "dev.tsv": HubSplit(repository="stanfordnlp/sst2", split="validation"),
        "test_labelled.tsv": HubSplit(repository="SetFit/sst2", split="test"),
    },
    content=file_content,
    read=read_phrases,
    where=WHERE,
)
