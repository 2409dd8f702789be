"""Published texts from the Hugging Face hub, written as the files that a text task reads.

The optional library `datasets` is imported only to download.
"""

from __future__ import annotations

import importlib.util
import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.files import write_bytes
from bench.spec import RequestError
from bench.tasks._info import MissingDataError, TaskChoice, TaskInfo
from bench.tasks.readers.text import Texts, TextSplits, require_tokenizer, whole

if TYPE_CHECKING:
    from bench.tasks import Place

CONVERTED = "refs/convert/parquet"
"""Revision with the hub's own parquet files of a repository whose loading script the library no longer runs."""


@dataclass(frozen=True, kw_only=True)
class HubSplit:
    """A split (train, validation or test) of a data set on the hub."""

    repository: str
    split: str
    revision: str | None = None


@dataclass(frozen=True, kw_only=True)
class PublishedTexts:
    """Where the files of a text task come from.

    `files`: the split that becomes each file, by the file's name.
    `content`: rows of `datasets` to the bytes of a file.
    `read`: the task's reader of such a file.
    `where`: how to get the files by hand, for hints.
    """

    info: TaskInfo
    files: Mapping[str, HubSplit]
    content: Callable[[Any], bytes]
    read: Callable[[Path], Texts]
    where: str

    def num_items(self, split: str) -> int:
        return {"train": self.info.num_train, "validation": self.info.num_validation, "test": self.info.num_test}[split]


def read_published(published: PublishedTexts, choice: TaskChoice, place: Place, *folders: str) -> TextSplits:
    """Read the task's files in the first of `folders` that exists, else in the first, after downloading what is missing if `place` allows it.

    Raises RequestError if the tokenizer is not available, or if a file is missing, damaged or incomplete.
    """
    require_tokenizer(choice)
    root = place.folder(published.info.name)
    folder = next((root / name for name in folders if (root / name).is_dir()), root / folders[0])
    require_files(published, folder, place)
    read = {wanted.split: published.read(folder / name) for name, wanted in published.files.items()}
    return whole(published.info, TextSplits(**read), folder)


def require_files(published: PublishedTexts, folder: Path, place: Place) -> None:
    """Download missing files if `place` allows it.

    Raises RequestError otherwise: the message names the folder and the first missing file, the hint the source.
    """
    missing = [name for name in published.files if not (folder / name).is_file()]
    if missing and place.download:
        download(published, missing, folder)
    elif missing:
        raise MissingDataError(
            f"task {published.info.name} needs {' and '.join(published.files)} in {folder}; {missing[0]} is not there",
            f"add `download`, or {published.where}",
        )


def download(published: PublishedTexts, names: Sequence[str], folder: Path) -> None:
    """Write the files `names` into `folder`, all or none unless the disk fails.

    Each is read back by the task's reader before any is written. Raises RequestError if `datasets` is not installed, the hub cannot be reached, or a
    file has another number of items or classes than the task states.
    """
    task = published.info.name
    if importlib.util.find_spec("datasets") is None:
        raise RequestError(f"downloading task {task} needs the library datasets, which is not installed", "pip install datasets")
    with tempfile.TemporaryDirectory() as cache, _without_warnings():
        contents = {name: _checked_content(published, name, Path(cache), folder) for name in names}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            write_bytes(folder / name, content)
    except OSError as error:
        raise RequestError(f"task {task}: cannot write {folder}: {error.strerror or error}", "name another `data_root`") from error


def _checked_content(published: PublishedTexts, name: str, cache: Path, folder: Path) -> bytes:
    wanted, info = published.files[name], published.info
    source = f"task {info.name}: {wanted.repository} (split {wanted.split}) on the Hugging Face hub"
    try:
        from datasets import load_dataset

        content = published.content(load_dataset(wanted.repository, split=wanted.split, revision=wanted.revision, cache_dir=str(cache)))
        (cache / name).write_bytes(content)
        read = published.read(cache / name)
    except Exception as error:  # the library, its readers and its network clients raise many types
        kind = "" if isinstance(error, RequestError) else f"{type(error).__name__}: "
        reason = kind + " ".join(str(error).replace(f"{cache}/", "").split())
        raise RequestError(
            f"{source} cannot be downloaded as {folder / name}: {reason}", f"try again with a network, or {published.where}"
        ) from error
    found, expected = (len(read.texts), len(set(read.labels))), (published.num_items(wanted.split), info.num_classes)
    if found != expected:
        raise RequestError(
            f"{source} has {found[0]} items in {found[1]} classes; the data set has {expected[0]} in {expected[1]}",
            f"nothing was written to {folder}; {published.where}",
        )
    return content


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Keep the library from logging each retry: a failure is told once, as an error."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
