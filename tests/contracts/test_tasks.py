"""Every task that the catalog finds keeps the contract of bench/tasks, on small made data."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import catalog
from bench.contracts.tasks import Subject, check_all, subject_of
from bench.tasks import DATA_VARIABLE, require_data
from bench.tasks._info import info_of
from tests.contracts.made_data import made_for


@pytest.fixture(scope="module", params=catalog.names("tasks"))
def task(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Subject]:
    """A task on made data, with a cache of its own."""
    folder: Path = tmp_path_factory.mktemp(request.param)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        made = made_for(request.param, folder, patch)
        patch.setenv(DATA_VARIABLE, str(made.data_root or ""))
        require_data(made.task)
        info_of.cache_clear()
        yield subject_of(made.task, counts_match=made.counts_match)


def test_contract(task: Subject) -> None:
    check_all(task)
