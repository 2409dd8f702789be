"""Your own labelled texts, in a csv, tsv, jsonl or parquet file.

All formats but parquet may be compressed as .gz or .xz. `text:reviews.csv` reads the columns `text` and `label`. Options: `text_column`,
`label_column`, `tokenizer` (bytes or bpe), `vocab_size` (of bpe). Labels may be words or numbers; the classes are the different values, sorted. A
column `split` may mark rows as train, validation or test. Without it, every fifth row of each class, in stored order, is a test row. Files are UTF-8;
csv fields may be quoted, tsv fields are read literally.
"""

from __future__ import annotations

import functools
from pathlib import Path

from bench.tasks import Place, Splits
from bench.tasks._info import Sequences, TaskChoice, TaskInfo
from bench.tasks.readers.tables import read_text_table
from bench.tasks.readers.text import TextSplits, require_tokenizer, to_splits
from bench.tasks.readers.tokenise import TOKEN_OPTIONS, require_tokens
from models.layers.options import Option

ARGUMENT = "FILE"
OPTIONS = (Option("text_column", "text"), Option("label_column", "label"), *TOKEN_OPTIONS)


def info(choice: TaskChoice) -> TaskInfo:
    """Count classes and items in the file.

    Raises RequestError if the file is missing or does not match the options.
    """
    path = file_of(choice)
    changed_ns = path.stat().st_mtime_ns if path.is_file() else 0
    num_classes, num_train, num_validation, num_test = _counts(path, changed_ns, *_columns(choice))
    return TaskInfo(
        name="text",
        summary=f"the texts of {path.name}, {num_classes} classes",
        source=str(path),
        reads=Sequences(vocab_size=require_tokens(choice.options)),
        num_classes=num_classes,
        chance=1 / num_classes,
        num_train=num_train,
        num_validation=num_validation,
        num_test=num_test,
    )


def require_data(choice: TaskChoice, place: Place) -> None:
    require_tokenizer(choice)
    info(choice)


def load(choice: TaskChoice, *, num_tokens: int, place: Place) -> Splits:
    """Load the splits as token ids.

    The task names its file, so no data folder is needed.
    """
    require_tokenizer(choice)
    read, _ = _read(file_of(choice), *_columns(choice))
    return to_splits(read, options=choice.options, num_tokens=num_tokens)


def file_of(choice: TaskChoice) -> Path:
    return Path(choice.argument).expanduser()


def _columns(choice: TaskChoice) -> tuple[str, str]:
    return str(choice.options["text_column"]), str(choice.options["label_column"])


def _read(path: Path, text_column: str, label_column: str) -> tuple[TextSplits, tuple[str, ...]]:
    return read_text_table(path, text_column=text_column, label_column=label_column)


@functools.lru_cache(maxsize=64)
def _counts(path: Path, changed_ns: int, text_column: str, label_column: str) -> tuple[int, int, int, int]:
    """Count classes and items per split.

    `changed_ns` makes the cache notice a rewritten file.
    """
    read, classes = _read(path, text_column, label_column)
    num_validation = len(read.validation.texts) if read.validation else 0
    return len(classes), len(read.train.texts), num_validation, len(read.test.texts)
