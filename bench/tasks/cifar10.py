"""CIFAR-10: 60,000 photographs, 32 x 32 pixels, 10 classes.

Source: Krizhevsky, "Learning Multiple Layers of Features from Tiny Images" (2009), the Python version. torchvision reads it from
`cifar-10-batches-py/` under the data root. Images stay uint8; they are normalised with the mean and standard deviation of the 50,000 training
images. Option `items`: number of training images, the same number per class (0: all).
"""

from __future__ import annotations

from bench.tasks import Place, Splits
from bench.tasks._info import Images, TaskChoice, TaskInfo
from bench.tasks.readers.images import ITEMS_OPTION, load_cifar, require_files, require_intact, subset_info

FOLDER = "cifar-10-batches-py"
FILES = {
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "40351d587109b95175f43aff81a1287e",
    "batches.meta": "5ff9c542aee3614f3951f8cda6e48888",
}
"""The published files with their md5 sums, as torchvision lists them."""
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
    require_intact(INFO.name, {place.folder(INFO.name) / FOLDER / name: published for name, published in FILES.items()})


def load(choice: TaskChoice, *, num_tokens: int, place: Place) -> Splits:
    """Load the published train and test splits, uint8, in stored order.

    The option `items` limits the training images. Raises RequestError if files are missing or do not match their checksums.
    """
    require_files(INFO.name, place, FOLDER, FILES, KIND)
    return load_cifar(choice, INFO, KIND, place, FOLDER)
