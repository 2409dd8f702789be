"""What git tracks stays small, and every relative link in its Markdown leads to a tracked file, and to a heading that is there."""

from __future__ import annotations

import lzma
import re
import subprocess
from collections import Counter
from pathlib import Path, PurePosixPath
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"""(?<!`)\]\(<?([^)<>\s]+)>?\)|\b(?:src|srcset|href)="([^"]+)\"""")
HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
MEGABYTE = 1_000_000
BUILT = (".parquet", "table.json", "report.html", "records.jsonl", "effects.json")
"""What is built again, or packed."""
OF_A_MACHINE = re.compile(r"--(?:out|data-root) /\S*|/(?:tmp|home|root|work)/\S*")
"""Paths that mean nothing to whoever repeats a command."""


@pytest.fixture(scope="module")
def tracked() -> dict[str, int]:
    """Sizes by path; skipped where the tests run outside of git."""
    if not (ROOT / ".git").exists():
        pytest.skip("this is no git checkout: what is tracked is not known")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    return {name: (ROOT / name).stat().st_size for name in listed.stdout.split("\0") if name and (ROOT / name).exists()}


def dead_links(text: str, page: str, known: set[str]) -> list[str]:
    """Relative links of a page that lead to nothing known or to a missing heading; a folder is known by what is in it."""
    found = []
    for link in (first or second for first, second in LINK.findall(FENCED.sub("", text))):
        target, _, anchor = unquote(link).partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        path = ((ROOT / page).parent / target).resolve() if target else ROOT / page
        name = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else "elsewhere"
        if name not in known or (anchor and anchor not in anchors(path.read_text(encoding="utf-8") if target else text)):
            found.append(link)
    return found


def anchors(text: str) -> set[str]:
    """The anchors that GitHub gives the headings of a page."""
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in HEADING.findall(text)}


def test_tracked_files_keep_to_their_limits(tracked: dict[str, int]) -> None:
    sizes: Counter[str] = Counter()
    for name, size in tracked.items():
        sizes[PurePosixPath(name).parts[0]] += size
    assert 0 < sizes["reports"] <= 3 * MEGABYTE
    assert 0 < sizes["results"] <= 11 * MEGABYTE
    assert sizes.total() - sizes["results"] <= 7 * MEGABYTE


def test_nothing_that_can_be_built_again_is_tracked(tracked: dict[str, int]) -> None:
    stored = [name for name in tracked if name.startswith(("results/", "reports/")) and name.endswith(BUILT)]
    assert not stored


def test_no_stored_command_names_a_path_of_the_machine_that_ran_it(tracked: dict[str, int]) -> None:
    plans = [name for name in tracked if name.startswith("results/") and name.endswith("plan.json.xz")]
    verdicts = [name for name in tracked if name.startswith("reports/") and name.endswith("verdicts.json")]
    assert len(plans) > 20
    assert len(verdicts) > 10
    texts = {name: lzma.decompress((ROOT / name).read_bytes()).decode() for name in plans}
    texts |= {name: (ROOT / name).read_text(encoding="utf-8") for name in verdicts}
    assert not {name: found for name, text in texts.items() if (found := OF_A_MACHINE.findall(text))}


def test_every_link_leads_to_a_tracked_file(tracked: dict[str, int]) -> None:
    known = {*tracked, *(parent.as_posix() for name in tracked for parent in PurePosixPath(name).parents)}
    pages = [name for name in tracked if name.endswith(".md")]
    assert len(pages) > 20
    dead = {page: found for page in pages if (found := dead_links((ROOT / page).read_text(encoding="utf-8"), page, known))}
    assert not dead


def test_a_dead_link_is_seen() -> None:
    text = """# A `b`: c
[a](../README.md#gmlp-bench) [b](nowhere.md) ![c](figures/d.png) [e](https://e.org/f) [g](#here) [k](#a-b-c) [l](../README.md#m)
<img src="n.svg">
```
[h](i.md)
```
[j](/etc/hosts)"""
    dead = ["nowhere.md", "figures/d.png", "#here", "../README.md#m", "n.svg", "/etc/hosts"]
    assert dead_links(text, "docs/log.md", {"README.md", "docs/log.md"}) == dead
