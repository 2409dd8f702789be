"""Small made data for every task of the catalog, so that the contract can be run over all of them without a download.

`MADE` maps a task's name to a function of a fresh folder and a monkeypatch that returns what to ask for. A new task adds one line.
"""

from __future__ import annotations

import csv
import hashlib
import json
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from bench.tasks import Split
from bench.tasks.readers.tokenise import PADDING

FEW = "+items=300+test_items=100"


@dataclass(frozen=True, kw_only=True)
class Made:
    """`task`: as asked for; `counts_match`: are there as many items as the facts say? Known sets are made smaller than they are."""

    task: str
    data_root: Path | None = None
    counts_match: bool = True


Maker = Callable[[Path, pytest.MonkeyPatch], Made]


def nothing(task: str) -> Maker:
    """Of a task that makes its own data."""
    return lambda _folder, _patch: Made(task=task)


def sentence(number: int) -> str:
    """Distinct for distinct numbers, from its first characters on."""
    return f"{number} is the number of this made text, which is é long enough to be cut"


def write_table(path: Path, num_rows: int) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"])
        writer.writerows([sentence(row), "abc"[row % 3]] for row in range(num_rows))


def text(folder: Path, _patch: pytest.MonkeyPatch) -> Made:
    write_table(folder / "made.csv", 60)
    return Made(task=f"text:{folder / 'made.csv'}")


def masked_token(folder: Path, patch: pytest.MonkeyPatch) -> Made:
    return Made(task=f"masked_token:{text(folder, patch).task}")


def span_corruption(folder: Path, patch: pytest.MonkeyPatch) -> Made:
    return Made(task=f"span_corruption:{text(folder, patch).task}")


def trec(folder: Path, _patch: pytest.MonkeyPatch) -> Made:
    """Of full size: a part of a known text set is refused."""
    (folder / "trec6").mkdir()
    coarse = ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")
    lines = [f"{coarse[row % 6]}:made {row} asks what é is ?" for row in range(5952)]
    (folder / "trec6/train_5500.label").write_text("\n".join(lines[:5452]) + "\n", encoding="latin-1")
    (folder / "trec6/TREC_10.label").write_text("\n".join(lines[5452:]) + "\n", encoding="latin-1")
    return Made(task="trec", data_root=folder)


def sst2(folder: Path, _patch: pytest.MonkeyPatch) -> Made:
    (folder / "sst2").mkdir()
    first = 0
    for name, size in (("train", 67349), ("dev", 872), ("test_labelled", 1821)):
        rows = [f'{row} is a "phrase \t{row % 2}' for row in range(first, first + size)]
        (folder / f"sst2/{name}.tsv").write_text("\n".join(["sentence\tlabel", *rows]) + "\n", encoding="utf-8")
        first += size
    return Made(task="sst2", data_root=folder)


def imdb(folder: Path, _patch: pytest.MonkeyPatch) -> Made:
    (folder / "imdb").mkdir()
    for part, name in enumerate(("train", "test")):
        rows = [json.dumps({"label": row % 2, "text": sentence(row)}) for row in range(25000 * part, 25000 * (part + 1))]
        (folder / f"imdb/{name}.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return Made(task="imdb", data_root=folder)


def images(folder: Path, _patch: pytest.MonkeyPatch) -> Made:
    generator = np.random.default_rng(0)
    for split, size in (("train", 6), ("test", 3)):
        for name in ("cat", "dog"):
            (folder / "own" / split / name).mkdir(parents=True)
            for item in range(size):
                pixels = generator.integers(256, size=(40, 33, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / "own" / split / name / f"{item}.png")
    return Made(task=f"images:{folder / 'own'}")


def fashion_mnist(folder: Path, _patch: pytest.MonkeyPatch) -> Made:
    raw = folder / "FashionMNIST/raw"
    raw.mkdir(parents=True)
    generator = np.random.default_rng(0)
    for name, size in (("train", 40), ("t10k", 20)):
        write_idx(raw / f"{name}-images-idx3-ubyte", generator.integers(256, size=(size, 28, 28)))
        write_idx(raw / f"{name}-labels-idx1-ubyte", np.arange(size) % 10)
    return Made(task="fashion_mnist", data_root=folder, counts_match=False)


def write_idx(path: Path, values: np.ndarray) -> None:
    """The format of MNIST: two zeros, 8 for bytes, the number of dimensions, the sizes, the values."""
    header = bytes([0, 0, 8, values.ndim]) + b"".join(size.to_bytes(4, "big") for size in values.shape)
    path.write_bytes(header + values.astype(np.uint8).tobytes())


def cifar10(folder: Path, patch: pytest.MonkeyPatch) -> Made:
    from torchvision.datasets import CIFAR10

    train = [f"data_batch_{part}" for part in range(1, 6)]
    write_cifar(CIFAR10, folder, patch, train, ["test_batch"], label_key="labels", names_key="label_names", num_classes=10)
    return Made(task="cifar10", data_root=folder, counts_match=False)


def cifar100(folder: Path, patch: pytest.MonkeyPatch) -> Made:
    from torchvision.datasets import CIFAR100

    write_cifar(CIFAR100, folder, patch, ["train"], ["test"], label_key="fine_labels", names_key="fine_label_names", num_classes=100)
    return Made(task="cifar100", data_root=folder, counts_match=False)


def write_cifar(
    kind: type,
    folder: Path,
    patch: pytest.MonkeyPatch,
    train: Sequence[str],
    test: Sequence[str],
    *,
    label_key: str,
    names_key: str,
    num_classes: int,
) -> None:
    """Files of the python version with two items per class, and their checksums in place of the published ones."""
    base = folder / str(kind.base_folder)  # type: ignore[attr-defined]
    base.mkdir()
    generator = np.random.default_rng(0)

    def written(name: str, content: dict[str, object]) -> str:
        (base / name).write_bytes(pickle.dumps(content))
        return md5_of(base / name)

    def batch() -> dict[str, object]:
        labels = list(range(num_classes)) * 2
        return {"data": generator.integers(256, size=(len(labels), 3072), dtype=np.uint8), label_key: labels}

    patch.setattr(kind, "train_list", [[name, written(name, batch())] for name in train])
    patch.setattr(kind, "test_list", [[name, written(name, batch())] for name in test])
    meta = dict(kind.meta)  # type: ignore[attr-defined]
    meta["md5"] = written(meta["filename"], {names_key: [str(label) for label in range(num_classes)]})
    patch.setattr(kind, "meta", meta)
    patch.setattr(f"bench.tasks.{kind.__name__.lower()}.FILES", {path.name: md5_of(path) for path in base.iterdir()})


def md5_of(path: Path) -> str:
    return hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()


MADE: dict[str, Maker] = {
    "associative_recall": nothing(f"associative_recall{FEW}"),
    "cifar10": cifar10,
    "cifar100": cifar100,
    "compression": nothing(f"compression{FEW}"),
    "copy": nothing(f"copy{FEW}"),
    "curve_fitting": nothing(f"curve_fitting{FEW}"),
    "digits": nothing("digits"),
    "fashion_mnist": fashion_mnist,
    "fuzzy_recall": nothing(f"fuzzy_recall{FEW}"),
    "images": images,
    "imdb": imdb,
    "listops": nothing(f"listops{FEW}"),
    "masked_token": masked_token,
    "memorisation": nothing(f"memorisation{FEW}"),
    "multi_query_recall": nothing(f"multi_query_recall{FEW}"),
    "noisy_recall": nothing(f"noisy_recall{FEW}"),
    "reverse": nothing(f"reverse{FEW}"),
    "selective_copying": nothing(f"selective_copying{FEW}"),
    "span_corruption": span_corruption,
    "sst2": sst2,
    "text": text,
    "trec": trec,
}


def made_for(task: str, folder: Path, patch: pytest.MonkeyPatch) -> Made:
    assert task in MADE, f"task {task} has no made data: add one to made_data.py"
    return MADE[task](folder, patch)


def token_split(num_items: int, num_tokens: int, *, vocab_size: int, shortest: int = 1) -> Split:
    """Texts of `shortest` to `num_tokens` random ids, int16, padded."""
    generator = torch.Generator().manual_seed(1)
    lengths = torch.randint(shortest, num_tokens + 1, (num_items,), generator=generator)
    ids = torch.randint(1, vocab_size, (num_items, num_tokens), generator=generator, dtype=torch.int16)
    ids[torch.arange(num_tokens) >= lengths[:, None]] = 0
    return Split(inputs=ids, targets=torch.zeros(num_items, dtype=torch.int64), lengths=lengths)


def text_of_bytes(ids: NDArray[Any]) -> str:
    """Invert `byte_ids`, padding and a character that was cut left out."""
    return bytes((ids[ids != PADDING] - 1).astype(np.uint8)).decode("utf-8", errors="ignore")
