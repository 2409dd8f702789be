"""Write the site: the index of all runs, the explorer over their rows, the manual, and a search over all pages, as static files."""

from __future__ import annotations

import posixpath
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from bench.files import write_text_below, writing
from bench.report import manual
from bench.report.all_runs import explorer_of
from bench.report.html import packed, source, template
from bench.report.manual import INDEX, Manual
from bench.report.result_index import Entry, doubt, entries_of
from bench.spec import Plan, RequestError

EXPLORER, STYLE, SEARCH, SEARCH_INDEX = "explorer.html", "style.css", "search.js", "search-index.js"
MARK = 'name="generator" content="bench site"'
"""Text of the index of every site, whose folder may therefore be written again."""
PLACES = {INDEX: "Runs", EXPLORER: "Explorer"}


def write_site(results: Path, out: Path, repository: Path, check: Callable[[Plan, str], None] | None = None) -> Path:
    """Write the site of all runs into a folder; return its index.

    `repository`: holds README.md, CONTRIBUTING.md and docs/; without them the site has no manual and no reports. Reports are those beside the
    folder of the runs, else those in the runs' own folders.
    `check`: raises RequestError for a plan, of a run with this name, that this program would not measure.

    A site that the folder holds is replaced, but for files whose names begin with a dot. Raises RequestError if the folder holds anything else or
    cannot be written, if the runs cannot be read, or if a page has a dead link.
    """
    _require_own(out)
    runs = [(_checked(entry, known.plan, check) if known and check else entry, known) for entry, known in entries_of(results)]
    entries, explored = [entry for entry, _ in runs], [(entry, known) for entry, known in runs if known]
    found = Manual(pages={}, files={}, entries={})
    if manual.is_in(repository):
        addresses = {entry.name: f"{INDEX}#{entry.name}" for entry in entries}
        home = results.resolve().parent
        found = manual.read(repository, home, addresses, {entry.report: _report(entry, results, home) for entry in entries})
    places = {**PLACES, **(manual.PLACES if found.pages else {})}
    data = explorer_of(explored)
    pages = {
        INDEX: _index(entries, found, [entry.name for entry, _ in explored] if data else [], places, own=_are_own(results, repository)),
        EXPLORER: template("site/explorer.html").render(data=data, base_url=".", places=places, here=EXPLORER),
        STYLE: source("page.css") + source("site.css"),
        SEARCH: source("search.js") + source("unpack.js"),
        SEARCH_INDEX: f'const PARTS = "{packed([*_parts_of_manual(found), *_parts_of_runs(entries)])}";\n',
        **_manual_pages(found, places, entries),
    }
    with writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as folder:
            built = Path(folder)
            for place, text in pages.items():
                write_text_below((built / place).parent, posixpath.basename(place), text)
            for place, path in found.files.items():
                (built / place).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, built / place)
            _replace(out, built)
    return out / INDEX


def _checked(entry: Entry, plan: Plan, check: Callable[[Plan, str], None]) -> Entry:
    try:
        check(plan, entry.name)
    except RequestError as error:
        return replace(entry, doubts=(doubt(error), *entry.doubts))
    return entry


def _report(entry: Entry, results: Path, home: Path) -> Path:
    beside = home / manual.REPORTS / entry.report
    return beside if beside.is_dir() else results / entry.name / "report"


def num_bytes(site: Path) -> int:
    """Return the size of all files of a site."""
    return sum(path.stat().st_size for path in site.rglob("*") if path.is_file())


def _are_own(results: Path, repository: Path) -> bool:
    """Return whether the runs are those that README's findings are about."""
    return results.resolve() == (repository / "results").resolve()


def _index(entries: Sequence[Entry], found: Manual, explored: Collection[str], places: Mapping[str, str], *, own: bool) -> str:
    newest = sorted(entries, key=lambda entry: (entry.date, entry.name), reverse=True)
    reports = {entry.name: manual.address(f"reports/{entry.report}/report.md") for entry in newest}
    return template("site/index.html").render(
        entries=newest,
        reports={name: page for name, page in reports.items() if page in found.pages},
        explored=explored,
        opening=found.pages[manual.README_PAGE].opening if found.pages and own else "",
        base_url=".",
        places=places,
        here=INDEX,
    )


def _manual_pages(found: Manual, places: Mapping[str, str], entries: Sequence[Entry]) -> dict[str, str]:
    frame = template("site/manual.html")
    doubted: dict[str, list[Entry]] = {}
    for entry in entries:
        if entry.doubts:
            doubted.setdefault(manual.address(f"reports/{entry.report}/report.md"), []).append(entry)
    return {
        place: frame.render(
            page=page,
            doubted=doubted.get(place, ()),
            entries=found.entries,
            base_url=posixpath.relpath(".", posixpath.dirname(place) or "."),
            places=places,
            here=place,
        )
        for place, page in found.pages.items()
    }


def _parts_of_manual(found: Manual) -> Iterator[tuple[str, str, str, str]]:
    """Return what the search finds: address, page, heading unless it is the page's title, and text."""
    for place, page in found.pages.items():
        for part in page.parts:
            heading, end = ("", "") if part.heading in ("", page.title) else (part.heading, f"#{part.anchor}")
            if part.heading or part.texts:
                yield (f"{place}{end}", page.title, heading, " ".join(part.texts))


def _parts_of_runs(entries: Sequence[Entry]) -> Iterator[tuple[str, str, str, str]]:
    return ((f"{INDEX}#{entry.name}", "Runs", entry.name, f"{entry.question} {entry.answer} {entry.host}") for entry in entries)


def _require_own(out: Path) -> None:
    index = out / INDEX
    is_site = index.is_file() and MARK in index.read_text(encoding="utf-8", errors="replace")
    if out.exists() and not is_site and (not out.is_dir() or any(out.iterdir())):
        raise RequestError(f"{out} holds something other than a site", "choose another `out`")


def _replace(out: Path, built: Path) -> None:
    """Replace the site in `out`. Its index comes first and always exists, so that the folder is a site's even after an interrupt."""
    out.mkdir(exist_ok=True)
    shutil.move(built / INDEX, out / INDEX)
    for old in (old for old in out.iterdir() if old.name != INDEX and not old.name.startswith(".")):
        if old.is_dir() and not old.is_symlink():
            shutil.rmtree(old)
        else:
            old.unlink()
    for new in built.iterdir():
        shutil.move(new, out / new.name)
