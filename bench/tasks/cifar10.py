"""CIFAR-10: 60,000 photographs, 32 x 32 pixels, 10 classes.

Source: Krizhevsky, "Learning Multiple Layers of Features from Tiny Images" (2009), the Python version. torchvision reads it from
`cifar-10-batches-py/` under the data root. Images stay uint8; they are normalised with the mean and standard deviation of the 50,000 training
images. Option `items`: number of training images, the same number per class (0: all).
"""

from __future__ import annotations

from bench.tasks import Place, Splits
from bench.tasks._info import Images, TaskChoice, TaskInfo
from bench.tasks.readers.images import ITEMS_OPTION, load_cifar, require_files, subset_info

FOLDER = "cifar-10-batches-py"
FILES = (*(f"data_batch_{part}" for part in range(1, 6)), "test_batch", "batches.meta")
KIND = "CIFAR10"
OPTIONS = (ITEMS_OPTION,)
INFO = TaskInfo(
    name="cifar10",
    summary="60,000 colour photographs of 32 px in 10 classes",
    source="CIFAR-10 (Krizhevsky 2009), through torchvision",
    reads=Images(channels=3, height=32, width=32),
    num_classes=10,
    chance=0.1,
    num_train=50_000,
    num_test=10_000,
)


def info(choice: TaskChoice) -> TaskInfo:
    return subset_info(choice, INFO)


def require_data(choice: TaskChoice, place: Place) -> None:
    require_files(INFO.name, place, FOLDER, FILES, KIND)


def load(choice: TaskChoice, *, num_tokens: int, place: Place) -> Splits:
    """Load the published train and test splits, uint8, in stored order.

    The option `items` limits the training images. Raises RequestError if files are missing or do not match their checksums.
    """
    require_data(choice, place)
    return load_cifar(choice, INFO, KIND, place, FOLDER)
