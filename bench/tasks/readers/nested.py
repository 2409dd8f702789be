"""Tasks that ask something else of the texts of a text task, whose labels they ignore.

Imports no torch before data are loaded.
"""

from __future__ import annotations

from collections.abc import Callable

from bench import catalog
from bench.spec import RequestError
from bench.tasks import Place, Split, Splits
from bench.tasks._info import TaskChoice, choose
from bench.tasks.readers.tokenise import TOKEN_OPTIONS
from models.layers.options import Option

TEXT_TASK = "TEXT TASK"
"""Word for the argument of such a task."""
TEXT_OPTIONS = (Option("text_column", "text"), Option("label_column", "label"), *TOKEN_OPTIONS)
"""Options that are passed to the text task."""
SEEDS = {"train": 0, "validation": 1, "test": 2}


def text_task(choice: TaskChoice) -> TaskChoice:
    """Return the text task that the argument names, with its own options.

    Raises RequestError if the argument is not a text task, or if that task lacks an option.
    """
    given = {option.name: choice.options[option.name] for option in TEXT_OPTIONS if choice.options[option.name] != option.default}
    nested = choose(choice.argument + "".join(f"+{key}={value}" for key, value in given.items()))
    if getattr(catalog.load("tasks", nested.name), "ARGUMENT", "") == TEXT_TASK or "tokenizer" not in nested.options:
        raise RequestError(
            f"task {choice.name} reads a text task, found {choice.argument!r}", f"write {choice.name}:imdb or {choice.name}:text:FILE"
        )
    return nested


def require_texts(choice: TaskChoice, place: Place) -> None:
    """Raise RequestError if the data of the text task are missing."""
    nested = text_task(choice)
    catalog.load("tasks", nested.name).require_data(nested, place)


def changed_texts(choice: TaskChoice, change: Callable[[Split, int], Split], *, num_tokens: int, place: Place) -> Splits:
    """Load the text task's splits at `num_tokens` and change each.

    `change`: (split, seed) -> split; every split has a seed of its own.
    """
    nested = text_task(choice)
    read: Splits = catalog.load("tasks", nested.name).load(nested, num_tokens=num_tokens, place=place)
    validation = change(read.validation, SEEDS["validation"]) if read.validation else None
    return Splits(train=change(read.train, SEEDS["train"]), test=change(read.test, SEEDS["test"]), validation=validation)
