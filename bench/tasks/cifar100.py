"""CIFAR-100: 60,000 photographs, 32 x 32 pixels, 100 fine classes.

Source: Krizhevsky, "Learning Multiple Layers of Features from Tiny Images" (2009), the Python version. torchvision reads it from
`cifar-100-python/` under the data root. The 20 coarse classes are not used. Option `items`: number of training images, the same number per class
(0: all).
"""

from __future__ import annotations

from bench.tasks import Place, Splits
from bench.tasks._info import Images, TaskChoice, TaskInfo
from bench.tasks.readers.images import ITEMS_OPTION, load_cifar, require_files, require_intact, subset_info

FOLDER = "cifar-100-python"
FILES = {
    "train": "16019d7e3df5f24257cddd939b257f8d",
    "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
    "meta": "7973b15100ade9c7d40fb424638fde48",
}
"""The published files with their md5 sums, as torchvision lists them."""
KIND = "CIFAR100"
OPTIONS = (ITEMS_OPTION,)
INFO = TaskInfo(
    name="cifar100",
    summary="60,000 colour photographs of 32 px in 100 fine classes",
    source="CIFAR-100 (Krizhevsky 2009), through torchvision",
    reads=Images(channels=3, height=32, width=32),
    num_classes=100,
    chance=0.01,
    num_train=50_000,
    num_test=10_000,
)


def info(choice: TaskChoice) -> TaskInfo:
    return subset_info(choice, INFO)


def require_data(choice: TaskChoice, place: Place) -> None:
    require_files(INFO.name, place, FOLDER, FILES, KIND)
    require_intact(INFO.name, {place.folder(INFO.name) / FOLDER / name: published for name, published in FILES.items()})


def load(choice: TaskChoice, *, num_tokens: int, place: Place) -> Splits:
    """Load the published train and test splits, uint8, in stored order.

    The option `items` limits the training images. Raises RequestError if files are missing or do not match their checksums.
    """
    require_files(INFO.name, place, FOLDER, FILES, KIND)
    return load_cifar(choice, INFO, KIND, place, FOLDER)
