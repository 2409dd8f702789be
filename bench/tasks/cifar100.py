"""CIFAR-100: 60,000 photographs of 32 x 32 pixels in 100 fine classes, such as otter, tulip and tractor.

Source: Krizhevsky, "Learning Multiple Layers of Features from Tiny Images" (2009), the python version, read by torchvision from
`cifar-100-python/` under the data root. The 20 coarse classes are not used. `items`: how many training images are learned from (0: all), as many
of each class.
"""

from __future__ import annotations

from bench.tasks import Place, Splits
from bench.tasks._info import Images, TaskChoice, TaskInfo
from bench.tasks.readers.images import ITEMS_OPTION, load_cifar, require_files, subset_info, subset_splits

FOLDER = "cifar-100-python"
FILES = ("train", "test", "meta")
OPTIONS = (ITEMS_OPTION,)
INFO = TaskInfo(
    name="cifar100",
    summary="60,000 colour photographs of 32 px in 100 fine classes",
    source="CIFAR-100 (Krizhevsky 2009), through torchvision",
    reads=Images(channels=3, side=32),
    num_classes=100,
    chance=0.01,
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
    return subset_splits(choice, INFO, load_cifar(INFO.name, "CIFAR100", place, FOLDER))
