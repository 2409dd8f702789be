"""1,797 handwritten digits in 16 grey levels; needs no download.

Images of 8 x 8 pixels are upsampled to 32 x 32. Source: Optical Recognition of Handwritten Digits (Alpaydin and Kaynak, UCI 1998), the copy that
scikit-learn ships. The task shows whether a model learns; it does not rank good models, because images are small and test writers also wrote
training items. Option `items`: number of training images, the same number per class (0: all).
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from bench.spec import RequestError
from bench.tasks import Place, Split, Splits
from bench.tasks._info import Images, TaskChoice, TaskInfo
from bench.tasks.readers.images import ITEMS_OPTION, chosen_items, subset_info

if TYPE_CHECKING:
    from torch import Tensor

SIDE = 32
LEVELS = 16
"""The largest grey level."""
OPTIONS = (ITEMS_OPTION,)
INFO = TaskInfo(
    name="digits",
    summary="1,797 handwritten digits, upsampled to 32 px",
    source="scikit-learn load_digits (UCI Optical Recognition of Handwritten Digits)",
    reads=Images(channels=1, height=SIDE, width=SIDE, are_bytes=False),
    num_classes=10,
    chance=0.1,
    num_train=1433,
    num_test=364,
)
MOST_BALANCED = 1390
"""The rarest class has 139 training images."""
TEST_EVERY = 5
"""Of every five items per class, the first is for testing.

Items are in stored order, so the split does not depend on seed or library version.
"""


def info(choice: TaskChoice) -> TaskInfo:
    return subset_info(choice, INFO, most=MOST_BALANCED)


def require_data(choice: TaskChoice, place: Place) -> None:
    """Raise RequestError if scikit-learn is not installed."""
    if importlib.util.find_spec("sklearn") is None:
        raise RequestError("task digits needs the library scikit-learn, which is not installed", "pip install scikit-learn")


def load(choice: TaskChoice, *, num_tokens: int, place: Place) -> Splits:
    """Load both splits, normalised, from scikit-learn's own files.

    The option `items` limits the training images; test images and normalisation stay unchanged. Raises RequestError if scikit-learn is not installed.
    """
    require_data(choice, place)
    import torch
    import torch.nn.functional as F
    from sklearn.datasets import load_digits

    stored = load_digits()
    small = torch.tensor(stored.images, dtype=torch.float32)[:, None]
    images = F.interpolate(small, size=(SIDE, SIDE), mode="bilinear", align_corners=False)
    labels = torch.tensor(stored.target, dtype=torch.int64)
    is_test = chosen_for_test(labels)
    learned = images[~is_test]
    mean, spread = learned.mean(dim=(0, 2, 3), keepdim=True), learned.std(dim=(0, 2, 3), keepdim=True)
    images = (images - mean) / spread
    train = chosen_items(choice, INFO, Split(inputs=images[~is_test], targets=labels[~is_test]))
    return Splits(
        train=train,
        test=Split(inputs=images[is_test], targets=labels[is_test]),
        mean=mean.flatten() / LEVELS,
        spread=spread.flatten() / LEVELS,
        are_normalised=True,
        classes=tuple("0123456789"),
    )


def chosen_for_test(labels: Tensor) -> Tensor:
    """Return a mask that selects every `TEST_EVERY`-th item of each class.

    `labels`: `(items,)`. The mask is `(items,)` bool.
    """
    import torch

    mask = torch.zeros_like(labels, dtype=torch.bool)
    for label in labels.unique():
        mask[torch.nonzero(labels == label)[::TEST_EVERY, 0]] = True
    return mask
