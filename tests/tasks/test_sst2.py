"""SST-2: read from files with the GLUE header, made here; dev is the validation split."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.spec import RequestError
from bench.tasks import DATA_VARIABLE, load_splits, require_data, sst2
from bench.tasks._info import info_of
from tests.contracts.made_data import made_for, text_of_bytes


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path))
    made_for("sst2", tmp_path, monkeypatch)
    return tmp_path / "sst2"


@pytest.mark.usefixtures("folder")
def test_each_file_is_its_split() -> None:
    require_data("sst2")
    splits, info = load_splits("sst2", num_tokens=20), info_of("sst2")
    assert splits.validation is not None
    first = 0
    for part, count in ((splits.train, info.num_train), (splits.validation, info.num_validation), (splits.test, info.num_test)):
        assert part.inputs.shape == (count, 20)
        assert part.targets[0] == first % 2
        assert text_of_bytes(part.inputs[0].numpy()) == f'{first} is a "phrase '
        first += count


def test_a_part_of_the_set_does_not_pass_for_the_whole(folder: Path) -> None:
    lines = (folder / "dev.tsv").read_text().splitlines(keepends=True)
    (folder / "dev.tsv").write_text("".join(lines[:801]))
    with pytest.raises(RequestError, match=r"\(67349, 800, 1821\)"):
        require_data("sst2")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("good film\t1\n", "not with the header"),
        ("sentence\tlabel\ngood film\t1\nbad film 0\n", "line 3 does not end in a tab and 0 or 1"),
    ],
)
def test_another_form_is_refused(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "dev.tsv"
    path.write_text(content)
    with pytest.raises(RequestError, match=said):
        sst2.read_phrases(path)
