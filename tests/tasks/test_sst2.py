"""SST-2: read from files with the GLUE header, made here; dev is the validation split."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.spec import RequestError
from bench.tasks import DATA_VARIABLE, load_splits, require_data, sst2
from bench.tasks._info import info_of
from tests.contracts.made_data import text_of_bytes


def write(path: Path, num_items: int, word: str) -> None:
    path.write_text("sentence\tlabel\n" + "".join(f'{word} "{item} \t{item % 2}\n' for item in range(num_items)))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path))
    made = tmp_path / "sst2"
    made.mkdir()
    for name, num_items in (("train", 67349), ("dev", 872), ("test_labelled", 1821)):
        write(made / f"{name}.tsv", num_items, name)
    return made


@pytest.mark.usefixtures("folder")
def test_each_file_is_its_split() -> None:
    require_data("sst2")
    splits, info = load_splits("sst2", num_tokens=20), info_of("sst2")
    assert splits.validation is not None
    for part, word, count in (
        (splits.train, "train", info.num_train),
        (splits.validation, "dev", info.num_validation),
        (splits.test, "test_labelled", info.num_test),
    ):
        assert part.inputs.shape == (count, 20)
        assert part.targets[:3].tolist() == [0, 1, 0]
        assert text_of_bytes(part.inputs[1].numpy()) == f'{word} "1 '


def test_a_part_of_the_set_does_not_pass_for_the_whole_and_an_absent_file_is_named(folder: Path) -> None:
    write(folder / "dev.tsv", 800, "dev")
    with pytest.raises(RequestError, match=r"\(67349, 800, 1821\)"):
        load_splits("sst2", num_tokens=4)
    (folder / "dev.tsv").unlink()
    with pytest.raises(RequestError, match=f"in {folder}; dev.tsv is not there"):
        require_data("sst2")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("good film\t1\n", "not with the header"),
        ("", "starts with ''"),
        ("sentence\tlabel\ngood film\t1\nbad film 0\n", "line 3 does not end in a tab and 0 or 1"),
        ("sentence\tlabel\ngood film\t2\n", "line 2 does not"),
    ],
)
def test_another_form_is_refused(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "dev.tsv"
    path.write_text(content)
    with pytest.raises(RequestError, match=said):
        sst2.read_phrases(path)
