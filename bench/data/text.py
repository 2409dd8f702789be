"""Labelled texts, and how they become the splits of a task. Imports torch only where tensors are made."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bench.data import byte_pairs
from bench.data.tokenise import Tokenise, learn_tokens, require_tokens
from bench.spec import OptionValue, RequestError
from bench.task_info import Sequences, TaskChoice, TaskInfo

if TYPE_CHECKING:
    from bench.tasks import Split, Splits


@dataclass(frozen=True, kw_only=True)
class Texts:
    """Texts and the class of each, in stored order."""

    texts: Sequence[str]
    labels: Sequence[int]


@dataclass(frozen=True, kw_only=True)
class TextSplits:
    """The texts of a task; without `validation`, it is drawn from the training split."""

    train: Texts
    test: Texts
    validation: Texts | None = None


def info_with_tokens(info: TaskInfo, choice: TaskChoice) -> TaskInfo:
    """The facts with the vocabulary that the options ask for. Nothing is learned for it."""
    return dataclasses.replace(info, reads=Sequences(vocab_size=require_tokens(choice.options)))


def require_tokenizer(choice: TaskChoice) -> None:
    """Raise RequestError where the tokenizer asked for cannot run here."""
    require_tokens(choice.options)
    if choice.options["tokenizer"] == "bpe":
        byte_pairs.require_library()


def require_files(task: str, folder: Path, names: Sequence[str], where: str) -> None:
    """Raise RequestError, naming the folder and `where` the files can be had, for the first that is missing."""
    for name in names:
        if not (folder / name).is_file():
            raise RequestError(f"task {task} needs {' and '.join(names)} in {folder}; {name} is not there", where)


def require_counts(info: TaskInfo, splits: TextSplits, folder: Path) -> None:
    """Raise RequestError where a known data set does not have its known number of items: a part of it would pass for the whole."""
    validation = len(splits.validation.texts) if splits.validation else 0
    found = (len(splits.train.texts), validation, len(splits.test.texts))
    expected = (info.num_train, info.num_validation, info.num_test)
    if found != expected:
        raise RequestError(
            f"task {info.name}: {folder} holds {found} items for training, validation and testing; the data set has {expected}",
            "copy the files again; a set of your own is read by --task text:FILE",
        )


def to_splits(read: TextSplits, *, options: Mapping[str, OptionValue], num_tokens: int) -> Splits:
    """The splits as token ids, `(items, num_tokens)`, with their lengths. What is learned is learned from the training texts."""
    from bench.tasks import Splits

    tokenise = learn_tokens(read.train.texts, options=options, num_tokens=num_tokens)
    validation = _to_split(read.validation, tokenise) if read.validation else None
    return Splits(train=_to_split(read.train, tokenise), test=_to_split(read.test, tokenise), validation=validation)


def _to_split(read: Texts, tokenise: Tokenise) -> Split:
    import torch

    from bench.tasks import Split

    ids, lengths = tokenise(read.texts)
    return Split(
        inputs=torch.from_numpy(ids),
        targets=torch.tensor(read.labels, dtype=torch.int64),
        lengths=torch.from_numpy(lengths),
    )
