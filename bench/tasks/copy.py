"""Copy: repeat the first half of the tokens in the second half.

Each answer lies n / 2 tokens back. One item of n = 8 data tokens (b: blank, .: no question):

    tokens    3  0  7  7  b  b  b  b
    answers   .  .  .  .  3  0  7  7

Symbols are uniform and independent, so a model without token mixing scores exactly chance, 1 / `symbols`. Every token moves by the same distance: a
fixed matrix over positions solves the task, and so does attention to positions.

`form=shifted` (default `blank`) turns the task into sequence generation, as encoder-decoders and causal models do it. The second half then reads
the answers one token late, after a start symbol (s), and test items are scored on the tokens that the model generates (`bench.training.decoding`):

    tokens    3  0  7  7  s  3  0  7
    answers   .  .  .  .  3  0  7  7

With `learn_up_to=2`, training items show 1 or 2 symbols, each number equally likely, and their answers at the start of the second half (tokens
3 0 b b s 3 0 b, answers 3 0). Test items keep the full length, longer than any training item. 0: training items have the full length too.

Options: `items` and `test_items`, numbers of items to draw; `symbols`, number of different symbols; `seed`, which selects the draw; `form`;
`learn_up_to`. Test items never occur in training.
"""

from __future__ import annotations

from bench.tasks import Place, Splits
from bench.tasks._info import TaskChoice, TaskInfo
from bench.tasks.readers.generate import RECOLLECTION_OPTIONS, recollection_info, recollection_splits

OPTIONS = RECOLLECTION_OPTIONS


def info(choice: TaskChoice) -> TaskInfo:
    return recollection_info(choice, description="the first half of the tokens, repeated")


def load(choice: TaskChoice, *, num_tokens: int, place: Place) -> Splits:
    return recollection_splits(choice, num_tokens=num_tokens, backwards=False)
