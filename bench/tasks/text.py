"""Your own labelled texts, in a csv, tsv, jsonl or parquet file.

All formats but parquet may be compressed as .gz or .xz. `text:reviews.csv` reads the columns `text` and `label`. Options: `text_column`,
`label_column`, `tokenizer` (bytes or bpe), `vocab_size` (of bpe), `spare_ids` (for weights pre-trained by masked_token: 1). Labels may be words or
numbers; the classes are the different values, sorted. A column `split` may mark rows as train, validation or test. Without it, every fifth row of
each class, in stored order, is a test row. Files are UTF-8; csv fields may be quoted, tsv fields are read literally.
"""

from __future__ import annotations

from pathlib import Path

from bench.tasks import Place, Splits
from bench.tasks._info import TaskChoice, TaskInfo
from bench.tasks.readers.tables import read_text_table
from bench.tasks.readers.text import TextSplits, require_tokenizer, to_splits, token_sequences
from bench.tasks.readers.tokenise import LABELLED_OPTIONS
from models.layers.options import Option

ARGUMENT = "FILE"
OPTIONS = (Option("text_column", "text"), Option("label_column", "label"), *LABELLED_OPTIONS)


def info(choice: TaskChoice) -> TaskInfo:
    """Count classes and items in the file.

    Raises RequestError if the file is missing or does not match the options.
    """
    read, classes = _read(choice)
    return TaskInfo(
        name="text",
        summary=f"the texts of {Path(choice.argument).name}, {len(classes)} classes",
        source=str(Path(choice.argument).expanduser()),
        reads=token_sequences(choice.options),
        num_classes=len(classes),
        chance=1 / len(classes),
        num_train=len(read.train.texts),
        num_validation=len(read.validation.texts) if read.validation else 0,
        num_test=len(read.test.texts),
    )


def require_data(choice: TaskChoice, place: Place) -> None:
    require_tokenizer(choice)
    info(choice)


def load(choice: TaskChoice, *, num_tokens: int, place: Place) -> Splits:
    """Load the splits as token ids.

    The task names its file, so no data folder is needed.
    """
    return to_splits(_read(choice)[0], options=choice.options, num_tokens=num_tokens)


def _read(choice: TaskChoice) -> tuple[TextSplits, tuple[str, ...]]:
    columns = {name: str(choice.options[name]) for name in ("text_column", "label_column")}
    return read_text_table(Path(choice.argument).expanduser(), **columns)
