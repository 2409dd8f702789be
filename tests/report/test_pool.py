"""`bench pool` as a user meets it: table, page and numbers, and everything that it refuses in one line."""

from __future__ import annotations

import csv
import json
import shutil
import zlib
from pathlib import Path
from typing import Any

import pytest

from tests.answered import Answer
from tests.planted_runs import HOSTS, planned, stored

pytestmark = pytest.mark.usefixtures("in_tmp")
PLAN = planned(seq="17,65")


def run_on(kind: str, *, name: str = "", slower: float = 1.5, **facts: Any) -> Path:
    """A planted run below results/, of a host of this type and a boot of its own."""
    name = name or kind.replace(" ", "-")
    return stored(
        Path("results") / name, PLAN, zlib.crc32(name.encode()), slower={"gmlp": slower}, cpu_type=kind, **{"boot": name, **facts}
    )


def test_every_type_has_a_row_of_every_comparison(answer: Answer) -> None:
    code, out, err = answer("pool", *[run_on(kind) for kind in HOSTS])
    assert code == 0
    lines = [line for line in out.splitlines() if line.strip()]
    assert all(sum(kind in line for line in lines) == 2 for kind in HOSTS)
    assert sum("1.5" in line or "1.49" in line for line in lines) == 10
    assert "reports/zen-2_pool" in err


def test_the_folder_holds_page_and_numbers(answer: Answer) -> None:
    answer("pool", *[run_on(kind) for kind in HOSTS], run_on(HOSTS[0], name="again"))
    folder = Path("reports/zen-2_pool")
    assert sorted(path.name for path in folder.iterdir()) == ["pool.csv", "pool.md"]
    with (folder / "pool.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["run"], row["num_occasions"]) for row in rows][:3] == [("zen-2", "2"), ("again", "2"), ("zen-3", "1")]
    assert len(rows) == 12
    for row in rows:
        assert float(row["interval_low"]) < float(row["ratio"]) < float(row["interval_high"])
        assert bool(row["lowest"]) == bool(row["highest"]) == (row["num_occasions"] == "2")
    assert "6 runs on 5 host types" in (folder / "pool.md").read_text()


def test_json_is_one_document(answer: Answer) -> None:
    code, out, _ = answer("pool", *[run_on(kind) for kind in HOSTS[:3]], "--json", "--out", "elsewhere")
    found = json.loads(out)
    assert code == 0
    assert [run["run"] for run in found["runs"]] == ["zen-2", "zen-3", "zen-4"]
    assert [row["host_type"] for row in found["rows"]] == [*HOSTS[:3]] * 2
    assert Path("elsewhere/pool.md").exists()
    assert not Path("reports").exists()


def refused(found: tuple[int, str, str], *words: str) -> None:
    code, out, err = found
    assert code == 2
    assert out == ""
    assert len(err.strip().splitlines()) <= 2
    assert all(word in err for word in words), err
    assert not Path("reports").exists()


def test_one_run_is_refused(answer: Answer) -> None:
    refused(answer("pool", run_on("zen 2")), "1 run cannot be pooled")


def test_an_unknown_host_is_refused(answer: Answer) -> None:
    runs = [run_on("zen 2"), stored(Path("results/old"), PLAN, 1, cpu_type=None)]
    refused(answer("pool", *runs), "host unknown: results/old", "measure again to pool")


def test_a_quick_run_is_refused(answer: Answer) -> None:
    quick = stored(Path("results/quick"), planned(seq="17,65", quick=True), 1, boot="q")
    refused(answer("pool", run_on("zen 2"), quick), "results/quick is a quick run")


@pytest.mark.parametrize("order", [1, -1])
def test_another_request_is_refused_with_the_missing_cell(answer: Answer, order: int) -> None:
    shorter = stored(Path("results/shorter"), planned(seq="17"), 1, boot="s")
    refused(answer("pool", *[run_on("zen 2"), shorter][::order]), "n = 65", "of results/zen-2 is not in results/shorter")


def test_other_settings_are_refused(answer: Answer) -> None:
    first = run_on("zen 2")
    plan = Path("results/zen-2/plan.json").read_text()
    second = run_on("zen 3")
    assert '"threads": 1' in plan
    (second / "plan.json").write_text(plan.replace('"threads": 1', '"threads": 2'))
    refused(answer("pool", first, second), "threads is 1 in results/zen-2, 2 in results/zen-3")


def test_more_rounds_are_not_another_request(answer: Answer) -> None:
    longer = stored(Path("results/longer"), planned(seq="17,65", rounds=9), 1, boot="l")
    assert answer("pool", run_on("zen 2"), longer)[0] == 0


@pytest.mark.parametrize("named", ["results/zen-2", "results/copy"])
def test_the_same_records_twice_are_refused(answer: Answer, named: str) -> None:
    run = run_on("zen 2")
    shutil.copytree(run, "results/copy")
    refused(answer("pool", run, named), "results/zen-2", named, "the same records")


def test_a_folder_that_is_no_run_is_refused(answer: Answer) -> None:
    refused(answer("pool", run_on("zen 2"), "results/none"), "results/none")


def test_a_page_of_other_runs_is_not_overwritten(answer: Answer) -> None:
    first, second, third = run_on("zen 2"), run_on("zen 3"), run_on("zen 4")
    assert answer("pool", first, second)[0] == 0
    code, _, err = answer("pool", first, third)
    assert code == 2
    assert "has a page of other runs, such as zen-3" in err
    assert answer("pool", first, second, third)[0] == 0  # one run more
