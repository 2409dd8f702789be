"""The cache saves work and never changes a result, whatever is wrong with its files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.tasks.readers.cache import cache_folder, cached, entry_path

KEY = {"task": "made", "size": 3}


class Computed:
    """A computation that counts how often it is done."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> dict[str, Any]:
        self.times += 1
        return {"answer": [0.1, 2], "time": self.times}


@pytest.fixture
def compute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Computed:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return Computed()


def entry() -> Path:
    path = entry_path("kind", KEY)
    assert path is not None
    return path


def test_the_same_key_is_computed_once(compute: Computed) -> None:
    assert cached("kind", KEY, compute) == cached("kind", dict(reversed(KEY.items())), compute) == {"answer": [0.1, 2], "time": 1}
    assert compute.times == 1


def test_another_kind_or_key_is_computed_apart(compute: Computed) -> None:
    for kind, key in (("kind", KEY), ("other", KEY), ("kind", {**KEY, "size": 4})):
        cached(kind, key, compute)
    assert compute.times == 3


@pytest.mark.parametrize("text", ["", "[]", '{"value": {}}', '{"key": {"task": "made", "size": 3}, "value": 5}'])
def test_an_entry_that_cannot_be_read_is_computed_again_and_put_right(compute: Computed, text: str) -> None:
    cached("kind", KEY, compute)
    entry().write_text(text)
    assert cached("kind", KEY, compute)["time"] == 2
    assert cached("kind", KEY, compute)["time"] == 2


def test_an_entry_of_another_key_under_the_same_name_is_not_served(compute: Computed) -> None:
    cached("kind", KEY, compute)
    stored = json.loads(entry().read_text())
    entry().write_text(json.dumps({**stored, "key": {**KEY, "size": 4}}))
    assert cached("kind", KEY, compute)["time"] == 2


def test_a_folder_that_cannot_be_written_is_done_without(compute: Computed, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    assert cached("kind", KEY, compute)["time"] == 1
    assert cached("kind", KEY, compute)["time"] == 2


def test_the_folder_is_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache_folder() == Path("/somewhere/gmlp-bench")
    for unset in ("", "relative/folder"):
        monkeypatch.setenv("XDG_CACHE_HOME", unset)
        assert cache_folder() == tmp_path / ".cache/gmlp-bench"
