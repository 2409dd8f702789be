"""The hash of what a training learns by: the family, the loop, and what they import, without prose."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import bench
from bench.measure import training_code
from bench.measure.training_code import training_version, training_versions

FILES = {
    "models/gmlp.py": "from models.layers.cost import linear\nfrom models.mixers import spatial_gating",
    "models/vit.py": "from models.layers import head",
    "models/metaformer.py": "from models import mixers",
    "models/layers/cost.py": "from models.layers.shape import Shape",
    "models/layers/head.py": "1",
    "models/layers/shape.py": "1",
    "models/mixers/__init__.py": "1",
    "models/mixers/spatial_gating.py": "1",
    "models/mixers/attention.py": "1",
    "bench/training/loop.py": "from bench.training import objective\nfrom bench.spec import Recipe",
    "bench/training/objective.py": "1",
    "bench/training/weight_maps.py": "1",
    "bench/spec.py": "1",
}
TOUCHED = {
    "models/gmlp.py": {"gmlp"},
    "models/layers/cost.py": {"gmlp"},
    "models/layers/shape.py": {"gmlp"},
    "models/layers/head.py": {"vit"},
    "models/mixers/spatial_gating.py": {"gmlp", "metaformer"},
    "models/mixers/attention.py": {"metaformer"},
    "bench/training/objective.py": {"gmlp", "vit", "metaformer"},
    "bench/training/weight_maps.py": set(),
    "bench/spec.py": set(),
}
"""By file: the families whose trainings a change of it touches."""


@pytest.fixture
def versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], dict[str, str]]:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(bench, "__file__", str(tmp_path / "bench" / "__init__.py"))

    def found() -> dict[str, str]:
        training_version.cache_clear()
        return training_versions(["gmlp", "vit", "metaformer"])

    monkeypatch.setattr(training_code, "OUTSIDE", ("timm",))
    return found


@pytest.fixture(autouse=True)
def forget() -> None:
    training_version.cache_clear()


@pytest.mark.parametrize("path", TOUCHED)
def test_a_change_touches_the_families_that_import_it(path: str, versions: Callable[[], dict[str, str]], tmp_path: Path) -> None:
    before = versions()
    (tmp_path / path).write_text(f'"""Prose."""\n\n{FILES[path]}  # more prose\n')
    assert versions() == before
    (tmp_path / path).write_text(f"{FILES[path]}\n2")
    after = versions()
    assert {family for family in before if before[family] != after[family]} == TOUCHED[path]


def test_a_new_mixer_touches_only_a_family_that_finds_mixers_by_name(versions: Callable[[], dict[str, str]], tmp_path: Path) -> None:
    before = versions()
    (tmp_path / "models/mixers/state_space.py").write_text("1")
    after = versions()
    assert {family for family in before if before[family] != after[family]} == {"metaformer"}


def test_the_real_code_has_a_version_for_every_family() -> None:
    found = training_versions(["gmlp", "vit", "transformer", "metaformer"])
    assert len(set(found.values())) == 4
    assert {len(version) for version in found.values()} == {16}
