"""The first half of the tokens, to be repeated backwards in the blank second half: each answer lies at the mirrored position.

One item of n = 8 data tokens (b: blank, .: nothing is asked for):

    tokens    3  0  7  5  b  b  b  b
    answers   .  .  .  .  5  7  0  3

The symbols are uniform and independent, so a model whose tokens do not mix answers at chance, 1 / `symbols`, exactly. The distance that a token
moves depends on where it stands, from one token to n - 1: a shift does not solve it, a fixed matrix over positions does.

`form=shifted` (default `blank`) makes it a sequence to generate, as an encoder-decoder or a causal model does: the second half reads the answers
one token late, after a start symbol (s), and test items are scored on what the model generates (`bench.training.decoding`):

    tokens    3  0  7  5  s  5  7  0
    answers   .  .  .  .  5  7  0  3

`learn_up_to=2` then shows 1 to 2 symbols in the items to learn from, each number as likely, and the answers to them at the start of the second
half (tokens 3 0 b b s 0 3 b, answers 0 3); test items stay at full length, longer than any that was learned from. 0: all items are.

Options: `items` and `test_items`, how many are drawn; `symbols`, how many there are to choose from; `seed`, another draw; `form`; `learn_up_to`. No
test item is learned from.
"""

from __future__ import annotations

from bench.tasks import Place, Splits
from bench.tasks._info import TaskChoice, TaskInfo
from bench.tasks.readers.generate import RECOLLECTION_OPTIONS, recollection_info, recollection_splits

OPTIONS = RECOLLECTION_OPTIONS


def info(choice: TaskChoice) -> TaskInfo:
    return recollection_info(choice, what="the first half of the tokens, repeated backwards")


def load(choice: TaskChoice, *, num_tokens: int, place: Place) -> Splits:
    return recollection_splits(choice, num_tokens=num_tokens, backwards=True)
