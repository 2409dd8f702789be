"""Hidden tokens of any text task, to be told from the others: masked-token prediction as in BERT.

Source: Devlin et al., arXiv 1810.04805, Sec. 3.1. `masked_token:imdb` or `masked_token:text:reviews.csv` takes the texts of that task and leaves its
labels. Of an item's real tokens 15 % are asked for (option `rate`, in percent); of those 80 % read as the mask token, 10 % as another token, 10 % as
themselves. With # for the mask:

    text     t h e   f i l m   w a s   g o o d
    read     t h #   f i l m   w a x   g o # d
    asked        e                 s       o

Options `tokenizer`, `vocab_size`, `text_column` and `label_column` are those of the text task. `chance` is that of a uniform guess over the
vocabulary; always saying the most frequent token of the texts scores more, by how much depends on them.
"""

from __future__ import annotations

import dataclasses

from bench import catalog
from bench.spec import RequestError
from bench.tasks import Place, Split, Splits
from bench.tasks._info import CLASS, TOKEN_CLASS, Sequences, TaskChoice, TaskInfo, choose
from bench.tasks.readers.tokenise import TOKEN_OPTIONS
from models.layers.options import Option

ARGUMENT = "TEXT TASK"
TEXT_OPTIONS = (Option("text_column", "text"), Option("label_column", "label"), *TOKEN_OPTIONS)
OPTIONS = (Option("rate", 15, low=1, high=100), *TEXT_OPTIONS)
SEEDS = {"train": 0, "validation": 1, "test": 2}


def info(choice: TaskChoice) -> TaskInfo:
    texts, vocab_size = _facts(text_task(choice))
    return dataclasses.replace(
        texts,
        name="masked_token",
        summary=f"masked-token prediction: {texts.summary}",
        source=f"BERT, arXiv 1810.04805, on: {texts.source}",
        reads=Sequences(vocab_size=vocab_size + 1),
        answers=TOKEN_CLASS,
        num_classes=vocab_size,
        chance=1 / vocab_size,
    )


def require_data(choice: TaskChoice, place: Place) -> None:
    nested = text_task(choice)
    catalog.load("tasks", nested.name).require_data(nested, place)


def load(choice: TaskChoice, *, num_tokens: int, place: Place) -> Splits:
    """The splits of the text task with tokens hidden; the mask token's id is the texts' vocabulary size, one above their last."""
    from bench.tasks.readers.masking import hide_tokens

    nested = text_task(choice)
    _, vocab_size = _facts(nested)
    read: Splits = catalog.load("tasks", nested.name).load(nested, num_tokens=num_tokens, place=place)

    def hide(name: str, part: Split) -> Split:
        return hide_tokens(part, vocab_size=vocab_size, rate=choice.options["rate"], seed=SEEDS[name])

    validation = hide("validation", read.validation) if read.validation else None
    return Splits(train=hide("train", read.train), test=hide("test", read.test), validation=validation)


def text_task(choice: TaskChoice) -> TaskChoice:
    """The text task that the argument names, with the options that are its own. Raises RequestError where it is none, or lacks an option."""
    given = {option.name: choice.options[option.name] for option in TEXT_OPTIONS if choice.options[option.name] != option.default}
    nested = choose(choice.argument + "".join(f"+{key}={value}" for key, value in given.items()))
    if nested.name == "masked_token" or "tokenizer" not in nested.options:
        raise RequestError(
            f"task masked_token reads a text task, found {choice.argument!r}", "write masked_token:imdb or masked_token:text:FILE"
        )
    return nested


def _facts(nested: TaskChoice) -> tuple[TaskInfo, int]:
    """The facts of the text task, and its vocabulary size."""
    facts: TaskInfo = catalog.load("tasks", nested.name).info(nested)
    assert isinstance(facts.reads, Sequences)
    assert facts.answers == CLASS
    return facts, facts.reads.vocab_size
