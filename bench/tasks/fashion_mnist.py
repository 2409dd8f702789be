"""Fashion-MNIST: 70,000 grey pictures of clothing, 28 x 28 pixels, 10 classes.

Source: Xiao, Rasul and Vollgraf, arXiv:1708.07747. torchvision reads it from `FashionMNIST/raw/` under the data root, plain or as `.gz`. Images stay
uint8. 28 pixels divide into grids of 1, 2, 4, 7, 14 and 28 patches per side; with a class token, these give 2, 5, 17, 50, 197 and 785 tokens. Option
`items`: number of training images, the same number per class (0: all).
"""

from __future__ import annotations

import gzip
import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bench.spec import RequestError
from bench.tasks import Place, Split, Splits
from bench.tasks._info import Images, TaskChoice, TaskInfo
from bench.tasks.readers.images import ITEMS_OPTION, MEND, reading_errors, require_files, require_intact, subset_info, subset_splits

if TYPE_CHECKING:
    from torch import Tensor

FOLDER = "FashionMNIST/raw"
FILES = {
    "train-images-idx3-ubyte": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    "train-labels-idx1-ubyte": "25c81989df183df01b3e8a0aad5dffbe",
    "t10k-images-idx3-ubyte": "bef4ecab320f06d8554ea6380940ec79",
    "t10k-labels-idx1-ubyte": "bb300cfdad3c16e7a12a480ee83cd310",
}
"""The published files with the md5 sums of their packed forms, as torchvision lists them."""
PACKED = ".gz"
HEADER, MAX_HEADER = 4, 16
"""Bytes before the sizes, and with those of three axes."""
OPTIONS = (ITEMS_OPTION,)
INFO = TaskInfo(
    name="fashion_mnist",
    summary="70,000 grey pictures of clothing of 28 px in 10 classes",
    source="Fashion-MNIST (Xiao, Rasul and Vollgraf 2017), through torchvision",
    reads=Images(channels=1, height=28, width=28),
    num_classes=10,
    chance=0.1,
    num_train=60_000,
    num_test=10_000,
)


def info(choice: TaskChoice) -> TaskInfo:
    return subset_info(choice, INFO)


def require_data(choice: TaskChoice, place: Place) -> None:
    require_files(INFO.name, place, FOLDER, FILES, "FashionMNIST", endings=("", PACKED))
    folder = place.folder(INFO.name) / FOLDER
    require_intact(INFO.name, {folder / f"{name}{PACKED}": md5 for name, md5 in FILES.items() if not (folder / name).is_file()})
    for plain in (folder / name for name in FILES if (folder / name).is_file()):
        with reading_errors(INFO.name, place, FOLDER), plain.open("rb") as file:
            sizes = _sizes(file.read(MAX_HEADER))
            if plain.stat().st_size != HEADER + 4 * len(sizes) + math.prod(sizes):
                raise RequestError(f"task {INFO.name}: {plain} has another length than its first bytes say", MEND.format(plain))


def load(choice: TaskChoice, *, num_tokens: int, place: Place) -> Splits:
    """Load the published train and test splits, uint8, in stored order.

    The option `items` limits the training images. Raises RequestError if files are missing or damaged.
    """
    require_data(choice, place)
    from torchvision.datasets import FashionMNIST

    root = place.folder(INFO.name)
    with reading_errors(INFO.name, place, FOLDER):
        images, labels, test_images, test_labels = (_read(root / FOLDER / name) for name in FILES)
        train, test = _split(images, labels), _split(test_images, test_labels)
    return subset_splits(choice, INFO, train, test, FashionMNIST.classes)


def _split(images: Tensor, labels: Tensor) -> Split:
    if len(images) != len(labels):
        raise ValueError(f"{len(images)} images have {len(labels)} labels")
    return Split(inputs=images[:, None], targets=labels.long())


def _read(plain: Path) -> Tensor:
    """Read a file in the IDX format, or its packed form: torchvision would unpack it into the data root, which may be read-only.

    The format: three bytes, the number of axes, the size of each axis as a big-endian int32, the values as uint8.
    """
    import torch

    stored = plain.read_bytes() if plain.is_file() else gzip.decompress(plain.with_name(f"{plain.name}{PACKED}").read_bytes())
    sizes = _sizes(stored)
    return torch.frombuffer(bytearray(stored), dtype=torch.uint8, offset=HEADER + 4 * len(sizes)).view(sizes)


def _sizes(stored: bytes) -> list[int]:
    """Return the size of each axis. Raises ValueError if the header is cut short."""
    return [int(size) for size in np.frombuffer(stored, ">i4", stored[3], offset=HEADER)]
