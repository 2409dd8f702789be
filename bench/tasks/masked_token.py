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

from bench.tasks import Place, Split, Splits
from bench.tasks._info import TOKEN_CLASS, Sequences, TaskChoice, TaskInfo, info_of
from bench.tasks.readers.nested import TEXT_OPTIONS, TEXT_TASK, changed_texts, require_texts, text_task
from models.layers.options import Option

ARGUMENT = TEXT_TASK
OPTIONS = (Option("rate", 15, low=1, high=100), *TEXT_OPTIONS)
require_data = require_texts


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


def load(choice: TaskChoice, *, num_tokens: int, place: Place) -> Splits:
    """Load the text task's splits and hide tokens in them.

    The mask token's id is the text task's vocabulary size, one above its largest id.
    """
    from bench.tasks.readers.masking import hide_tokens

    vocab_size = info(choice).num_classes

    def hide(part: Split, seed: int) -> Split:
        return hide_tokens(part, vocab_size=vocab_size, rate=choice.options["rate"], seed=seed)

    return changed_texts(choice, hide, num_tokens=num_tokens, place=place)
