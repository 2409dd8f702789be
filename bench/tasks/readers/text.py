"""Read text and JSON lines; turn labelled texts into splits.

Files may be plain or compressed (gzip, xz).
"""

from __future__ import annotations

import dataclasses
import gzip
import json
import lzma
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from bench.spec import OptionValue, RequestError
from bench.tasks._info import Sequences, TaskChoice, TaskInfo
from bench.tasks.readers import byte_pairs
from bench.tasks.readers.tokenise import Tokenise, learn_tokens, require_tokens

if TYPE_CHECKING:
    from bench.tasks import Split, Splits


@dataclass(frozen=True, kw_only=True)
class Texts:
    """Texts and their classes, in stored order."""

    texts: Sequence[str]
    labels: Sequence[int]


@dataclass(frozen=True, kw_only=True)
class TextSplits:
    """The texts of a task's splits.

    `validation`: None if validation items are drawn from the training split.
    """

    train: Texts
    test: Texts
    validation: Texts | None = None


def token_sequences(options: Mapping[str, Any]) -> Sequences:
    """Return what a text task reads, without learning a tokenizer."""
    return Sequences(vocab_size=require_tokens(options) + options["spare_ids"])


def info_with_tokens(info: TaskInfo, choice: TaskChoice) -> TaskInfo:
    """Return the facts with the requested vocabulary size, without learning a tokenizer."""
    return dataclasses.replace(info, reads=token_sequences(choice.options))


def require_tokenizer(choice: TaskChoice) -> None:
    """Raise RequestError if the requested tokenizer is not available."""
    if choice.options["tokenizer"] == "bpe":
        byte_pairs.require_library()


def whole(info: TaskInfo, read: TextSplits, folder: Path) -> TextSplits:
    """Return the texts of a published data set.

    Raises RequestError if it has an unexpected number of items: otherwise an incomplete copy would pass for the whole set.
    """
    validation = len(read.validation.texts) if read.validation else 0
    found = (len(read.train.texts), validation, len(read.test.texts))
    expected = (info.num_train, info.num_validation, info.num_test)
    if found != expected:
        raise RequestError(
            f"task {info.name}: {folder} holds {found} items for training, validation and testing; the data set has {expected}",
            "copy the files again; to read your own data, use `task=text:FILE`",
        )
    return read


def to_splits(read: TextSplits, *, options: Mapping[str, OptionValue], num_tokens: int) -> Splits:
    """Convert texts to token ids, `(items, num_tokens)`, with lengths.

    The tokenizer learns from the training texts alone.
    """
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


OPEN: dict[str, Callable[..., IO[str]]] = {".gz": gzip.open, ".xz": lzma.open}
READ_ERRORS = (OSError, EOFError, lzma.LZMAError, UnicodeDecodeError)


def read_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a UTF-8 file, without line ends and byte-order mark.

    Raises RequestError if reading fails.
    """
    opened = OPEN.get(path.suffix, open)
    try:
        with opened(path, mode="rt", encoding="utf-8-sig", newline="\n") as file:
            for line in file:
                yield line.removesuffix("\n").removesuffix("\r")
    except READ_ERRORS as error:
        raise RequestError(f"{path} cannot be read: {error}", "copy or unpack the file again") from error


def read_json_lines(path: Path, fields: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """Yield the objects of a file, one per line; skip empty lines.

    Raises RequestError, naming the line, for invalid JSON, another type or a missing field.
    """
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        try:
            found = json.loads(line)
        except ValueError as error:
            raise RequestError(f"{path} line {number} is not valid JSON: {error}", "copy the file again") from error
        if not isinstance(found, dict):
            raise RequestError(f"{path} line {number} is not a JSON object", "write one object per line")
        missing = [name for name in fields if name not in found]
        if missing:
            raise RequestError(f"{path} line {number} has no field {missing[0]!r}", f"each line needs the fields {', '.join(fields)}")
        yield found
