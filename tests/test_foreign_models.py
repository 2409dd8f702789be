"""A `models` that is not ours is refused before anything of it runs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bench.__main__ import ForeignPackageError, require_own_models
from tests.specimens import ROOT, run_bench


@pytest.mark.parametrize("path", ["models.py", "ablations/__init__.py"])
def test_a_decoy_in_the_current_folder_is_refused(path: str, tmp_path: Path) -> None:
    decoy = tmp_path / path
    decoy.parent.mkdir(exist_ok=True)
    decoy.write_text("raise SystemExit('the decoy was executed')\n")
    done = run_bench(ROOT, tmp_path, "--help")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    top = tmp_path / Path(path).parts[0]
    assert str(top.resolve()) in done.stderr
    assert str((ROOT / top.stem).resolve()) in done.stderr


def test_a_folder_without_init_is_refused_where_it_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a folder of data wins over an editable install, whose finder is asked last."""
    decoy = tmp_path / "models"
    decoy.mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "models", raising=False)
    with pytest.raises(ForeignPackageError, match=str(decoy)):
        require_own_models()


def test_missing_packages_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setattr(sys, "meta_path", [finder for finder in sys.meta_path if "editable" not in repr(finder).lower()])
    monkeypatch.delitem(sys.modules, "models", raising=False)
    with pytest.raises(ForeignPackageError, match="nowhere"):
        require_own_models()
