"""Multi-query recall (MQAR): key-value pairs, then keys in random places, each answered with its value.

Source: Arora et al., "Zoology" (arXiv 2312.04927), Sec. 3 and App. E. One item of n = 12 data tokens, three pairs (A to D: keys; digits: values;
b: blank; .: no question):

    tokens    C  5  A  2  D  2  A  b  C  D  b  b
    answers   .  .  .  .  .  .  2  .  5  2  .  .

Keys differ within an item, and every key is asked for once. The tokens after the pairs are numbered from 1; the query places g are drawn without
replacement, with probabilities proportional to g^(`power` - 1): the closer to 0, the sooner most keys are asked for; 1: all places are equally
likely. Each answer is given at its query, so that a causal model can solve the task. Two things differ from the published generator: no value
follows its query, since a model that is not causal would read it there, and the tokens between the queries are blank.

Values are uniform and independent of keys and places. A model without token mixing therefore scores exactly chance, 1 / `values`. A state of fixed
size must hold all pairs until they are asked for; more of them are harder.

Options: `items` and `test_items`, numbers of items to draw; `seed`, which selects the draw; `pairs`, number of pairs, at most n / 3; `keys` and
`values`, numbers of different keys and values; `power`. Ids: values from 0, then keys, then the blank. Test items never occur in training.
"""

from __future__ import annotations

import numpy as np

from bench.spec import RequestError
from bench.tasks import Place, Split, Splits
from bench.tasks._info import Sequences, TaskChoice, TaskInfo
from bench.tasks.readers.generate import ITEMS_OPTIONS, draw_distinct, fewest_tokens, generate_splits, generated_info, smallest_id_type
from bench.tasks.readers.recall import KEYS, MAX_SYMBOLS, VALUES, bind_and_ask, num_bindings
from models.layers.options import Option

OPTIONS = (
    *ITEMS_OPTIONS,
    Option("pairs", 8, low=1, high=MAX_SYMBOLS),
    KEYS,
    VALUES,
    Option("power", 0.01, low=0, high=1, above_low=True),
)


def info(choice: TaskChoice) -> TaskInfo:
    pairs, keys, values = (choice.options[name] for name in ("pairs", "keys", "values"))
    if pairs > keys:
        raise RequestError(f"option pairs of task {choice.name} must be at most keys, {keys:,}, not {pairs:,}", f"write keys={pairs}")

    def num_different(_num_tokens: int) -> int:
        return num_bindings(pairs, keys=keys, values=values)

    shortest = fewest_tokens(choice, num_different, multiple=3 * pairs, at_most=3 * pairs, raise_option="keys")
    return generated_info(
        choice,
        summary="key and value pairs, then keys in random places, each answered with its value",
        after="Arora et al., arXiv 2312.04927",
        reads=Sequences(vocab_size=keys + values + 1, min_tokens=shortest),
        num_classes=values,
    )


def load(choice: TaskChoice, *, num_tokens: int, place: Place) -> Splits:
    """Generate ids `(items, num_tokens)` and the answers at the queries."""
    pairs, keys, values = (choice.options[name] for name in ("pairs", "keys", "values"))
    weights = np.arange(1, num_tokens - 2 * pairs + 1) ** (choice.options["power"] - 1)

    def draw(generator: np.random.Generator, num_items: int) -> Split:
        bound_keys = values + draw_distinct(generator, num_items, pairs, below=keys)
        bound_values = generator.integers(values, size=(num_items, pairs))
        # the first of exponential waiting times: a weighted draw without replacement (Efraimidis and Spirakis, 2006)
        waits = generator.exponential(size=(num_items, len(weights))) / weights
        return bind_and_ask(
            np.full((num_items, num_tokens), keys + values, dtype=smallest_id_type(keys + values + 1)),
            keys=bound_keys[..., None],
            values=bound_values[..., None],
            pairs_at=2 * np.arange(pairs),
            asked=draw_distinct(generator, num_items, pairs, below=pairs),
            queries_at=2 * pairs + np.sort(np.argsort(waits, axis=1)[:, :pairs], axis=1),
        )

    return generate_splits(choice, num_tokens=num_tokens, draw=draw)
