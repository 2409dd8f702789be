"""Build the manual with MkDocs: README, CONTRIBUTING, docs/ and the reports, as pages of the site.

Pages lie in the site as their sources lie in the repository, so most links hold as they are.
"""

from __future__ import annotations

import importlib.util
import logging
import posixpath
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.reading.store import report_folder
from bench.report.html import TEMPLATES
from bench.spec import RequestError

REPOSITORY = Path(__file__).parents[2]
THEME = TEMPLATES / "site"
INSTALL = "pip install 'gmlp-bench[site]'"
README, CONTRIBUTING, HOME = "README.md", "CONTRIBUTING.md", "docs/README.md"
README_PAGE = "readme.html"
"""The index of the site is that of the runs."""
PLACES = {"docs/index.html": "Manual", README_PAGE: "Readme"}
RESULTS_PAGE = "results/README.md"
ENTRY = re.compile(r"^\| (?P<depth>· )?\[(?P<title>[^\]]+)\]\((?P<target>[^)]+)\) \|", re.MULTILINE)
"""A row of the manual's table of pages."""
LINK = re.compile(r"(?<![!`])\[(?P<text>(?:[^\[\]]|\[[^\]]*\])*)\]\((?P<target>[^)\s]+)\)")
IMAGE = re.compile(r"!\[[^\]]*\]\(([^)\s]+)\)")
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
"""Marks of generated numbers, which would end a table."""


def is_in(repository: Path) -> bool:
    """Return whether the folder holds the manual."""
    return all((repository / page).is_file() for page in (README, CONTRIBUTING, HOME))


def require_mkdocs() -> None:
    """Raise RequestError if MkDocs is not installed."""
    if importlib.util.find_spec("mkdocs") is None:
        raise RequestError("the manual of the site needs the package mkdocs", INSTALL)


def sources_of(repository: Path, runs: Sequence[Path]) -> dict[str, Path]:
    """Return the files of the manual by their place in the site: pages, figures of docs/, and reports of runs with the figures that they show."""
    found = {name: repository / name for name in (README, CONTRIBUTING)}
    found |= {path.relative_to(repository).as_posix(): path for path in sorted((repository / "docs").rglob("*")) if path.is_file()}
    for run in runs:
        for page in sorted(report_folder(run).glob("*.md")):
            place = posixpath.dirname(report_page(run.name))
            shown = [page.parent / name for name in IMAGE.findall(page.read_text(encoding="utf-8"))]
            found |= {f"{place}/{path.relative_to(page.parent).as_posix()}": path for path in (page, *shown) if path.is_file()}
    return found


def report_page(run: str) -> str:
    """Return the place of a run's report among the sources."""
    return f"reports/{run}/report.md"


def address(source: str) -> str:
    """Return the address of a page in the site."""
    if source == README:
        return README_PAGE
    folder, name = posixpath.split(source)
    return posixpath.join(folder, "index.html" if name == README else name.removesuffix(".md") + ".html")


def build(
    repository: Path,
    target: Path,
    sources: Mapping[str, Path],
    pages: Mapping[str, str],
    runs: Mapping[str, str],
    places: Mapping[str, str],
) -> None:
    """Build the manual of a repository into a folder.

    `sources`: as returned by `sources_of`.
    `pages`: other pages of the site, which links may lead to.
    `runs`: the address in the site of every run.
    `places`: the pages that every page leads to, with their titles.

    Raises RequestError for any warning of MkDocs, such as a link to a missing page or heading.
    """
    from mkdocs.commands.build import build as build_pages
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.plugins import BasePlugin
    from mkdocs.structure.files import File, Files

    class Repository(BasePlugin):  # type: ignore[type-arg,no-untyped-call]
        """Hands the files of the repository to MkDocs."""

        def on_files(self, files: Files, *, config: MkDocsConfig) -> Files:
            for place, path in sources.items():
                file = File.generated(config, place, abs_src_path=str(path))
                if place.endswith(".md"):
                    file.dest_uri = address(place)
                files.append(file)
            for name, text in pages.items():
                files.append(File.generated(config, name, content=text))
            return files

        def on_page_markdown(self, markdown: str, *, page: Any, **_: Any) -> str:
            return adapted(markdown, page.file.src_uri, repository, known={*sources, *pages}, runs=runs)

        def on_page_context(self, context: Any, *, page: Any, **_: Any) -> Any:
            return context | {"places": places, "here": page.file.dest_uri}

    with tempfile.TemporaryDirectory() as empty, _Warnings() as warned:
        config = MkDocsConfig()
        config.load_dict(_settings(Path(empty), target, sources[HOME].read_text(encoding="utf-8")))
        wrong, _ = config.validate()
        if wrong:
            raise RequestError(f"MkDocs rejects its settings: {wrong[0][1]}", INSTALL)
        config.theme.static_templates, config.theme.dirs = set(), [str(THEME)]  # without MkDocs' own map of the site
        config.plugins["repository"] = Repository()
        build_pages(config)
    if warned.messages:
        raise RequestError(f"MkDocs warns of the manual: {warned.messages[0]}", "correct the page")


def opening(repository: Path, known: set[str], runs: Mapping[str, str]) -> str:
    """Return README's first lines, up to its second heading, as HTML for the index of the site; `known`, `runs`: see `adapted`."""
    from markdown import markdown  # type: ignore[import-untyped]

    text = (repository / README).read_text(encoding="utf-8").partition("\n## ")[0]

    def to_page(link: re.Match[str]) -> str:
        place, mark, anchor = link["target"].partition("#")
        return f"[{link['text']}]({address(place) if place.endswith('.md') else place}{mark}{anchor})"

    html: str = markdown(LINK.sub(to_page, adapted(text, README, repository, known=known, runs=runs)))
    return html


def adapted(markdown: str, page: str, repository: Path, *, known: set[str], runs: Mapping[str, str]) -> str:
    """Return a page's Markdown for the site.

    Links to folders of runs lead to the index of runs. Links to what only the repository holds become plain text.

    `page`: its place among the sources.
    `known`: places that links may lead to.
    `runs`: the address of every run.
    """
    folder = posixpath.dirname(page)

    def adapt(link: re.Match[str]) -> str:
        target = link["target"].partition("#")[0]
        place = posixpath.normpath(posixpath.join(folder, target))
        if not target or ":" in target or place in known:
            return link[0]
        top, _, run = place.partition("/")
        found = "index.html" if place == RESULTS_PAGE else runs.get(run.partition("/")[0]) if top == "results" else None
        if found:
            return f"[{link['text']}]({posixpath.relpath(found, folder or '.')})"
        return link["text"] if (repository / place).exists() else link[0]

    return LINK.sub(adapt, COMMENT.sub("", markdown))


def heading_anchor(text: str, separator: str) -> str:
    """Return the anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", separator)


def _settings(empty: Path, target: Path, home: str) -> dict[str, Any]:
    entries = [(f"{entry['depth'] or ''}{entry['title']}", posixpath.normpath(f"docs/{entry['target']}")) for entry in ENTRY.finditer(home)]
    return {
        "site_name": "gmlp-bench",
        "docs_dir": str(empty),
        "site_dir": str(target),
        "use_directory_urls": False,
        "theme": {"name": None, "custom_dir": str(THEME)},
        "plugins": [],
        "nav": [{"all pages": HOME}, *({title: place} for title, place in entries)],
        "markdown_extensions": ["tables", "fenced_code", "sane_lists", {"toc": {"slugify": heading_anchor}}],
        "validation": {
            "nav": {"omitted_files": "ignore", "not_found": "warn"},
            "links": {"not_found": "warn", "anchors": "warn", "unrecognized_links": "warn", "absolute_links": "warn"},
        },
    }


class _Warnings(logging.Handler):
    """Collects the warnings of MkDocs within its context."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())

    def __enter__(self) -> _Warnings:
        logging.getLogger("mkdocs").addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger("mkdocs").removeHandler(self)
