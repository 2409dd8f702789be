"""CIFAR and Fashion-MNIST: read from files of the published formats, made small; subsets are balanced; absent and torn files are told in one line."""

from __future__ import annotations

import gzip
import pickle
import socket
from pathlib import Path
from typing import Any
from urllib.error import URLError

import numpy as np
import pytest
import torch
from torchvision import datasets

from bench import catalog
from bench.spec import RequestError
from bench.tasks import Place, Splits, cifar10, cifar100, fashion_mnist
from bench.tasks._info import choose, info_of
from tests.contracts.made_data import made_for, md5_of, write_idx

NAMES = ("cifar10", "cifar100", "fashion_mnist")
FOLDERS = {"cifar10": "cifar-10-batches-py", "cifar100": "cifar-100-python", "fashion_mnist": "FashionMNIST/raw"}


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is written here tried to reach the network; it is refused."""
    tried: list[Any] = []

    def refuse(host: Any, *_: Any, **__: Any) -> None:
        tried.append(host)
        raise OSError("no network in tests")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    return tried


def load(text: str, root: Path) -> Splits:
    task, place = catalog.load("tasks", text.partition("+")[0]), Place(data_root=str(root))
    splits: Splits = task.load(choose(text), num_tokens=16, place=place)
    return splits


def test_cifar_rows_become_red_green_blue_planes_in_stored_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made_for("cifar10", tmp_path, monkeypatch)
    train = load("cifar10", tmp_path).train
    stored = pickle.loads((tmp_path / FOLDERS["cifar10"] / "data_batch_2").read_bytes())
    second = slice(len(stored["labels"]), 2 * len(stored["labels"]))
    assert torch.equal(train.inputs[second].flatten(1), torch.tensor(stored["data"]))
    assert train.targets[second].tolist() == stored["labels"]


def pack(raw: Path, patch: pytest.MonkeyPatch) -> None:
    """The same files as `.gz`, with their sums published."""
    sums = {}
    for name in fashion_mnist.FILES:
        packed = raw / f"{name}.gz"
        packed.write_bytes(gzip.compress((raw / name).read_bytes()))
        (raw / name).unlink()
        sums[name] = md5_of(packed)
    patch.setattr(fashion_mnist, "FILES", sums)


def test_fashion_mnist_reads_plain_and_packed_files_alike_and_none_of_another_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made_for("fashion_mnist", tmp_path, monkeypatch)
    plain, raw = load("fashion_mnist", tmp_path), tmp_path / FOLDERS["fashion_mnist"]
    pack(raw, monkeypatch)
    packed = load("fashion_mnist", tmp_path)
    assert torch.equal(plain.train.inputs, packed.train.inputs)
    assert torch.equal(plain.test.targets, packed.test.targets)
    assert all(path.suffix == ".gz" for path in raw.iterdir()), "reading wrote into the data root"
    other = raw / "train-images-idx3-ubyte.gz"
    other.write_bytes(gzip.compress(b"other"))
    with pytest.raises(RequestError, match=f"{other.name} does not match"):
        load("fashion_mnist", tmp_path)


def test_images_without_labels_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made_for("fashion_mnist", tmp_path, monkeypatch)
    write_idx(tmp_path / FOLDERS["fashion_mnist"] / "t10k-labels-idx1-ubyte", np.zeros(5))
    with pytest.raises(RequestError, match="20 images have 5 labels"):
        load("fashion_mnist", tmp_path)


@pytest.mark.parametrize("name", ["cifar10", "fashion_mnist"])
def test_a_subset_is_balanced_fixed_and_within_every_larger_one(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made_for(name, tmp_path, monkeypatch)
    small, large, whole = (load(f"{name}+items={items}", tmp_path) for items in (10, 20, 0))
    assert small.train.targets.bincount().tolist() == [1] * 10
    assert large.train.targets.bincount().tolist() == [2] * 10
    items = [[image.numpy().tobytes() for image in splits.train.inputs] for splits in (small, large, whole)]
    assert set(items[0]) < set(items[1]) < set(items[2])
    places = [items[2].index(image) for image in items[1]]
    assert places == sorted(places), "the stored order is kept"
    assert places != list(range(20)), "items are drawn, not the first ones taken"
    assert torch.equal(whole.train.targets[places], large.train.targets)
    assert torch.equal(load(f"{name}+items=10", tmp_path).train.inputs, small.train.inputs)
    for splits in (small, large):
        assert torch.equal(splits.test.inputs, whole.test.inputs)
        assert splits.mean is not None
        assert whole.mean is not None
        assert torch.equal(splits.mean, whole.mean)
    with pytest.raises(RequestError, match="some class has fewer than 100 training images"):
        load(f"{name}+items=1000", tmp_path)


def test_facts_of_a_subset_count_its_images() -> None:
    whole, part = info_of("cifar10"), info_of("cifar10+items=1000")
    assert (part.num_train, part.num_test) == (1000, whole.num_test)
    assert part.interface(17, "cls") == whole.interface(17, "cls")
    assert info_of("cifar10+items=0").num_train == info_of(f"cifar10+items={whole.num_train}").num_train == whole.num_train


@pytest.mark.parametrize(
    ("text", "problem"), [("cifar100+items=250", "multiple of 100"), ("fashion_mnist+items=61000", "has 60000 training images, not 61000")]
)
def test_a_subset_that_cannot_be_is_refused(text: str, problem: str) -> None:
    with pytest.raises(RequestError, match=problem) as refused:
        info_of(text)
    assert info_of(refused.value.hint.removeprefix("write ")).num_train > 0


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
def test_a_torn_file_is_told_in_one_line_and_an_absent_one_named(
    name: str, tmp_path: Path, connections: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    made_for(name, tmp_path, monkeypatch)
    torn = sorted((tmp_path / FOLDERS[name]).iterdir())[0]
    torn.write_bytes(torn.read_bytes()[:-3])
    for ask in (
        lambda: catalog.load("tasks", name).require_data(choose(name), Place(data_root=str(tmp_path))),
        lambda: load(name, tmp_path),
    ):
        with pytest.raises(RequestError) as raised:
            ask()
        assert str(tmp_path / FOLDERS[name]) in str(raised.value)
        assert "\n" not in str(raised.value)
    torn.unlink()
    with pytest.raises(RequestError, match=f"not found there: {torn.name}$"):
        load(name, tmp_path)
    assert not connections


@pytest.mark.parametrize("name", NAMES)
def test_a_download_that_fails_is_told_in_one_line_before_anything_is_measured(name: str, tmp_path: Path, connections: list[Any]) -> None:
    place = Place(data_root=str(tmp_path), download=True)
    with pytest.raises(RequestError, match="cannot be downloaded") as raised:
        catalog.load("tasks", name).require_data(choose(name), place)
    assert "\n" not in str(raised.value)
    assert isinstance(raised.value.__cause__, (URLError, RuntimeError))
    assert connections


def test_sums_are_those_that_torchvision_lists() -> None:
    for kind, task in ((datasets.CIFAR10, cifar10), (datasets.CIFAR100, cifar100)):
        assert {**dict(kind.train_list), **dict(kind.test_list), kind.meta["filename"]: kind.meta["md5"]} == task.FILES
    assert dict(datasets.FashionMNIST.resources) == {f"{name}.gz": md5 for name, md5 in fashion_mnist.FILES.items()}
