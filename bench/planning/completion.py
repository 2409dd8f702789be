"""Complete words of the command line for the shell. Imports no torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from bench import catalog
from bench.spec import PLAN

RESULTS = Path("results")


def plugins(kind: str) -> Callable[[str], list[str]]:
    """Return a completer of names of plugins of a kind, also in a list."""

    def complete(incomplete: str) -> list[str]:
        return _entries(incomplete, catalog.names(kind))

    return complete


def words(allowed: Iterable[str]) -> Callable[[str], list[str]]:
    """Return a completer of the words that a flag allows, also in a list."""
    names = tuple(allowed)

    def complete(incomplete: str) -> list[str]:
        return _entries(incomplete, names)

    return complete


def kinds(incomplete: str) -> list[str]:
    """Complete kinds of plugins."""
    return _entries(incomplete, catalog.FOLDERS)


def models(incomplete: str) -> list[str]:
    """Complete families and published variants, also in a list."""
    return _entries(incomplete, (*catalog.names("families"), *catalog.variants()))


def runs(incomplete: str) -> list[str]:
    """Complete folders of runs below results/; elsewhere the shell completes paths."""
    folders = sorted({str(plan.parent) for plan in RESULTS.glob(f"*/{PLAN}*")})
    return [folder for folder in folders if folder.startswith(incomplete)]


def _entries(incomplete: str, names: Iterable[str]) -> list[str]:
    """Complete the last entry of a comma-separated list."""
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in names if name.startswith(last)]
