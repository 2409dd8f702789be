"""`bench site`: one static folder with all runs, an explorer that joins only what is alike, the reports and the manual."""

from __future__ import annotations

import base64
import dataclasses
import gzip
import json
import re
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from bench.analysis.study import Study
from bench.reading.store import RECORDS
from bench.report import manual
from bench.report.all_runs import explorer_of, rows_of_all
from bench.report.explorer import TIMES
from bench.report.html import safe_json
from bench.report.manual import INDEX
from bench.report.result_index import Entry, entries_of
from bench.report.site import EXPLORER, MARK, SEARCH, SEARCH_INDEX, STYLE, write_site
from bench.spec import Plan, RequestError
from tests.answered import Answer
from tests.planted_runs import planned, stored
from tests.planted_site import METRICS, NEW, OLD, OTHER, build, dead_links, plant, plant_pages

Runs = list[tuple[Entry, Study]]
DRAWING = (
    '<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"><path d="M 0 0"/>{}</svg>'
)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Left as it is by the tests."""
    return plant(tmp_path_factory.mktemp("repository"))


@pytest.fixture(scope="module")
def site(repository: Path) -> Path:
    return build(repository)


@pytest.fixture(scope="module")
def runs(repository: Path) -> Runs:
    return [(entry, known) for entry, known in entries_of(repository / "results") if known]


@pytest.fixture
def known(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sites are built from these runs, without reading them again."""
    monkeypatch.setattr("bench.report.site.entries_of", lambda _: iter(runs))


def build_bare(folder: Path) -> Path:
    """The folder of a site without manual and reports."""
    return write_site(folder / "results", folder / "site", folder).parent


def data_of(runs: Runs) -> dict[str, Any]:
    """As the page reads it."""
    found: dict[str, Any] = json.loads(safe_json(explorer_of(runs)))
    return found


def texts(dimension: dict[str, Any]) -> list[str]:
    return [dimension["texts"][code] for code in dimension["codes"]]


def test_times_of_unlike_code_or_hosts_are_apart_and_counts_are_not(runs: Runs) -> None:
    data = data_of(runs)
    (apart,) = [part for part in data["parts"] if part["only"]]
    assert set(apart["only"]) == set(TIMES)
    assert texts(apart) == [f"timed as in {run}" for run in (OLD, OLD, NEW, NEW, OTHER) for _ in range(2)]
    (hosts,) = [dimension for dimension in data["dimensions"] if dimension["name"] == "host"]
    assert texts(hosts) == ["zen 4, 2 cores"] * 8 + ["zen 3, 2 cores"] * 2
    assert {quantity["name"] for quantity in data["quantities"] if quantity["timed"]} <= set(TIMES)


def test_runs_of_like_host_and_code_are_together(runs: Runs) -> None:
    alike = [(entry, dataclasses.replace(known, environment={**known.environment, "work_version": "w1"})) for entry, known in runs]
    rows = rows_of_all(alike)
    assert set(rows.loc[rows["run"] != OTHER, "timed_by"]) == {f"timed as in {OLD}"}
    assert set(rows["trained_by"]) == {""}


def test_the_index_opens_with_the_first_lines_of_the_readme(site: Path) -> None:
    text = (site / INDEX).read_text()
    assert '<h1 id="example">Example</h1>' in text
    assert f'<a href="{INDEX}#{NEW}">new</a>, <a href="{INDEX}">all</a>, <a>licence</a>, <a href="docs/index.html">manual</a>' in text
    assert text.index("<h1") < text.index('<h2 id="runs">')
    assert "Set up" not in text


@pytest.mark.usefixtures("known")
def test_the_findings_of_the_readme_do_not_open_the_site_of_other_runs(repository: Path, tmp_path: Path) -> None:
    page = write_site(tmp_path / "results", tmp_path / "site", repository).read_text()
    assert "Example" not in page
    assert "<h1>Runs</h1>" in page


def test_runs_with_a_report_in_common_lead_to_it(runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    joined = [(dataclasses.replace(entry, report=entry.report if entry.name == NEW else "both"), known) for entry, known in runs]
    monkeypatch.setattr("bench.report.site.entries_of", lambda _: iter(joined))
    repository = plant_pages(tmp_path)
    (repository / "reports" / "both").mkdir()
    (repository / "reports" / "both" / "report.md").write_text("# Both\n")
    page = (build(repository) / INDEX).read_text()
    assert page.count('href="reports/both/report.html"') == 2
    assert page.count(f'href="reports/{NEW}/report.html"') == 1
    assert (repository / "site" / "reports" / "both" / "report.html").exists()


def test_no_link_of_the_site_is_dead(site: Path) -> None:
    assert dead_links(site) == []
    (site / "docs" / "more.html").write_text('<a href="gone.html"></a><a href="index.html#nowhere"></a>')
    found = dead_links(site)
    (site / "docs" / "more.html").unlink()
    assert found == ["docs/more.html: gone.html", "docs/more.html: index.html#nowhere"]


def test_the_manual_has_its_pages_tables_and_shown_figures_only(site: Path) -> None:
    method = (site / "docs" / "method.html").read_text()
    assert "<td>1</td>" in method
    assert '<a href="../docs/method.html" aria-current="page">method</a>' in method
    assert 'href="../docs/part.html">· part</a>' in method
    assert [path.name for path in sorted((site / "reports" / NEW / "figures").iterdir())] == ["shown.png"]


def test_headings_have_the_anchors_of_a_git_host(site: Path) -> None:
    method = (site / "docs" / "method.html").read_text()
    assert re.findall(r'<h2 id="([^"]+)">', method) == ["in-n²", "in-n²-1"]


def test_the_search_knows_pages_headings_and_runs(site: Path) -> None:
    (text,) = re.findall(r'"([^"]+)"', (site / SEARCH_INDEX).read_text())
    parts = {address: rest for address, *rest in json.loads(gzip.decompress(base64.b64decode(text)))}
    assert parts["docs/method.html"] == ["Method", "", "As in the report, in n²."]
    assert parts["docs/method.html#in-n²"] == ["Method", "In n²", "a b 1 2"]
    assert parts[f"reports/{NEW}/report.html"] == ["New", "", ""]
    assert parts[f"{INDEX}#{OLD}"][:2] == ["Runs", OLD]
    assert all((site / address.partition("#")[0]).is_file() for address in parts)


@pytest.mark.usefixtures("known")
def test_a_dead_link_of_the_manual_is_refused_and_the_old_site_stays(tmp_path: Path) -> None:
    repository = plant_pages(tmp_path)
    (repository / "site").mkdir()
    (repository / "site" / INDEX).write_text(MARK)
    for link, told in {
        "[x](gone.md)": "gone.md",
        "[x](README.md#nowhere)": "#nowhere",
        "[x](#here)": "#here",
        "![x](gone.svg)": "gone.svg",
    }.items():
        (repository / "docs" / "method.md").write_text(f"# Method\n\n## In n²\n\n{link}\n")
        with pytest.raises(RequestError, match=told) as caught:
            build(repository)
        assert "docs/method.md" in str(caught.value)
    assert (repository / "site" / INDEX).read_text() == MARK
    assert {path.name for path in repository.iterdir()} == {"README.md", "CONTRIBUTING.md", "LICENSE", "docs", "reports", "site"}


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize(
    ("picture", "told"),
    [
        (DRAWING.format("<script>steal()</script>"), "holds the element script"),
        (DRAWING.format('<script xmlns="http://www.w3.org/1999/xhtml">steal()</script>'), "holds the element script"),
        (DRAWING.format("<foreignObject/>"), "holds the element foreignObject"),
        (DRAWING.format('<g onclick="steal()"/>'), "holds the event handler onclick"),
        (DRAWING.format('<use xlink:href="javascript:steal()"/>'), "holds a reference to javascript:steal"),
        (DRAWING.format('<a href="https://example.org"/>'), "holds the element a"),
        (DRAWING.format("<set/>"), "holds the element set"),
        (f"<?xml-stylesheet href='x.xsl'?>{DRAWING.format('').partition('?>')[2]}", "holds the processing instruction xml-stylesheet"),
        (
            f"<!DOCTYPE svg [<!ATTLIST path onload CDATA 'steal()'>]>{DRAWING.format('').partition('?>')[2]}",
            "holds the event handler onload",
        ),
        ("<svg", "is no SVG file"),
    ],
)
def test_a_picture_of_a_report_that_could_run_code_is_refused(picture: str, told: str, tmp_path: Path) -> None:
    repository = plant_pages(tmp_path)
    (repository / "reports" / NEW / "report.md").write_text("# New\n\n![figure](figures/drawn.svg)\n")
    (repository / "reports" / NEW / "figures" / "drawn.svg").write_text(picture)
    with pytest.raises(RequestError, match=told) as caught:
        build(repository)
    assert f"reports/{NEW}/figures/drawn.svg" in caught.value.message
    assert not (repository / "site").exists()


@pytest.mark.usefixtures("known")
def test_of_a_report_the_site_holds_pictures_and_data_only(tmp_path: Path) -> None:
    repository = plant_pages(tmp_path)
    report = repository / "reports" / NEW
    links = "[data](data.json), [page](page.html), [picture](linked.png), [text](linked.html)"
    (report / "report.md").write_text(f"# New\n\n![figure](figures/drawn.svg)\n\n{links}\n")
    (tmp_path / "secret").write_text("secret")
    for name in ("linked.png", "linked.md"):
        (report / name).symlink_to(tmp_path / "secret")
    (report / "figures" / "drawn.svg").write_text(DRAWING.format('<image xlink:href="data:image/png;base64,"/><use href="#a"/>'))
    for name in ("data.json", "page.html"):
        (report / name).write_text("<script>steal()</script>")
    built = build(repository) / "reports" / NEW
    assert {path.relative_to(built).as_posix() for path in built.rglob("*") if path.is_file()} == {
        "report.html",
        "data.json",
        "figures/drawn.svg",
    }
    assert "<a>page</a>" in (built / "report.html").read_text()


@pytest.mark.usefixtures("known")
def test_only_a_site_is_replaced_and_dot_files_stay(tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "thesis.txt").write_text("mine")
    with pytest.raises(RequestError, match="something other than a site"):
        build_bare(tmp_path)
    (site / "thesis.txt").rename(site / ".thesis")
    with pytest.raises(RequestError, match="something other than a site"):
        build_bare(tmp_path)
    (site / ".thesis").unlink()
    build_bare(tmp_path)
    (site / ".git").write_text("mine")
    (site / "docs").mkdir()
    (site / "docs" / "stale.html").write_text("")
    build_bare(tmp_path)
    assert (site / ".git").read_text() == "mine"
    assert not (site / "docs").exists()


@pytest.mark.usefixtures("known")
def test_a_site_interrupted_while_it_is_replaced_can_be_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {path for path in build_bare(tmp_path).rglob("*") if path.is_file()}
    with monkeypatch.context() as patch:
        patch.setattr("bench.report.site.shutil.move", Mock(side_effect=[None, KeyboardInterrupt]))  # after all but the index is removed
        with pytest.raises(KeyboardInterrupt):
            build_bare(tmp_path)
    assert {path for path in build_bare(tmp_path).rglob("*") if path.is_file()} == before


@pytest.mark.usefixtures("known")
def test_without_docs_there_are_runs_and_explorer_alone(
    repository: Path, monkeypatch: pytest.MonkeyPatch, answer: Answer, tmp_path: Path
) -> None:
    monkeypatch.setattr(manual, "REPOSITORY", tmp_path)
    code, _, err = answer("site", repository / "results", "--out", tmp_path / "site")
    assert code == 0
    first, last = err.splitlines()
    assert "no manual and no reports" in first
    assert last.startswith(f"site: {tmp_path / 'site' / INDEX}")
    assert {path.name for path in (tmp_path / "site").iterdir()} == {INDEX, EXPLORER, STYLE, SEARCH, SEARCH_INDEX}
    assert dead_links(tmp_path / "site") == []


@pytest.mark.usefixtures("known")
def test_an_installed_manual_stands_beside_the_users_runs_and_reports(tmp_path: Path) -> None:
    packaged, mine = plant_pages(tmp_path / "packaged"), tmp_path / "mine"
    for name in ("reports", "LICENSE"):
        (packaged / name).rename(tmp_path / name)
    (packaged / "docs" / "part.md").write_text("# Part\n\n![drawn](../reports/theirs/figures/x.svg) [test](../tests/test_x.py)\n")
    (mine / "reports" / OTHER / "figures").mkdir(parents=True)
    (mine / "reports" / OTHER / "figures" / "mine.svg").write_text(DRAWING.format(""))
    (mine / "reports" / OTHER / "report.md").write_text(f"# Other\n\n![](figures/mine.svg) [facts](../../results/{OTHER}/)\n")
    site = write_site(mine / "results", mine / "site", packaged).parent
    assert dead_links(site) == []
    assert "As in the <a>report</a>" in (site / "docs" / "method.html").read_text()
    assert "<p>drawn <a>test</a></p>" in (site / "docs" / "part.html").read_text()
    assert (site / "reports" / OTHER / "figures" / "mine.svg").is_file()
    assert f'<a href="../../{INDEX}#{OTHER}">facts</a>' in (site / "reports" / OTHER / "report.html").read_text()
    assert (site / INDEX).read_text().count("> report</a>") == 1


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of two people of one host and code; bob's machine was busy, carol's records are torn and ann's plan is none of this program."""
    folder = plant_pages(tmp_path_factory.mktemp("shared"))
    people: dict[str, dict[str, Any]] = {"ann": {}, "bob": {"busy_cores": 2.0}, "carol": {}}
    for seed, (person, facts) in enumerate(people.items()):
        stored(folder / "results" / person / NEW, planned(seq="17,65", metrics=METRICS), seed, **facts)
    page = folder / "results" / "bob" / NEW / "report" / "report.md"
    page.parent.mkdir()
    page.write_text("# Of bob\n\n![](figures/x.svg)\n\n<script>steal()</script>\n")
    (page.parent / "figures").mkdir()
    (page.parent / "figures" / "x.svg").write_text(DRAWING.format(""))
    (folder / "results" / "carol" / NEW / RECORDS).write_text("torn\n")
    return folder


def refuse_anns(_: Plan, name: str) -> None:
    if name.startswith("ann/"):
        raise RequestError(f"{name} cannot be run: its cost differs", "write a new one")


def test_runs_of_several_people_say_whose_they_are_and_what_bench_check_does_not_pass(shared: Path) -> None:
    found = {entry.name: entry for entry, _ in entries_of(shared / "results")}
    assert [(name, entry.by, entry.date) for name, entry in found.items()] == [
        (f"{person}/{NEW}", person, "2026-01-02") for person in ("ann", "bob", "carol")
    ]
    site = write_site(shared / "results", shared / "site", shared, refuse_anns).parent
    assert dead_links(site) == []
    rows = {row.partition('"')[0]: row for row in (site / INDEX).read_text().split('<tr id="')[1:]}
    assert all(f"<td>{person}</td>" in rows[f"{person}/{NEW}"] for person in ("ann", "bob", "carol"))
    reasons = {"ann": "all: ann/", "bob": "times: other work took 2 of 2 cores", "carol": "all: "}
    assert all("fails bench check" in row for row in rows.values())
    assert all(text in rows[f"{person}/{NEW}"] for person, text in reasons.items())
    assert "cannot be read" in rows[f"carol/{NEW}"]
    page = (site / "reports" / "bob" / NEW / "report.html").read_text()
    assert f"bench check does not pass bob/{NEW}: other work took 2 of 2 cores" in page
    assert (site / "reports" / "bob" / NEW / "figures" / "x.svg").is_file()
    assert "&lt;script&gt;steal()" in page


def test_a_run_that_bench_check_passes_has_no_mark_and_one_person_no_column(site: Path) -> None:
    text = (site / INDEX).read_text()
    assert "fails bench check" not in text
    assert "by</th>" not in text
    assert "does not pass" not in (site / "reports" / NEW / "report.html").read_text()


def test_times_of_two_people_are_never_joined_and_doubted_ones_are_marked(shared: Path) -> None:
    runs = [(entry, known) for entry, known in entries_of(shared / "results") if known]
    rows = rows_of_all(runs)
    assert dict(zip(rows["run"], rows["timed_by"], strict=True)) == {f"{who}/{NEW}": f"timed as in {who}/{NEW}" for who in ("ann", "bob")}
    assert set(rows["host"]) == {"zen 4, 2 cores"}
    assert set(data_of(runs)["notes"]) == {"", "bench check doubts times"}


def test_a_folder_without_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="there is no folder"):
        write_site(tmp_path / "nowhere", tmp_path / "site", tmp_path)
    assert not (tmp_path / "site").exists()
