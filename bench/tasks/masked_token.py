"""Masked-token prediction, as in BERT, on the texts of another task.

Source: Devlin et al., arXiv 1810.04805, Sec. 3.1. `masked_token:imdb` or `masked_token:text:reviews.csv` uses the texts of that task and ignores its
labels. The model must predict 15 % of an item's real tokens (option `rate`, in percent). Of these, 80 % are replaced by the mask token, 10 % by
another token, and 10 % stay unchanged. With # for the mask:

    text     t h e   f i l m   w a s   g o o d
    read     t h #   f i l m   w a x   g o # d
    asked        e                 s       o

The options `tokenizer`, `vocab_size`, `text_column` and `label_column` are passed to the text task. `chance` is the score of a uniform guess over the
vocabulary; always answering the most frequent token scores higher, depending on the texts.
"""

from __future__ import annotations

import dataclasses

from bench import catalog
from bench.spec import RequestError
from bench.tasks import Place, Split, Splits
from bench.tasks._info import TOKEN_CLASS, Sequences, TaskChoice, TaskInfo, choose, info_of
from bench.tasks.readers.tokenise import TOKEN_OPTIONS
from models.layers.options import Option

ARGUMENT = "TEXT TASK"
TEXT_OPTIONS = (Option("text_column", "text"), Option("label_column", "label"), *TOKEN_OPTIONS)
OPTIONS = (Option("rate", 15, low=1, high=100), *TEXT_OPTIONS)
SEEDS = {"train": 0, "validation": 1, "test": 2}


def info(choice: TaskChoice) -> TaskInfo:
    texts = info_of(text_task(choice).text)
    assert isinstance(texts.reads, Sequences)
    vocab_size = texts.reads.vocab_size
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
    """Load the text task's splits and hide tokens in them.

    The mask token's id is the text task's vocabulary size, one above its largest id.
    """
    from bench.tasks.readers.masking import hide_tokens

    nested, vocab_size = text_task(choice), info(choice).num_classes
    read: Splits = catalog.load("tasks", nested.name).load(nested, num_tokens=num_tokens, place=place)

    def hide(name: str, part: Split) -> Split:
        return hide_tokens(part, vocab_size=vocab_size, rate=choice.options["rate"], seed=SEEDS[name])

    validation = hide("validation", read.validation) if read.validation else None
    return Splits(train=hide("train", read.train), test=hide("test", read.test), validation=validation)


def text_task(choice: TaskChoice) -> TaskChoice:
    """Return the text task that the argument names, with its own options.

    Raises RequestError if the argument is not a text task, or if that task lacks an option.
    """
    given = {option.name: choice.options[option.name] for option in TEXT_OPTIONS if choice.options[option.name] != option.default}
    nested = choose(choice.argument + "".join(f"+{key}={value}" for key, value in given.items()))
    if nested.name == "masked_token" or "tokenizer" not in nested.options:
        raise RequestError(
            f"task masked_token reads a text task, found {choice.argument!r}", "write masked_token:imdb or masked_token:text:FILE"
        )
    return nested
