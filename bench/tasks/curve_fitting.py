"""Regression of y = 2 sin x + x^0.8 from noisy points.

Source: Zhang et al., Dive into Deep Learning, Sec. 11.2 (attention pooling: Nadaraya-Watson). One item of n = 6 data tokens (.: no question). Each
token is a vector of three numbers: x, y and whether y is asked for. x is uniform on [0, 5). The first half shows y with normal noise; the second half
asks for y without noise:

    x         0.4   3.1   1.7   2.2   4.9   0.1
    y         1.6   2.3   3.9    0     0     0
    asked      0     0     0     1     1     1
    answers    .     .     .    3.5   1.6   0.4

Every item has the same curve, so a model can memorise the curve and ignore the observed points: the task checks that regression works, not that
tokens mix. The score is R2, the share of variance explained, not an accuracy: 0 for always answering the mean, 1 for the exact curve.

Options: `items` and `test_items`, numbers of items to draw; `seed`, which selects the draw; `noise_percent`, standard deviation of the noise in
hundredths. Test items never occur in training.
"""

from __future__ import annotations

import numpy as np

from bench.tasks import Place, Split, Splits
from bench.tasks._info import TOKEN_VALUE, Sequences, TaskChoice, TaskInfo
from bench.tasks.readers.generate import ITEMS_OPTIONS, Array, drawn, generate_splits
from models.layers.options import Option

END = 5.0
"""Points lie in [0, END)."""
OPTIONS = (*ITEMS_OPTIONS, Option("noise_percent", 50))


def info(choice: TaskChoice) -> TaskInfo:
    return TaskInfo(
        name="curve_fitting",
        summary="regression of y = 2 sin x + x^0.8 from noisy points",
        source="generated, the same at every call; after Dive into Deep Learning, Sec. 11.2",
        reads=Sequences(vector_width=3, multiple=2),
        answers=TOKEN_VALUE,
        num_classes=1,
        chance=0.0,
        num_train=choice.options["items"],
        num_test=choice.options["test_items"],
        score_name="r2",
        curve=curve,
    )


def curve(x: Array) -> Array:
    return np.asarray(2 * np.sin(x) + x**0.8)


def load(choice: TaskChoice, *, num_tokens: int, place: Place) -> Splits:
    """Generate vectors `(items, num_tokens, 3)` and the answers of the second half."""
    half, noise = num_tokens // 2, choice.options["noise_percent"] / 100

    def draw(generator: np.random.Generator, num_items: int) -> Split:
        x = generator.random((num_items, num_tokens)) * END
        y = curve(x)
        inputs = np.zeros((num_items, num_tokens, 3), dtype=np.float32)
        inputs[..., 0] = x
        inputs[:, :half, 1] = y[:, :half] + noise * generator.standard_normal((num_items, half))
        inputs[:, half:, 2] = 1
        targets = np.full((num_items, num_tokens), np.nan, dtype=np.float32)
        targets[:, half:] = y[:, half:]
        return drawn(inputs, targets)

    return generate_splits(choice, num_tokens=num_tokens, draw=draw)
