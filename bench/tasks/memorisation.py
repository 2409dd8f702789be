"""Memorisation: name the value of each key, by a map that no item shows and that the weights must hold.

Source: Poli et al., "Mechanistic Design and Scaling of Hybrid Architectures" (MAD; arXiv 2403.17844), Sec. 3.1. One item of n = 8 data tokens with
the map AA 4, AB 0, BA 0, BB 4 (.: no question):

    tokens    B  A  A  A  B  B  B  A
    answers   .  0  .  4  .  4  .  0

Keys are uniform and independent; each answer stands at its key's last token, so that a causal model can solve the task. There are
`symbols`^`key_tokens` keys. With `key_tokens` = 1, as in MAD, the token's embedding alone can hold the value, and no token mixing is needed; with
more, tokens must be mixed before the value is looked up. The map is random, but gives each value to equally many keys: always answering one value,
like a guess, is right for exactly chance, 1 / `values`. A model without token mixing scores higher, as it may learn the most frequent value of each
last token.

Training and test share the map, and nearly every key of the test items occurs in training: the task asks what the weights hold, not what carries over
to new keys. The test items, lists of keys, never occur in training.

Options: `items` and `test_items`, numbers of items to draw; `seed`, which selects the map and the draw; `symbols`, number of different tokens of
keys; `key_tokens`; `values`, number of different values, a divisor of the number of keys. The map is the same at every n. Ids: tokens of keys from 0.
"""

from __future__ import annotations

import numpy as np

from bench.spec import RequestError
from bench.tasks import Place, Split, Splits
from bench.tasks._info import Sequences, TaskChoice, TaskInfo
from bench.tasks.readers.generate import (
    ITEMS_OPTIONS,
    Array,
    fewest_tokens,
    generate_splits,
    generated_info,
    smallest_id_type,
    stream_of,
    with_answers,
)
from bench.tasks.readers.recall import KEY_TOKENS, SYMBOLS, VALUES, num_long_keys, spell_keys

OPTIONS = (*ITEMS_OPTIONS, SYMBOLS, KEY_TOKENS, VALUES)
MAP_STREAM = 2


def info(choice: TaskChoice) -> TaskInfo:
    values, key_tokens, num_keys = choice.options["values"], choice.options["key_tokens"], num_long_keys(choice)
    if num_keys % values:
        raise RequestError(
            f"option values of task {choice.name} must divide the number of keys, {num_keys:,}, not {values:,}",
            f"write values={max((divisor for divisor in range(2, values) if num_keys % divisor == 0), default=num_keys)}",
        )
    return generated_info(
        choice,
        summary="keys, each answered with its value in a map that the weights must hold",
        after="Poli et al., arXiv 2403.17844",
        reads=Sequences(
            vocab_size=choice.options["symbols"],
            multiple=key_tokens,
            min_tokens=fewest_tokens(
                choice, lambda n: num_keys ** (n // key_tokens), multiple=key_tokens, at_most=128, raise_option="symbols or key_tokens"
            ),
        ),
        num_classes=values,
    )


def load(choice: TaskChoice, *, num_tokens: int, place: Place) -> Splits:
    """Generate ids `(items, num_tokens)` and the answers at the last token of each key."""
    num_keys, key_tokens, bound = num_long_keys(choice), choice.options["key_tokens"], _values_of_keys(choice)

    def draw(generator: np.random.Generator, num_items: int) -> Split:
        keys = generator.integers(num_keys, size=(num_items, num_tokens // key_tokens))
        inputs = spell_keys(keys, choice, first_id=0).reshape(num_items, num_tokens).astype(smallest_id_type(choice.options["symbols"]))
        return with_answers(inputs, slice(key_tokens - 1, None, key_tokens), bound[keys])

    return generate_splits(choice, num_tokens=num_tokens, draw=draw)


def _values_of_keys(choice: TaskChoice) -> Array:
    """Return the value of each key, `(keys,)`."""
    return stream_of(choice, 0, MAP_STREAM).permutation(np.arange(num_long_keys(choice)) % choice.options["values"])
