"""A small repository with planted runs, and the site built from it."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from bench.report.site import write_site
from tests.planted_runs import planned, stored

OLD, NEW, OTHER = "2026-01-01_cpu_old", "2026-01-02_cpu_new", "2026-01-03_cpu_other"
METRICS = "params,flops,latency"
FILES = {
    "README.md": "# Example\n\n[new](results/2026-01-02_cpu_new/), [all](results/README.md), [licence](LICENSE), [manual](docs/README.md)\n\n"
    "## Set up\n",
    "LICENSE": "",
    "CONTRIBUTING.md": "# Contributing\n",
    "docs/README.md": "# The manual\n\n| page | answers |\n|---|---|\n| [method](method.md) | How? |\n| · [part](part.md) | What? |\n"
    "| [contributing](../CONTRIBUTING.md) | And I? |\n",
    "docs/method.md": "# Method\n\nAs in the [report](../reports/2026-01-02_cpu_new/report.md), in [n²](#in-n²).\n\n## In n²\n\n"
    "<!--=mark-->\n| a | b |\n|---|---|\n| <!--=x-->1<!--/--> | 2 |\n<!--/-->\n\n## In n²\n\nAgain.\n",
    "docs/part.md": "# Part\n\nOf [method](method.md#in-n²).\n",
    f"reports/{NEW}/report.md": "# New\n\n![figure](figures/shown.png)\n",
    f"reports/{NEW}/figures/shown.png": "",
    f"reports/{NEW}/figures/left_out.png": "",
}


def plant(folder: Path) -> Path:
    """A repository with three runs: an older one, one of like host and newer code, one of another host and a longer n."""
    results = plant_pages(folder) / "results"
    stored(results / OLD, planned(seq="17,65", metrics=METRICS), 1, work_version="w0")
    stored(results / NEW, planned(seq="17,65", metrics=METRICS), 2)
    stored(results / OTHER, planned(seq="257", metrics=METRICS), 3, cpu_type="zen 3")
    return folder


def plant_pages(folder: Path) -> Path:
    """The same repository without its runs."""
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def build(repository: Path) -> Path:
    """The folder of the site of a planted repository."""
    return write_site(repository / "results", repository / "site", repository).parent


class Page(HTMLParser):
    """Anchors and links of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.anchors |= {value for name, value in attrs if name == "id" and value}
        links = [value for name, value in attrs if name in ("href", "src", "srcset") and value]
        # what a reader may follow to another site is not the site's own; what a page would load from there is dead
        self.links += [link for link in links if not (tag == "a" and link.startswith("https://"))]


def dead_links(site: Path) -> list[str]:
    """Links of the site, as `PAGE: LINK`, that lead to no file or anchor in it. What follows # of the explorer is its state."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in site.resolve().rglob("*.html")}
    found = []
    for path, page in pages.items():
        for link in page.links:
            address = urlsplit(link)
            target = (path.parent / unquote(address.path)).resolve() if address.path else path
            anchors = pages[target].anchors if target in pages and target.name != "explorer.html" else None
            if not target.is_file() or (address.fragment and anchors is not None and unquote(address.fragment) not in anchors):
                found.append(f"{path.relative_to(site.resolve())}: {link}")
    return found
