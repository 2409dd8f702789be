"""Fashion-MNIST: 70,000 grey pictures of clothing, 28 x 28 pixels, 10 classes.

Source: Xiao, Rasul and Vollgraf, arXiv:1708.07747. torchvision reads it from `FashionMNIST/raw/` under the data root, plain or as `.gz`. Images stay
uint8. 28 pixels divide into grids of 1, 2, 4, 7, 14 and 28 patches per side; with a class token, these give 2, 5, 17, 50, 197 and 785 tokens. Option
`items`: number of training images, the same number per class (0: all).
"""

from __future__ import annotations

import gzip
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.spec import RequestError
from bench.tasks import Place, Split, Splits
from bench.tasks._info import Images, TaskChoice, TaskInfo
from bench.tasks.readers.images import ITEMS_OPTION, reading_errors, require_files, splits_of, subset_info, subset_splits

FOLDER = "FashionMNIST/raw"
FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
OPTIONS = (ITEMS_OPTION,)
INFO = TaskInfo(
    name="fashion_mnist",
    summary="70,000 grey pictures of clothing of 28 px in 10 classes",
    source="Fashion-MNIST (Xiao, Rasul and Vollgraf 2017), through torchvision",
    reads=Images(channels=1, side=28),
    num_classes=10,
    chance=0.1,
    num_train=60_000,
    num_test=10_000,
)


def info(choice: TaskChoice) -> TaskInfo:
    return subset_info(choice, INFO)


def require_data(choice: TaskChoice, place: Place) -> None:
    require_files(INFO.name, place, FOLDER, FILES, endings=("", ".gz"))


def load(choice: TaskChoice, *, num_tokens: int, place: Place) -> Splits:
    """Load the published train and test splits, uint8, in stored order.

    The option `items` limits the training images. Raises RequestError if files are missing or damaged.
    """
    require_data(choice, place)
    with reading_errors(INFO.name, place, FOLDER), _plain_files(place) as root:
        train, test = (_split(root, is_train=is_train, download=place.download) for is_train in (True, False))
    return subset_splits(choice, INFO, splits_of(INFO.name, train, test))


def _split(root: Path, *, is_train: bool, download: bool) -> Split:
    from torchvision.datasets import FashionMNIST

    stored = FashionMNIST(root, train=is_train, download=download)
    if len(stored.data) != len(stored.targets):
        raise ValueError(f"{len(stored.data)} images have {len(stored.targets)} labels")
    return Split(inputs=stored.data[:, None], targets=stored.targets)


@contextmanager
def _plain_files(place: Place) -> Iterator[Path]:
    """Yield a root folder whose `FOLDER` holds uncompressed files, as torchvision requires.

    The root is the data root if its files are uncompressed, or if downloads are allowed: torchvision then unpacks there, and downloads missing or
    damaged files. Otherwise it is a temporary folder, because the data root may be read-only.
    """
    root = place.folder(INFO.name)
    if place.download or all((root / FOLDER / name).is_file() for name in FILES):
        yield root
        return
    with tempfile.TemporaryDirectory() as temporary:
        (Path(temporary) / FOLDER).mkdir(parents=True)
        for name in FILES:
            _copy_plain(root / FOLDER / name, Path(temporary) / FOLDER / name)
        yield Path(temporary)


def _copy_plain(source: Path, target: Path) -> None:
    if source.is_file():
        shutil.copyfile(source, target)
        return
    packed = source.with_name(f"{source.name}.gz")
    _require_published(packed)
    with gzip.open(packed) as stream, target.open("wb") as plain:
        shutil.copyfileobj(stream, plain)


def _require_published(packed: Path) -> None:
    """Raise RequestError if the file is not the published one.

    Plain MNIST uses the same file names.
    """
    from torchvision.datasets import FashionMNIST
    from torchvision.datasets.utils import check_integrity

    if not check_integrity(packed, dict(FashionMNIST.resources)[packed.name]):
        raise RequestError(
            f"task {INFO.name}: {packed} does not match its published md5 sum",
            "delete it and copy an intact file there, or add `download` if the network is available",
        )
