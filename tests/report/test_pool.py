"""`bench pool` as a user meets it: table, page and numbers, and everything that it refuses in one line."""

from __future__ import annotations

import csv
import json
import re
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench import cli
from tests.planted_runs import HOSTS, planned, stored

Answer = Callable[..., tuple[int, str, str]]
PLAN = planned(seq="17,65")


@pytest.fixture
def answer(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Answer:
    """Runs `bench pool` in a folder of its own."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: Any) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            cli.main(["pool", *map(str, arguments)])
        assert isinstance(ended.value.code, int)
        return ended.value.code, *capsys.readouterr()

    return run


def run_on(kind: str, *, name: str = "", slower: float = 1.5, **facts: Any) -> Path:
    """A planted run below results/, of a host of this type and a boot of its own."""
    name = name or kind.replace(" ", "-")
    return stored(
        Path("results") / name, PLAN, zlib.crc32(name.encode()), slower={"gmlp": slower}, cpu_type=kind, **{"boot": name, **facts}
    )


def test_every_type_has_a_row_of_every_comparison(answer: Answer) -> None:
    code, out, err = answer(*[run_on(kind) for kind in HOSTS])
    assert code == 0
    lines = [line for line in out.splitlines() if line.strip()]
    assert all(sum(kind in line for line in lines) == 2 for kind in HOSTS)
    assert sum("1.5" in line or "1.49" in line for line in lines) == 10
    assert "95 %" in out
    assert "not joined" in out
    assert "reports/zen-2_pool" in err


def test_the_folder_holds_page_and_numbers(answer: Answer) -> None:
    answer(*[run_on(kind) for kind in HOSTS], run_on(HOSTS[0], name="again"))
    folder = Path("reports/zen-2_pool")
    assert sorted(path.name for path in folder.iterdir()) == ["pool.csv", "pool.md"]
    with (folder / "pool.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["run"], row["num_occasions"]) for row in rows][:3] == [("zen-2", "2"), ("again", "2"), ("zen-3", "1")]
    assert len(rows) == 12
    for row in rows:
        assert float(row["interval_low"]) < float(row["ratio"]) < float(row["interval_high"])
        assert float(row["ratio"]) == pytest.approx(1.5, rel=0.03)
        assert bool(row["lowest"]) == bool(row["highest"]) == (row["num_occasions"] == "2")
    page = (folder / "pool.md").read_text()
    assert "6 runs on 5 host types" in page
    assert "again: zen 2, boot again, timed code w1" in page


def test_json_is_one_document(answer: Answer) -> None:
    code, out, _ = answer(*[run_on(kind) for kind in HOSTS[:3]], "--json", "--out", "elsewhere")
    found = json.loads(out)
    assert code == 0
    assert [run["run"] for run in found["runs"]] == ["zen-2", "zen-3", "zen-4"]
    assert [row["host_type"] for row in found["rows"]] == [*HOSTS[:3]] * 2
    assert found["level"] == 0.95
    assert Path("elsewhere/pool.md").exists()
    assert not Path("reports").exists()


def test_rounds_that_are_too_few_for_an_interval_have_their_range(answer: Answer) -> None:
    plan = planned(seq="17,65", rounds=4)
    runs = [
        stored(Path("results") / name, plan, place, slower={"gmlp": 1.5}, cpu_type=name, boot=name) for place, name in enumerate(HOSTS[:2])
    ]
    _, out, _ = answer(*runs)
    assert sum(bool(re.search(r"1\.\d+ \(1\.\d+ to 1\.\d+\)", line)) for line in out.splitlines()) == 4
    _, out, _ = answer(*runs, "--json")
    assert {(row["interval_low"], row["interval_high"]) for row in json.loads(out)["rows"]} == {(None, None)}


def test_runs_of_one_type_show_their_intervals_and_the_range_over_the_occasions(answer: Answer) -> None:
    answer(*[run_on("zen 2", name=name, slower=slower) for name, slower in (("a", 1.5), ("b", 3.0), ("c", 2.0))])
    page = Path("reports/a_pool/pool.md").read_text()
    interval, least, most = r"[123]\.\d+ \[[123]\.\d+, [123]\.\d+\]", r"1\.(?:4[7-9]|5\d)", r"(?:2\.9\d|3\.0\d)"
    assert len(re.findall(f"{interval}, {interval}, {interval}; over 3 occasions {least} to {most}", page)) == 2


def test_unlike_versions_of_the_timed_code_stand_side_by_side(answer: Answer) -> None:
    _, out, _ = answer(run_on("zen 2"), run_on("zen 2", name="later", work_version="0123456789"))
    assert out.count("zen 2, code w1") == 2
    assert out.count("zen 2, code 012345") == 2


def refused(found: tuple[int, str, str], *words: str) -> None:
    code, out, err = found
    assert code == 2
    assert out == ""
    assert len(err.strip().splitlines()) <= 2
    assert all(word in err for word in words), err
    assert not Path("reports").exists()


def test_one_run_is_refused(answer: Answer) -> None:
    refused(answer(run_on("zen 2")), "1 run cannot be pooled")


def test_an_unknown_host_is_refused(answer: Answer) -> None:
    runs = [run_on("zen 2"), stored(Path("results/old"), PLAN, 1, cpu_type=None)]
    refused(answer(*runs), "host unknown: results/old", "measure again to pool")


def test_a_quick_run_is_refused(answer: Answer) -> None:
    quick = stored(Path("results/quick"), planned(seq="17,65", quick=True), 1, boot="q")
    refused(answer(run_on("zen 2"), quick), "results/quick is a quick run")


@pytest.mark.parametrize("order", [1, -1])
def test_another_request_is_refused_with_the_missing_cell(answer: Answer, order: int) -> None:
    shorter = stored(Path("results/shorter"), planned(seq="17"), 1, boot="s")
    refused(answer(*[run_on("zen 2"), shorter][::order]), "n = 65", "of results/zen-2 is not in results/shorter")


def test_other_settings_are_refused(answer: Answer) -> None:
    first = run_on("zen 2")
    plan = Path("results/zen-2/plan.json").read_text()
    second = run_on("zen 3")
    assert '"threads": 1' in plan
    (second / "plan.json").write_text(plan.replace('"threads": 1', '"threads": 2'))
    refused(answer(first, second), "threads is 1 in results/zen-2, 2 in results/zen-3")


def test_more_rounds_are_not_another_request(answer: Answer) -> None:
    longer = stored(Path("results/longer"), planned(seq="17,65", rounds=9), 1, boot="l")
    assert answer(run_on("zen 2"), longer)[0] == 0


@pytest.mark.parametrize("named", ["results/zen-2", "results/copy"])
def test_the_same_records_twice_are_refused(answer: Answer, named: str) -> None:
    run = run_on("zen 2")
    shutil.copytree(run, "results/copy")
    refused(answer(run, named), "results/zen-2", named, "the same records")


def test_a_folder_that_is_no_run_is_refused(answer: Answer) -> None:
    refused(answer(run_on("zen 2"), "results/none"), "results/none")
