"""CIFAR and Fashion-MNIST: read from files of the published formats, made small here; absent and torn files are told in one line."""

from __future__ import annotations

import gzip
import hashlib
import pickle
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import URLError

import numpy as np
import pytest
import torch
from torchvision import datasets

from bench import catalog
from bench.spec import RequestError
from bench.tasks import Place, Splits
from bench.tasks._info import Images, choose, info_of

NAMES = ("cifar10", "cifar100", "fashion_mnist")
FOLDERS = {"cifar10": "cifar-10-batches-py", "cifar100": "cifar-100-python", "fashion_mnist": "FashionMNIST/raw"}
PER_FILE = 4
Lists = list[list[str]]
made = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def _cache_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is written here tried to reach the network; it is refused."""
    tried: list[Any] = []

    def refuse(host: Any, *_: Any, **__: Any) -> None:
        tried.append(host)
        raise OSError("no network in tests")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    return tried


def md5(path: Path) -> str:
    return hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()


def write_pickles(folder: Path, names: list[str], label_key: str, num_classes: int) -> Lists:
    """Files as `pickle` wrote them for CIFAR: rows of 3 x 32 x 32 bytes, red first; and torchvision's list of their sums."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        rows = made.integers(0, 256, (PER_FILE, 3072), dtype=np.uint8)
        labels = made.integers(0, num_classes, PER_FILE).tolist()
        (folder / name).write_bytes(pickle.dumps({"data": rows, label_key: labels}))
    return [[name, md5(folder / name)] for name in names]


def make_cifar(
    root: Path, patch: pytest.MonkeyPatch, kind: str, train: list[str], test: str, meta: str, label_key: str, names_key: str
) -> None:
    dataset = getattr(datasets, kind)
    folder, num_classes = root / dataset.base_folder, {"CIFAR10": 10, "CIFAR100": 100}[kind]
    patch.setattr(dataset, "train_list", write_pickles(folder, train, label_key, num_classes))
    patch.setattr(dataset, "test_list", write_pickles(folder, [test], label_key, num_classes))
    (folder / meta).write_bytes(pickle.dumps({names_key: [str(n) for n in range(num_classes)]}))
    patch.setattr(dataset, "meta", {"filename": meta, "key": names_key, "md5": md5(folder / meta)})


def idx(array: np.ndarray[Any, Any]) -> bytes:
    """Bytes in the idx format of LeCun: zeros, type 8 (uint8), number of dimensions, big-endian sizes, values."""
    return bytes((0, 0, 8, array.ndim)) + b"".join(n.to_bytes(4, "big") for n in array.shape) + array.tobytes()


def make_fashion(root: Path) -> Path:
    raw = root / FOLDERS["fashion_mnist"]
    raw.mkdir(parents=True)
    for part, items in (("train", 12), ("t10k", 6)):
        (raw / f"{part}-images-idx3-ubyte").write_bytes(idx(made.integers(0, 256, (items, 28, 28), dtype=np.uint8)))
        (raw / f"{part}-labels-idx1-ubyte").write_bytes(idx(made.integers(0, 10, items, dtype=np.uint8)))
    return raw


def pack(raw: Path, patch: pytest.MonkeyPatch) -> None:
    """The same files as `.gz`, with their sums published."""
    sums = []
    for name, _ in datasets.FashionMNIST.resources:
        plain = raw / name.removesuffix(".gz")
        (raw / name).write_bytes(gzip.compress(plain.read_bytes()))
        plain.unlink()
        sums.append((name, md5(raw / name)))
    patch.setattr(datasets.FashionMNIST, "resources", sums)


Make = Callable[[str], Path]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Writes the named set under a data root; returns the root."""

    def write(name: str) -> Path:
        root = tmp_path / "root"
        if name == "cifar10":
            parts = [f"data_batch_{part}" for part in range(1, 6)]
            make_cifar(root, monkeypatch, "CIFAR10", parts, "test_batch", "batches.meta", "labels", "label_names")
        elif name == "cifar100":
            make_cifar(root, monkeypatch, "CIFAR100", ["train"], "test", "meta", "fine_labels", "fine_label_names")
        else:
            make_fashion(root)
        return root

    return write


def load(name: str, root: Path, *, download: bool = False) -> Splits:
    splits: Splits = catalog.load("tasks", name).load(choose(name), num_tokens=16, place=Place(data_root=str(root), download=download))
    return splits


def first_file(name: str, root: Path) -> Path:
    return sorted((root / FOLDERS[name]).iterdir())[0]


@pytest.mark.parametrize(("name", "num_train", "num_test"), [("cifar10", 20, 4), ("cifar100", 4, 4), ("fashion_mnist", 12, 6)])
def test_both_splits_are_read_as_bytes(name: str, num_train: int, num_test: int, make: Make) -> None:
    splits, info = load(name, make(name)), info_of(name)
    assert isinstance(info.reads, Images)
    for split, num_items in ((splits.train, num_train), (splits.test, num_test)):
        assert split.inputs.shape == (num_items, info.reads.channels, info.reads.side, info.reads.side)
        assert (split.inputs.dtype, split.targets.dtype) == (torch.uint8, torch.int64)
        assert split.targets.shape == (num_items,)
        assert split.targets.max() < info.num_classes
        assert split.inputs.is_contiguous()


@pytest.mark.parametrize("name", NAMES)
def test_mean_and_spread_are_of_the_training_images(name: str, make: Make) -> None:
    splits = load(name, make(name))
    spread, mean = torch.std_mean(splits.train.inputs.double() / 255, dim=(0, 2, 3))
    assert splits.mean is not None
    assert splits.spread is not None
    torch.testing.assert_close(splits.mean, mean.float())
    torch.testing.assert_close(splits.spread, spread.float())


def test_cifar_rows_become_red_green_blue_planes_in_stored_order(make: Make) -> None:
    root = make("cifar10")
    splits = load("cifar10", root)
    stored = pickle.loads((root / FOLDERS["cifar10"] / "data_batch_2").read_bytes())
    assert torch.equal(splits.train.inputs[PER_FILE : 2 * PER_FILE].flatten(1), torch.tensor(stored["data"]))
    assert splits.train.targets[PER_FILE : 2 * PER_FILE].tolist() == stored["labels"]


def test_fashion_mnist_reads_plain_and_packed_files_alike(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make("fashion_mnist")
    plain = load("fashion_mnist", root)
    pack(root / FOLDERS["fashion_mnist"], monkeypatch)
    packed = load("fashion_mnist", root)
    assert torch.equal(plain.train.inputs, packed.train.inputs)
    assert torch.equal(plain.test.targets, packed.test.targets)
    assert all(path.suffix == ".gz" for path in (root / FOLDERS["fashion_mnist"]).iterdir()), "reading wrote into the data root"


def test_packed_files_of_another_set_are_refused(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make("fashion_mnist")
    raw = root / FOLDERS["fashion_mnist"]
    pack(raw, monkeypatch)
    (raw / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(np.zeros((12, 28, 28), dtype=np.uint8))))
    with pytest.raises(RequestError, match=r"train-images-idx3-ubyte\.gz does not match"):
        load("fashion_mnist", root)


def test_images_without_labels_are_refused(make: Make) -> None:
    root = make("fashion_mnist")
    (root / FOLDERS["fashion_mnist"] / "t10k-labels-idx1-ubyte").write_bytes(idx(np.zeros(5, dtype=np.uint8)))
    with pytest.raises(RequestError, match="6 images have 5 labels"):
        load("fashion_mnist", root)


def subset(name: str, root: Path, items: int) -> Splits:
    splits: Splits = catalog.load("tasks", name).load(choose(f"{name}+items={items}"), num_tokens=16, place=Place(data_root=str(root)))
    return splits


def make_balanced(name: str, make: Make, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As many images of every class: their classes take turns in the published order."""
    root = make(name)
    if name == "fashion_mnist":
        write = root / FOLDERS[name]
        (write / "train-images-idx3-ubyte").write_bytes(idx(made.integers(0, 256, (60, 28, 28), dtype=np.uint8)))
        (write / "train-labels-idx1-ubyte").write_bytes(idx((np.arange(60) % 10).astype(np.uint8)))
        return root
    dataset, key, num_classes = {"cifar10": (datasets.CIFAR10, "labels", 10), "cifar100": (datasets.CIFAR100, "fine_labels", 100)}[name]
    lists = []
    for file, _ in dataset.train_list:
        path = root / FOLDERS[name] / file
        labels = (np.arange(3 * num_classes) % num_classes).tolist()
        path.write_bytes(pickle.dumps({"data": made.integers(0, 256, (len(labels), 3072), dtype=np.uint8), key: labels}))
        lists.append([file, md5(path)])
    monkeypatch.setattr(dataset, "train_list", lists)
    return root


@pytest.mark.parametrize(("name", "num_classes"), [("cifar10", 10), ("cifar100", 100), ("fashion_mnist", 10)])
def test_a_subset_is_balanced_fixed_and_within_every_larger_one(
    name: str, num_classes: int, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make_balanced(name, make, monkeypatch)
    whole, small, large = load(name, root), subset(name, root, num_classes), subset(name, root, 2 * num_classes)
    assert small.train.targets.bincount().tolist() == [1] * num_classes
    assert large.train.targets.bincount().tolist() == [2] * num_classes
    items = [[image.numpy().tobytes() for image in splits.train.inputs] for splits in (small, large, whole)]
    assert set(items[0]) < set(items[1]) < set(items[2])
    places = [items[2].index(image) for image in items[1]]
    assert places == sorted(places), "the stored order is kept"
    assert places != list(range(2 * num_classes)), "items are drawn, not the first ones taken"
    assert torch.equal(whole.train.targets[places], large.train.targets)
    assert torch.equal(subset(name, root, num_classes).train.inputs, small.train.inputs)
    for splits in (small, large):
        assert torch.equal(splits.test.inputs, whole.test.inputs)
        assert splits.mean is not None
        assert whole.mean is not None
        assert torch.equal(splits.mean, whole.mean)
    assert torch.equal(subset(name, root, 0).train.inputs, whole.train.inputs)


@pytest.mark.parametrize("name", NAMES)
def test_facts_of_a_subset_count_its_images(name: str) -> None:
    whole, part = info_of(name), info_of(f"{name}+items=1000")
    assert (part.num_train, part.num_test) == (1000, whole.num_test)
    assert part.interface(17 if name != "fashion_mnist" else 50, "cls") == whole.interface(17 if name != "fashion_mnist" else 50, "cls")
    assert info_of(f"{name}+items=0").num_train == whole.num_train
    assert info_of(f"{name}+items={whole.num_train}").num_train == whole.num_train


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("cifar10+items=55", "multiple of 10"),
        ("cifar100+items=250", "multiple of 100"),
        ("cifar10+items=50010", "has 50000 training images, not 50010"),
        ("fashion_mnist+items=61000", "has 60000 training images, not 61000"),
    ],
)
def test_a_subset_that_cannot_be_is_refused(text: str, problem: str) -> None:
    with pytest.raises(RequestError, match=problem) as refused:
        info_of(text)
    assert info_of(refused.value.hint.removeprefix("write ")).num_train > 0


def test_a_class_with_too_few_images_is_told(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_balanced("cifar10", make, monkeypatch)
    with pytest.raises(RequestError, match="some class has fewer than 100 training images"):
        subset("cifar10", root, 1000)


@pytest.mark.parametrize("name", NAMES)
def test_an_absent_set_is_told_with_the_folder_that_is_expected(name: str, tmp_path: Path, connections: list[Any]) -> None:
    module, place = catalog.load("tasks", name), Place(data_root=str(tmp_path))
    for ask in (lambda: module.require_data(choose(name), place), lambda: load(name, tmp_path)):
        with pytest.raises(RequestError) as raised:
            ask()
        assert str(tmp_path / FOLDERS[name]) in str(raised.value)
        assert "--data-root" in raised.value.hint
        assert "--download" in raised.value.hint
    assert not connections


@pytest.mark.parametrize("name", NAMES)
def test_one_absent_file_is_named(name: str, make: Make) -> None:
    root = make(name)
    absent = first_file(name, root)
    absent.unlink()
    with pytest.raises(RequestError, match=f"not found there: {absent.name}$"):
        load(name, root)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_there_or_may_be_downloaded_is_accepted(name: str, make: Make, tmp_path: Path) -> None:
    module = catalog.load("tasks", name)
    module.require_data(choose(name), Place(data_root=str(make(name))))
    module.require_data(choose(name), Place(data_root=str(tmp_path / "empty"), download=True))


@pytest.mark.parametrize("name", NAMES)
def test_a_torn_file_is_told_in_one_line(name: str, make: Make, connections: list[Any]) -> None:
    root = make(name)
    torn = first_file(name, root)
    torn.write_bytes(torn.read_bytes()[:-3])
    with pytest.raises(RequestError) as raised:
        load(name, root)
    assert str(root / FOLDERS[name]) in str(raised.value)
    assert "\n" not in str(raised.value)
    assert "download=True" not in str(raised.value)
    assert not connections


@pytest.mark.parametrize("name", NAMES)
def test_a_download_that_fails_is_told_in_one_line(name: str, tmp_path: Path, connections: list[Any]) -> None:
    with pytest.raises(RequestError, match="cannot be read or downloaded") as raised:
        load(name, tmp_path, download=True)
    assert "\n" not in str(raised.value)
    assert isinstance(raised.value.__cause__, (URLError, RuntimeError))
    assert connections
