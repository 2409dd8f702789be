"""Turn README, CONTRIBUTING, docs/ and the reports into pages of the site.

Pages lie in the site as their sources lie in the repository, and their links are those that work on a git host. A wheel holds the manual too: its
build copies it into the package (`setup.py`).
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup

from bench.report.drawing import require_drawing
from bench.spec import RequestError

REPOSITORY = packaged if (packaged := Path(__file__).parents[1] / "manual").is_dir() else Path(__file__).parents[2]
"""Holds the manual: a folder of the installed package, else the clone."""
README, CONTRIBUTING, HOME = "README.md", "CONTRIBUTING.md", "docs/README.md"
INDEX, README_PAGE = "index.html", "readme.html"
"""The index of the site is that of the runs."""
PLACES = {"docs/index.html": "Manual", README_PAGE: "Readme"}
RESULTS_PAGE = "results/README.md"
DOCS, REPORTS = "docs/", "reports/"
"""Folders whose files the site holds as far as pages show them or link to them."""
SVG = ".svg"
REPORT_FILES = (".png", ".jpg", ".json", ".csv")
"""What else a report may show or link to, which no browser runs."""
ENTRY = re.compile(r"^\| (?P<depth>· )?\[(?P<title>[^\]]+)\]\((?P<target>[^)]+)\)", re.MULTILINE)
"""A row of the manual's table of pages."""
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
"""Marks of generated numbers."""
NOT_READ = ("html_inline", "image")
"""A picture's words are those of the text about it."""
MARKDOWN = MarkdownIt("commonmark").enable("table")
TEXT_ALONE = MarkdownIt("commonmark", {"html": False}).enable("table")
"""For reports, which others may have written: HTML in them is shown as text."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """A heading of a page and the texts below it.

    `anchor`: of the heading, as on GitHub; it and the heading are "" for what stands before the first one.
    """

    anchor: str
    heading: str
    texts: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Page:
    """A page of the manual.

    `tokens`: its Markdown, parsed.
    """

    tokens: Sequence[Token]
    parts: Sequence[Part]

    @property
    def title(self) -> str:
        return next((part.heading for part in self.parts if part.heading), "")

    @property
    def anchors(self) -> set[str]:
        return {part.anchor for part in self.parts}

    @property
    def content(self) -> Markup:
        return _html(self.tokens)

    @property
    def opening(self) -> Markup:
        """What stands before the second heading."""
        headings = [place for place, token in enumerate(self.tokens) if token.type == "heading_open"]
        return _html(self.tokens[: headings[1] if len(headings) > 1 else None])


@dataclass(frozen=True, kw_only=True)
class Manual:
    """The pages by address, the files that they show or link to by place, and the titles of the entries by address."""

    pages: Mapping[str, Page]
    files: Mapping[str, Path]
    entries: Mapping[str, str]


def is_in(repository: Path) -> bool:
    """Return whether the folder holds the manual."""
    return all((repository / page).is_file() for page in (README, CONTRIBUTING, HOME))


def read(repository: Path, home: Path, runs: Mapping[str, str], reports: Mapping[str, Path]) -> Manual:
    """Read the manual of a repository, and reports.

    `home`: holds the folder reports/.
    `runs`: the address in the site of every run, which links to its folder lead to.
    `reports`: the folders of the reports that are pages, by name.

    A link to what the site does not hold becomes plain text, such as one into tests/, and so does a picture. Of reports, which others may have
    written, it holds pictures and data, and nothing that a link of the file system leads to outside of the report. Raises RequestError for a link to
    a missing page or file of docs/, or to a missing heading of any page, and for a report's picture that could run code.
    """
    folders = {DOCS: repository / DOCS, **{f"{REPORTS}{name}/": folder for name, folder in reports.items()}}
    below = {
        f"{at}{path.relative_to(folder).as_posix()}": path
        for at, folder in folders.items()
        for path in sorted(folder.rglob("*.md"))
        if _is_inside(path, folder)
    }
    paths = {README: repository / README, CONTRIBUTING: repository / CONTRIBUTING, **below}
    pages = {
        source: _parsed(path.read_text(encoding="utf-8"), TEXT_ALONE if source.startswith(REPORTS) else MARKDOWN)
        for source, path in paths.items()
    }
    known = {f"results/{run}": place for run, place in runs.items()} | {RESULTS_PAGE: INDEX} | {source: address(source) for source in pages}
    files: dict[str, Path] = {}
    for source, page in pages.items():
        for token, key in _links(page.tokens):
            link = str(token.attrs.pop(key))
            place, anchor = _place(link, source)
            at = next((at for at in folders if place.startswith(at)), "")
            path = folders[at] / place.removeprefix(at) if at else (home if place.startswith(REPORTS) else repository) / place
            found = known.get(place) or known.get("/".join(place.split("/")[:2]))
            is_dead = not found and place.startswith(DOCS) and not path.exists()
            if is_dead or (anchor and place in pages and anchor not in pages[place].anchors):
                raise RequestError(f"{source} links to {unquote(link)}, which is not there", "correct the link")
            if not found and _is_held(place, path) and _is_inside(path, folders.get(at, path.parent)):
                found, files[place] = place, path
            if found:
                end = f"#{anchor}" if place in pages and anchor else ""
                token.attrs[key] = posixpath.relpath(found, posixpath.dirname(source) or ".") + end
            elif token.type == "image":
                token.type = "text"
    for place, path in files.items():
        if place.startswith(REPORTS) and path.suffix == SVG:
            require_drawing(path)
    rows = ENTRY.finditer((repository / HOME).read_text(encoding="utf-8"))
    entries = {HOME: "all pages"} | {_place(row["target"], HOME)[0]: f"{row['depth'] or ''}{row['title']}" for row in rows}
    return Manual(
        pages={address(source): page for source, page in pages.items()},
        files=files,
        entries={address(source): title for source, title in entries.items()},
    )


def _is_held(place: str, path: Path) -> bool:
    """Return whether the site holds a file that is no page."""
    is_there = path.is_file() and path.suffix != ".md"
    return is_there and (place.startswith(DOCS) or (place.startswith(REPORTS) and path.suffix in (SVG, *REPORT_FILES)))


def _is_inside(path: Path, folder: Path) -> bool:
    return path.resolve().is_relative_to(folder.resolve())


def address(source: str) -> str:
    """Return the address of a page in the site."""
    if source == README:
        return README_PAGE
    folder, name = posixpath.split(source)
    return posixpath.join(folder, INDEX if name == README else name.removesuffix(".md") + ".html")


def heading_anchor(text: str) -> str:
    """Return the anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")


def _parsed(markdown: str, by: MarkdownIt) -> Page:
    """Parse a page, and give its headings their anchors."""
    tokens, seen = by.parse(COMMENT.sub("", markdown)), Counter[str]()
    parts, heading = [Part(anchor="", heading="")], None
    for token in tokens:
        text = " ".join(_text(token).split())
        if heading:
            anchor = heading_anchor(text)
            heading.attrs["id"] = name = f"{anchor}-{seen[anchor]}" if seen[anchor] else anchor
            seen[anchor] += 1
            parts.append(Part(anchor=name, heading=text))
        elif text:
            parts[-1].texts.append(text)
        heading = token if token.type == "heading_open" else None
    return Page(tokens=tokens, parts=parts)


def _text(token: Token) -> str:
    """Return what a reader sees of a block."""
    if token.type in ("fence", "code_block"):
        return token.content
    return "".join(" " if child.type == "softbreak" else child.content for child in token.children or () if child.type not in NOT_READ)


def _links(tokens: Sequence[Token]) -> Iterator[tuple[Token, str]]:
    """Return what leads to another place of the repository, each with the attribute that says where."""
    for child in (child for token in tokens for child in token.children or ()):
        key = {"link_open": "href", "image": "src"}.get(child.type)
        if key and not urlsplit(str(child.attrs[key])).scheme:
            yield child, key


def _place(link: str, source: str) -> tuple[str, str]:
    """Return the place in the repository that a link of a page leads to, and the anchor there."""
    parts = urlsplit(unquote(link))
    return (posixpath.normpath(posixpath.join(posixpath.dirname(source), parts.path)) if parts.path else source), parts.fragment


def _html(tokens: Sequence[Token]) -> Markup:
    return Markup(MARKDOWN.renderer.render(tokens, MARKDOWN.options, {}))
