"""TREC: read from files of the published form, made here; what is absent or torn is told in one line."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from bench.spec import RequestError
from bench.tasks import DATA_VARIABLE, load_splits, require_data, trec
from tests.answered import Answer
from tests.contracts.made_data import made_for, text_of_bytes


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`trec` passes for `trec6`, which the contract of tasks reads."""
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path))
    made_for("trec", tmp_path, monkeypatch)
    return (tmp_path / "trec6").rename(tmp_path / "trec")


@pytest.mark.usefixtures("folder")
def test_questions_become_bytes_with_their_coarse_class() -> None:
    require_data("trec")
    splits = load_splits("trec", num_tokens=32)
    assert (splits.train.inputs.shape, splits.test.inputs.shape, splits.validation) == ((5452, 32), (500, 32), None)
    assert splits.train.targets[:8].tolist() == [0, 1, 2, 3, 4, 5, 0, 1]
    assert text_of_bytes(splits.test.inputs[0].numpy()) == "5452 asks what é is ?"


def test_byte_pairs_are_learned_from_the_training_questions(folder: Path) -> None:
    pytest.importorskip("tokenizers")
    first = load_splits("trec+tokenizer=bpe+vocab_size=300", num_tokens=16)
    (folder / "TREC_10.label").write_bytes(b"NUM:dist zzzzzzzz zzzzzzzz\n" * 500)
    again = load_splits("trec+tokenizer=bpe+vocab_size=300", num_tokens=16)
    assert first.train.inputs.max() < 300
    assert torch.equal(first.train.inputs, again.train.inputs)


def test_absent_data_are_refused_naming_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path))
    with pytest.raises(RequestError, match=f"train_5500.label and TREC_10.label in {tmp_path / 'trec6'}") as refused:
        require_data("trec")
    assert "Li and Roth" in refused.value.hint
    assert "--download" in refused.value.hint
    monkeypatch.delenv(DATA_VARIABLE)
    with pytest.raises(RequestError, match="needs a folder with data sets"):
        require_data("trec")


def test_a_part_of_the_set_is_refused_before_anything_runs(folder: Path, monkeypatch: pytest.MonkeyPatch, answer: Answer) -> None:
    (folder / "TREC_10.label").write_bytes(b"NUM:dist How far ?\n" * 499)
    monkeypatch.chdir(folder)
    code, _, err = answer("run --models vit --seq 17 --width 32 --depth 1 --heads 2 --ffn-width 64 --metrics accuracy --task trec")
    assert code == 2
    assert "holds (5452, 0, 499) items for training, validation and testing; the data set has (5452, 0, 500)" in err
    assert not (folder / "results").exists()


def test_a_line_without_a_class_is_refused_naming_it(tmp_path: Path) -> None:
    path = tmp_path / "questions"
    path.write_text("NUM:dist How far ?\nWhat is this ?\n")
    with pytest.raises(RequestError, match="line 2: unknown class 'What'; allowed: ABBR, DESC"):
        trec.read_questions(path)
