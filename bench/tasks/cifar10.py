"""CIFAR-10: 60,000 photographs of 32 x 32 pixels in 10 classes, such as ship, frog and truck.

Source: Krizhevsky, "Learning Multiple Layers of Features from Tiny Images" (2009), the python version, read by torchvision from
`cifar-10-batches-py/` under the data root. The images stay uint8; they are normalised with the mean and spread of the 50,000 training images.
`items`: how many of these are learned from (0: all), as many of each class.
"""

from __future__ import annotations

from bench.tasks import Place, Splits
from bench.tasks._info import Images, TaskChoice, TaskInfo
from bench.tasks.readers.images import ITEMS_OPTION, load_cifar, require_files, subset_info, subset_splits

FOLDER = "cifar-10-batches-py"
FILES = (*(f"data_batch_{part}" for part in range(1, 6)), "test_batch", "batches.meta")
OPTIONS = (ITEMS_OPTION,)
INFO = TaskInfo(
    name="cifar10",
    summary="60,000 colour photographs of 32 px in 10 classes",
    source="CIFAR-10 (Krizhevsky 2009), through torchvision",
    reads=Images(channels=3, side=32),
    num_classes=10,
    chance=0.1,
    num_train=50_000,
    num_test=10_000,
)


def info(choice: TaskChoice) -> TaskInfo:
    return subset_info(choice, INFO)


def require_data(choice: TaskChoice, place: Place) -> None:
    require_files(INFO.name, place, FOLDER, FILES)


def load(choice: TaskChoice, *, num_tokens: int, place: Place) -> Splits:
    """The two published splits, uint8, in stored order; of the first, as many as `items` says.

    Raises RequestError where the files are absent or do not match their checksums.
    """
    require_data(choice, place)
    return subset_splits(choice, INFO, load_cifar(INFO.name, "CIFAR10", place, FOLDER))
