"""Span corruption, as in T5: write the spans that are missing from the texts of another task.

Source: Raffel et al., arXiv 1910.10683, Sec. 3.1.4 and 3.3.4. `span_corruption:imdb` or `span_corruption:text:reviews.csv` uses the texts of that
task and ignores its labels. 15 % of a text's tokens (option `rate`, in percent) are removed, in random spans of 3 tokens on average (option
`length`). In their place the first half of the item shows a sentinel token for each span. The second half writes them: every sentinel, followed by
its span, and a last sentinel as the end. It reads the answers one token late, after a start symbol (s), as in the task `copy` with form=shifted, and
test items are scored on the tokens that the model generates. With 0, 1, 2 for the sentinels and b for blanks:

    text      t h e f i l m w a s g o o d
    first     t h e f 0 w a s g 1 d b b b
    second    s 0 i l m 1 o o 2 b b b b b
    answers   0 i l m 1 o o 2 . . . . . .

Texts are cut to half of the data tokens. There are 100 sentinels, as in T5, which limits the length. The options `tokenizer`, `vocab_size`,
`text_column` and `label_column` are passed to the text task. `chance` is the score of a uniform guess.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools

from bench.tasks import Place, Splits
from bench.tasks._info import TOKEN_CLASS, Generation, Sequences, TaskChoice, TaskInfo, info_of
from bench.tasks.readers.nested import TEXT_OPTIONS, TEXT_TASK, changed_texts, require_texts, text_task
from bench.tasks.readers.spans import SENTINELS, corrupt_spans, num_removed
from bench.tasks.readers.tokenise import PADDING
from models.layers.options import LARGEST, Option

ARGUMENT = TEXT_TASK
OPTIONS = (Option("rate", 15, low=1, high=50), Option("length", 3, low=2, high=100), *TEXT_OPTIONS)
FEWEST = 8
"""Tokens of a half: at any rate and length, the answers fit in it."""
require_data = require_texts


def info(choice: TaskChoice) -> TaskInfo:
    texts = info_of(text_task(choice).text)
    assert isinstance(texts.reads, Sequences)
    num_classes = texts.reads.vocab_size + SENTINELS
    rate, length = choice.options["rate"], choice.options["length"]
    too_long = bisect.bisect_left(range(LARGEST), SENTINELS, key=lambda half: num_removed(half, rate=rate, length=length)[1])
    return dataclasses.replace(
        texts,
        name="span_corruption",
        summary=f"span corruption: {texts.summary}",
        source=f"T5, arXiv 1910.10683, on: {texts.source}",
        reads=Sequences(
            vocab_size=num_classes + 1,
            multiple=2,
            min_tokens=2 * FEWEST,
            max_tokens=2 * (too_long - 1),
            longer_with="longer spans, such as length=10",
        ),
        answers=TOKEN_CLASS,
        num_classes=num_classes,
        chance=1 / num_classes,
        generation=Generation(start=num_classes, blank=PADDING),
    )


def load(choice: TaskChoice, *, num_tokens: int, place: Place) -> Splits:
    """Load the text task's splits at half of the tokens, and remove spans from them.

    Ids: those of the texts, 0 for a blank, then the sentinels, then the start symbol.
    """
    vocab_size = info(choice).num_classes - SENTINELS
    corrupt = functools.partial(corrupt_spans, vocab_size=vocab_size, rate=choice.options["rate"], length=choice.options["length"])
    return changed_texts(choice, corrupt, num_tokens=num_tokens // 2, place=place)
