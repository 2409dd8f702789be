"""`bench pool` as a user meets it: table, page, numbers and forest plot, and everything that it refuses in one line."""

from __future__ import annotations

import csv
import json
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from matplotlib.axes import Axes
from PIL import Image

from bench import cli
from bench.analysis.pool import pool_runs
from bench.report.pool import draw_forests
from bench.running.store import read_run
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


def run_on(kind: str, *, name: str = "", **facts: Any) -> Path:
    """A planted run below results/, of a host of this type and a boot of its own."""
    name = name or kind.replace(" ", "-")
    return stored(Path("results") / name, PLAN, zlib.crc32(name.encode()), slower={"vit": 1.5}, cpu_type=kind, **{"boot": name, **facts})


def test_five_types_give_a_pooled_ratio_and_a_prediction(answer: Answer) -> None:
    code, out, err = answer(*[run_on(kind) for kind in HOSTS])
    assert code == 0
    lines = [line for line in out.splitlines() if line.strip()]
    assert sum("all types, pooled" in line for line in lines) == 2
    assert sum("a new type, predicted" in line for line in lines) == 2
    assert all(sum(kind in line for line in lines) == 2 for kind in HOSTS)
    assert "convenience sample" in out
    assert "Hartung-Knapp" in out
    assert "95 %" in out
    assert "reports/zen-2_pool" in err


def test_the_folder_holds_page_numbers_and_forest_plot(answer: Answer) -> None:
    answer(*[run_on(kind) for kind in HOSTS])
    folder = Path("reports/zen-2_pool")
    assert sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()) == [
        "figures/forest.png",
        "figures/forest.svg",
        "pool.csv",
        "pool.md",
    ]
    with (folder / "pool.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["row"] for row in rows] == [*["type"] * 5, "pooled", "prediction"] * 2
    for row in rows:
        assert float(row["ratio_low"]) < float(row["ratio"]) < float(row["ratio_high"])
        assert float(row["ratio"]) == pytest.approx(1.5, rel=0.03)
    page = (folder / "pool.md").read_text()
    assert "figures/forest.png" in page
    assert "5 runs on 5 machines of 5 host types" in page
    assert "convenience sample" in page
    with Image.open(folder / "figures/forest.png") as image:
        assert image.width > 400


def test_json_is_one_document(answer: Answer) -> None:
    code, out, _ = answer(*[run_on(kind) for kind in HOSTS[:3]], "--json", "--out", "elsewhere")
    found = json.loads(out)
    assert code == 0
    assert found["runs"] == ["zen-2", "zen-3", "zen-4"]
    assert [row["row"] for row in found["rows"]] == [*["type"] * 3, "pooled"] * 2
    assert found["level"] == 0.95
    assert Path("elsewhere/pool.md").exists()
    assert not Path("reports").exists()


def test_three_types_say_why_nothing_is_predicted(answer: Answer) -> None:
    _, out, _ = answer(*[run_on(kind) for kind in HOSTS[:3]])
    assert "No prediction interval from 3 host types: it needs 5." in out


@pytest.mark.parametrize("num", [1, 2])
def test_below_three_types_estimates_are_listed(answer: Answer, num: int) -> None:
    runs = [run_on(kind) for kind in HOSTS[:num]]
    code, out, _ = answer(*runs, run_on(HOSTS[0], name="again"))
    assert code == 0
    assert "all types, pooled" not in out
    assert f"Nothing is pooled over {num} host type" in out
    assert sum(kind in out for kind in HOSTS) == num


def texts_of(axis: Axes) -> list[str]:
    return [text.get_text() for text in axis.texts]


@pytest.mark.usefixtures("answer")
def test_the_forest_plot_shows_every_row_and_number() -> None:
    figure = draw_forests(pool_runs([read_run(run_on(kind)) for kind in HOSTS]).pairs)["forest"]
    (axis,) = figure.axes
    labels = [row for n in (17, 65) for row in (f"vit / gmlp, n = {n}", *HOSTS, "all types, pooled", "a new type, predicted")]
    assert [text for text in texts_of(axis) if "[" not in text] == labels
    assert axis.get_xscale() == "log"
    low, high = axis.get_xlim()
    assert low < 1 / 1.03
    assert high > 1.5
    assert sum("[" in text for text in texts_of(axis)) == 2 * 7


@pytest.mark.usefixtures("answer")
@pytest.mark.parametrize(
    ("kind", "label"),
    [
        ("AMD EPYC family 26 model 2 stepping 1 (avx2)", "AMD EPYC 26/2/1 (avx2)"),
        (
            "AMD EPYC family 26 model 2 stepping 1 (avx2, avx512_bf16, avx512_vnni, avx512f)",
            "AMD EPYC 26/2/1 (avx2 ... avx512_vnni, avx512f)",
        ),
    ],
)
def test_types_are_shortened_but_told_apart(kind: str, label: str) -> None:
    runs = [read_run(run_on(kind, name=name)) for name in ("one", "two")]
    (axis,) = draw_forests(pool_runs(runs).pairs)["forest"].axes
    assert f"{label}, 2 machines" in texts_of(axis)


def test_many_pairs_are_drawn_in_several_figures(answer: Answer) -> None:
    plan = planned(seq=",".join(str(n) for n in range(17, 33)))
    runs = [stored(Path("results") / kind, plan, 1, cpu_type=kind, boot=kind) for kind in HOSTS]
    figures = draw_forests(pool_runs(list(map(read_run, runs))).pairs)
    texts = [texts_of(axis) for figure in figures.values() for axis in figure.axes]
    assert list(figures) == ["forest", "forest_2", "forest_3", "forest_4"]
    assert sum("/" in text for page in texts for text in page) == 16
    assert max(sum("[" in text for text in page) for page in texts) <= 40
    assert len({axis.get_xlim() for figure in figures.values() for axis in figure.axes}) == 1
    assert answer(*runs, "--out", "page")[0] == 0
    assert all(f"figures/{name}.png" in Path("page/pool.md").read_text() for name in figures)
    assert all(Path(f"page/figures/{name}.svg").exists() for name in figures)


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
    runs = [run_on("zen 2"), run_on("", name="old"), run_on("zen 3", boot=None)]
    refused(answer(*runs), "host unknown: results/old, results/zen-3", "measure again to pool")


def test_unlike_work_is_refused(answer: Answer) -> None:
    refused(answer(run_on("zen 2"), run_on("zen 3", work_version="w2")), "work_version", "w1", "w2")


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


def test_two_runs_of_one_boot_are_one_machine(answer: Answer) -> None:
    code, out, _ = answer(run_on("zen 2"), run_on("zen 2", name="later", boot="zen-2"), "--json")
    rows = json.loads(out)["rows"]
    assert code == 0
    assert {(row["num_machines"], row["num_runs"]) for row in rows} == {(1, 2)}


def test_a_folder_that_is_no_run_is_refused(answer: Answer) -> None:
    refused(answer(run_on("zen 2"), "results/none"), "results/none")
