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

from bench.tasks import Place, Splits
from bench.tasks._info import TOKEN_VALUE, Regression, Sequences, TaskChoice, TaskInfo
from bench.tasks.readers.options import ITEMS_OPTIONS
from models.layers.options import Option

OPTIONS = (*ITEMS_OPTIONS, Option("noise_percent", 50))


def info(choice: TaskChoice) -> TaskInfo:
    from bench.tasks.readers.curve import curve

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
        regression=Regression(x=0, y=1, curve=curve),
    )


def load(choice: TaskChoice, *, num_tokens: int, place: Place) -> Splits:
    """Generate vectors `(items, num_tokens, 3)` and the answers of the second half."""
    from bench.tasks.readers.curve import noisy_points
    from bench.tasks.readers.generate import generate_splits

    draw = noisy_points(num_tokens=num_tokens, noise=choice.options["noise_percent"] / 100)
    return generate_splits(choice, num_tokens=num_tokens, draw=draw)
