"""A `models` that is not ours is refused before anything of it runs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.__main__ import ForeignPackageError, require_own_models

PROJECT = Path(__file__).parents[1]


def _decoy_file(folder: Path, name: str) -> Path:
    path = folder / f"{name}.py"
    path.write_text("raise SystemExit('the decoy was executed')\n")
    return path


def _decoy_package(folder: Path, name: str) -> Path:
    (folder / name).mkdir()
    (folder / name / "__init__.py").write_text("raise SystemExit('the decoy was executed')\n")
    return folder / name


def _start(folder: Path, *, path: list[Path]) -> subprocess.CompletedProcess[str]:
    """`python -m bench --help` started in `folder`."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}
    return subprocess.run(
        [sys.executable, "-m", "bench", "--help"], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_our_own_are_accepted() -> None:
    require_own_models()


@pytest.mark.parametrize("make", [_decoy_file, _decoy_package])
@pytest.mark.parametrize("name", ["models", "ablations"])
def test_a_decoy_in_the_current_folder_is_refused(tmp_path: Path, make: Callable[[Path, str], Path], name: str) -> None:
    decoy = make(tmp_path, name)
    _assert_refused(_start(tmp_path, path=[PROJECT]), decoy, PROJECT / name)


def test_a_decoy_on_pythonpath_is_refused(tmp_path: Path) -> None:
    decoy = _decoy_file(tmp_path, "models")
    _assert_refused(_start(tmp_path.parent, path=[tmp_path, PROJECT]), decoy, PROJECT / "models")


def _assert_refused(done: subprocess.CompletedProcess[str], decoy: Path, own: Path) -> None:
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert str(decoy.resolve()) in done.stderr
    assert str(own.resolve()) in done.stderr


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
