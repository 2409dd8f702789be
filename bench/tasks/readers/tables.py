"""Read texts and labels from columns of the user's table.

Reads through pandas; imports no torch.
"""

from __future__ import annotations

import contextlib
import csv
import lzma
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.spec import RequestError
from bench.tasks.readers.text import Texts, TextSplits, read_json_lines

if TYPE_CHECKING:
    import pandas as pd

FORMATS = (".csv", ".tsv", ".jsonl", ".parquet")
COMPRESSED = (".gz", ".xz")
SPLIT_COLUMN = "split"
PARTS = ("train", "validation", "test")
TEST_EVERY = 5
"""Without a split column, every fifth row per class is for testing.

It is the last of the five, so that a rare class is learned rather than tested.
"""
READ_ERRORS = (ValueError, OSError, EOFError, lzma.LZMAError)


def read_text_table(path: Path, *, text_column: str, label_column: str) -> tuple[TextSplits, tuple[str, ...]]:
    """Read a table's splits and its classes, sorted.

    Raises RequestError if the file or a column is missing, unreadable, or cannot be split.
    """
    table = _read(path)
    names, texts = ([_as_text(value) for value in _column(path, table, name)] for name in (label_column, text_column))
    classes = _classes(path, label_column, names)
    index = {name: label for label, name in enumerate(classes)}
    labels = [index[name] for name in names]
    if SPLIT_COLUMN in table:
        parts = [_as_text(value) for value in table[SPLIT_COLUMN]]
    else:
        parts = ["train" if (place + 1) % TEST_EVERY else "test" for place in table.groupby(labels).cumcount()]
    return _split(path, classes, texts, labels, parts), classes


def _read(path: Path) -> pd.DataFrame:
    import pandas as pd

    if not path.is_file():
        raise RequestError(
            f"`task=text:{path}`: there is no such file; allowed: {', '.join(FORMATS)}, all but parquet also with {' or '.join(COMPRESSED)}",
            "name a file, as in `task=text:reviews.csv`",
        )
    form = format_of(path)
    if form == ".jsonl":
        return pd.DataFrame(list(read_json_lines(path, ())), dtype=object)
    try:
        table = _read_as(form, path)
    except READ_ERRORS as error:
        raise RequestError(
            f"{path} cannot be read as {form[1:]}: {error}", "save it again as UTF-8, with one header line in csv and tsv"
        ) from error
    if form != ".parquet" and not isinstance(table.index, pd.RangeIndex):
        raise RequestError(
            f"{path} has rows with more fields than its header has names", "name every column, or quote fields that contain separators"
        )
    return table


def format_of(path: Path) -> str:
    """Return the file's ending without compression. Raises RequestError for an unknown one."""
    packed = path.suffix in COMPRESSED
    form = path.with_suffix("").suffix if packed else path.suffix
    if form not in FORMATS or (packed and form == ".parquet"):
        raise RequestError(
            f"{path.name} has an unknown ending; allowed: {', '.join(FORMATS)} (all but parquet also with {' or '.join(COMPRESSED)})",
            "write `task=text:FILE`",
        )
    return form


def _read_as(form: str, path: Path) -> pd.DataFrame:
    """Read values literally.

    Numbers, and words that could mean a missing value, are not converted.
    """
    import pandas as pd

    if form == ".parquet":
        return pd.read_parquet(path)
    if form == ".csv":
        return pd.read_csv(path, dtype=str, keep_default_na=False)
    # tsv files are mostly written without quoting: with quoting, one quotation mark could swallow many rows
    return pd.read_csv(path, sep="\t", dtype=str, keep_default_na=False, quoting=csv.QUOTE_NONE)


def _column(path: Path, table: pd.DataFrame, name: str) -> pd.Series[Any]:
    if name not in table:
        found = ", ".join(map(str, table.columns))
        raise RequestError(f"{path} has no column {name!r}; its columns: {found}", "add +text_column=NAME or +label_column=NAME")
    return table[name]


def _as_text(value: Any) -> str:
    import pandas as pd

    return "" if pd.api.types.is_scalar(value) and pd.isna(value) else str(value)


def _classes(path: Path, column: str, names: Sequence[str]) -> tuple[str, ...]:
    for row, name in enumerate(names, start=1):
        if not name.strip():
            raise RequestError(f"{path}: row {row} of {len(names)} has no value in the label column {column!r}", "fill or drop such rows")
    classes = set(names)
    written: dict[str, str] = {}
    for name in sorted(classes):
        if (first := written.setdefault(name.strip(), name)) != name:
            raise RequestError(f"{path}: labels {first!r} and {name!r} differ only in spaces", "write every class one way")
    if len(classes) < 2:
        raise RequestError(
            f"{path}: the label column {column!r} holds {len(classes)} class(es); a task needs at least 2", "add +label_column=NAME"
        )
    with contextlib.suppress(ValueError):
        numbers = {name: float(name) for name in classes}
        if all(map(math.isfinite, numbers.values())):
            return tuple(sorted(classes, key=lambda name: (numbers[name], name)))
    return tuple(sorted(classes))


def _split(path: Path, classes: Sequence[str], texts: Sequence[str], labels: Sequence[int], parts: Sequence[str]) -> TextSplits:
    unknown = sorted(set(parts) - set(PARTS))
    if unknown:
        raise RequestError(
            f"{path}: column {SPLIT_COLUMN!r} holds {unknown[0]!r}; allowed: {', '.join(PARTS)}", "rename the column or change its values"
        )
    train, validation, test = (_only(part, texts, labels, parts) for part in PARTS)
    for part, found in (("train", train), ("test", test)):
        if not found.texts:
            raise RequestError(
                f"{path}: no rows for {part}", f"mark rows in a column {SPLIT_COLUMN!r}, or give {TEST_EVERY} or more rows per class"
            )
    if unlearned := sorted({*validation.labels, *test.labels} - set(train.labels)):
        raise RequestError(
            f"{path}: class {classes[unlearned[0]]!r} has no rows for train", f"mark some of its rows as train in column {SPLIT_COLUMN!r}"
        )
    return TextSplits(train=train, test=test, validation=validation if validation.texts else None)


def _only(part: str, texts: Sequence[str], labels: Sequence[int], parts: Sequence[str]) -> Texts:
    rows = [row for row, found in enumerate(parts) if found == part]
    return Texts(texts=[texts[row] for row in rows], labels=[labels[row] for row in rows])
