"""Downloads of texts: the library's own code reads a hub made in the working folder; what goes wrong is told in one line and writes nothing."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from bench import catalog
from bench.spec import RequestError
from bench.tasks import DATA_VARIABLES, Place
from bench.tasks._info import choose
from bench.tasks.readers.hub import PublishedTexts, download
from tests.answered import Answer
from tests.contracts.made_data import made_for

FOLDERS = {"trec": "trec6", "sst2": "sst2", "imdb": "imdb"}
LABELS = {"sst2": ("negative", "positive"), "imdb": ("neg", "pos")}
ON_HUB = {
    "train_5500.label": "CogComp/trec/default/train/0000.parquet",
    "TREC_10.label": "CogComp/trec/default/test/0000.parquet",
    "train.tsv": "stanfordnlp/sst2/data/train-00000-of-00001.parquet",
    "dev.tsv": "stanfordnlp/sst2/data/validation-00000-of-00001.parquet",
    "test_labelled.tsv": "SetFit/sst2/test.jsonl",
    "train.jsonl": "stanfordnlp/imdb/plain_text/train-00000-of-00001.parquet",
    "test.jsonl": "stanfordnlp/imdb/plain_text/test-00000-of-00001.parquet",
}


def published(task: str) -> PublishedTexts:
    found: PublishedTexts = catalog.load("tasks", task).PUBLISHED
    return found


def replace_in(path: Path, old: str, new: str, encoding: str) -> None:
    content = path.read_bytes()
    assert old.encode(encoding) in content
    path.write_bytes(content.replace(old.encode(encoding), new.encode(encoding)))


def put_on_hub(task: str, file: Path) -> None:
    """Write what the hub holds in place of a local file, below the working folder, where the library looks first."""
    from datasets import ClassLabel, Dataset, Features, Value

    target = Path(ON_HUB[file.name])
    target.parent.mkdir(parents=True, exist_ok=True)
    if task == "trec":
        labels, texts = zip(*(line.split(" ", 1) for line in file.read_text(encoding="latin-1").splitlines()), strict=True)
        names, column = sorted({*labels}), "text"
        rows: dict[str, Any] = {
            "text": [text.replace("\xf0", " ") for text in texts],
            "fine_label": [names.index(label) for label in labels],
        }
        features = {"text": Value("string"), "fine_label": ClassLabel(names=names)}
    else:
        read, column = published(task).read(file), "sentence" if task == "sst2" else "text"
        rows = {column: read.texts, "label": read.labels}
        features = {column: Value("string"), "label": ClassLabel(names=list(LABELS[task]))}
    if target.suffix == ".jsonl":
        texts = tuple(text.strip().replace("(", "-lrb-").replace(")", "-rrb-").replace("/", r"\/") for text in rows[column])
        target.write_text("".join(json.dumps({"text": text, "label": n}) + "\n" for text, n in zip(texts, rows["label"], strict=True)))
    else:
        Dataset.from_dict(rows, features=Features(features)).to_parquet(target)


@pytest.mark.slow
@pytest.mark.parametrize("task", FOLDERS)
def test_a_download_becomes_the_local_files_once(task: str, in_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At full size: a part of a known set is refused. The second call, as of a worker, finds the files and asks no hub."""
    datasets = pytest.importorskip("datasets")
    local, root = in_tmp / "local", in_tmp / "root"
    local.mkdir()
    made_for(task, local, monkeypatch)
    if task == "trec":
        replace_in(local / "trec6/train_5500.label", " 3 asks what", " 3 asks of a sister\xf0city what", "latin-1")
    if task == "sst2":
        replace_in(local / "sst2/test_labelled.tsv", '68221 is a "phrase', '68221 ( or / ) is a "phrase', "utf-8")
    for name in published(task).files:
        put_on_hub(task, local / FOLDERS[task] / name)
    module, place = catalog.load("tasks", task), Place(data_root=str(root), download=True)
    module.require_data(choose(task), place)
    monkeypatch.setattr(datasets, "load_dataset", None)
    module.require_data(choose(task), place)
    assert sorted(path.name for path in (root / FOLDERS[task]).iterdir()) == sorted(published(task).files)
    for name in published(task).files:
        written, wanted = (folder / FOLDERS[task] / name for folder in (root, local))
        if task == "imdb":
            assert published(task).read(written) == published(task).read(wanted)
        else:
            assert written.read_bytes() == wanted.read_bytes()


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Rows by split that a stand-in for the library returns; an error in their place is raised."""
    rows: dict[str, Any] = {}

    def load_dataset(_repository: str, *, split: str, **_: Any) -> Any:
        if isinstance(rows[split], Exception):
            raise rows[split]
        return rows[split]

    library = ModuleType("datasets")
    library.__spec__ = ModuleSpec("datasets", None)
    monkeypatch.setattr(library, "load_dataset", load_dataset, raising=False)
    monkeypatch.setitem(sys.modules, "datasets", library)
    return rows


def reviews(num_items: int, label: Callable[[int], int] = lambda item: item % 2) -> Sequence[dict[str, Any]]:
    return [{"label": label(item), "text": f"review {item}"} for item in range(num_items)]


@pytest.mark.parametrize(
    ("test", "said"),
    [
        (
            reviews(24_999),
            "stanfordnlp/imdb .split test. on the Hugging Face hub has 24999 items in 2 classes; the data set has 25000 in 2",
        ),
        (reviews(25_000, lambda _: 1), "has 25000 items in 1 classes; the data set has 25000 in 2"),
        (reviews(25_000, lambda _: -1), "cannot be downloaded as .*/test.jsonl: test.jsonl line 1: label -1"),
        ([{"text": "no label"}], "cannot be downloaded as .*test.jsonl: KeyError: 'label'"),
        (RuntimeError("scripts are\nno longer supported"), "test.jsonl: RuntimeError: scripts are no longer supported"),
    ],
)
def test_what_is_not_the_data_set_is_refused_and_nothing_written(test: Any, said: str, served: dict[str, Any], tmp_path: Path) -> None:
    served.update(train=reviews(25_000), test=test)
    with pytest.raises(RequestError, match=said) as refused:
        catalog.load("tasks", "imdb").require_data(choose("imdb"), Place(data_root=str(tmp_path), download=True))
    assert "\n" not in str(refused.value)
    assert "Maas" in refused.value.hint
    assert not list(tmp_path.iterdir())


def test_only_what_is_missing_is_downloaded(served: dict[str, Any], tmp_path: Path) -> None:
    served["test"] = reviews(25_000)
    (tmp_path / "imdb").mkdir()
    kept = "".join(json.dumps(row) + "\n" for row in reviews(25_000))
    (tmp_path / "imdb/train.jsonl").write_text(kept)
    catalog.load("tasks", "imdb").require_data(choose("imdb"), Place(data_root=str(tmp_path), download=True))
    assert (tmp_path / "imdb/train.jsonl").read_text() == kept
    assert len((tmp_path / "imdb/test.jsonl").read_text().splitlines()) == 25_000


def test_a_folder_that_cannot_be_written_is_named(served: dict[str, Any], tmp_path: Path) -> None:
    served["test"] = reviews(25_000)
    (tmp_path / "file").touch()
    with pytest.raises(RequestError, match=f"cannot write {tmp_path / 'file'}") as refused:
        download(published("imdb"), ["test.jsonl"], tmp_path / "file")
    assert "--data-root" in refused.value.hint


def test_a_hub_out_of_reach_is_told_before_anything_runs(
    served: dict[str, Any], in_tmp: Path, monkeypatch: pytest.MonkeyPatch, answer: Answer
) -> None:
    served["train"] = ConnectionError("Couldn't reach 'CogComp/trec' on the Hub")
    for name in DATA_VARIABLES:  # the call sets them
        monkeypatch.setenv(name, "")
    flags = "--seq 17 --width 32 --depth 1 --heads 2 --ffn-width 64 --metrics accuracy --task masked_token:trec --data-root . --download"
    code, _, err = answer(f"run --models vit {flags}")
    assert code == 2
    *_, said, error, hint = err.splitlines()
    assert said == f"downloading what task masked_token lacks into {in_tmp}"
    assert f"cannot be downloaded as {in_tmp / 'trec6' / 'train_5500.label'}: ConnectionError: Couldn't reach" in error
    assert "Li and Roth" in hint
    assert not list(in_tmp.rglob("*.label"))
    assert not list(in_tmp.rglob("records.jsonl*"))
