"""The first half of the tokens, to be repeated in the blank second half: each answer lies n / 2 tokens back.

One item of n = 8 data tokens (b: blank, .: nothing is asked for):

    tokens    3  0  7  7  b  b  b  b
    answers   .  .  .  .  3  0  7  7

The symbols are uniform and independent, so a model whose tokens do not mix answers at chance, 1 / `symbols`, exactly. Every item moves its
tokens by the same distance: a fixed matrix over positions solves it, as does attention to positions.

`form=shifted` (default `blank`) makes it a sequence to generate, as an encoder-decoder or a causal model does: the second half reads the answers
one token late, after a start symbol (s), and test items are scored on what the model generates (`bench.training.decoding`):

    tokens    3  0  7  7  s  3  0  7
    answers   .  .  .  .  3  0  7  7

`learn_up_to=2` then shows 1 to 2 symbols in the items to learn from, each number as likely, and the answers to them at the start of the second
half (tokens 3 0 b b s 3 0 b, answers 3 0); test items stay at full length, longer than any that was learned from. 0: all items are.

Options: `items` and `test_items`, how many are drawn; `symbols`, how many there are to choose from; `seed`, another draw; `form`; `learn_up_to`. No
test item is learned from.
"""

from __future__ import annotations

from bench.tasks import Place, Splits
from bench.tasks._info import TaskChoice, TaskInfo
from bench.tasks.readers.generate import RECOLLECTION_OPTIONS, recollection_info, recollection_splits

OPTIONS = RECOLLECTION_OPTIONS


def info(choice: TaskChoice) -> TaskInfo:
    return recollection_info(choice, what="the first half of the tokens, repeated")


def load(choice: TaskChoice, *, num_tokens: int, place: Place) -> Splits:
    return recollection_splits(choice, num_tokens=num_tokens, backwards=False)
