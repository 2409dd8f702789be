"""Two revisions of this repository, side by side: by git worktrees that are gone afterwards. Imports no torch."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import bench
from bench.spec import RequestError

OWN_FOLDER = Path(bench.__file__).resolve().parents[1]
"""The folder that holds the packages which run here."""
PACKAGES = ("bench", "models", "ablations")
PROTOCOL = "bench/running/turns.py"
"""A revision without this file cannot take turns."""
WORKING_TREE = "."
SHORT = 10
QUIET = ("-c", f"core.hooksPath={os.devnull}", "-c", "advice.detachedHead=false")


@dataclass(frozen=True, kw_only=True)
class Revision:
    """A commit under the `name` that was asked for. `dirty`: the packages in the working tree differ from it, and are what is measured."""

    name: str
    commit: str
    dirty: bool = False

    @property
    def short(self) -> str:
        return f"{self.commit[:SHORT]}{'.dirty' if self.dirty else ''}"


def find_revision(name: str, repository: Path = OWN_FOLDER) -> Revision:
    """Resolve a revision; `.` is the working tree as it is. Raises RequestError for a revision that is unknown or cannot take turns."""
    if not (repository / ".git").exists():
        raise RequestError(f"{repository} is not a git checkout, so it has no revisions", "run bench from a clone of the repository")
    in_tree = name == WORKING_TREE
    commit = _git(repository, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{'HEAD' if in_tree else name}^{{commit}}")
    if not commit:
        raise RequestError(f"{name!r} is not a revision of {repository}", "name a commit, branch or tag, or . for the working tree")
    if in_tree:
        return Revision(name=name, commit=commit, dirty=bool(_git(repository, "status", "--porcelain", "--", *PACKAGES)))
    if _git(repository, "cat-file", "-e", f"{commit}:{PROTOCOL}") is None:
        raise RequestError(f"revision {name} has no {PROTOCOL}, which measures it", _first_that_can(repository))
    return Revision(name=name, commit=commit)


@contextlib.contextmanager
def checked_out(revisions: Sequence[Revision], repository: Path = OWN_FOLDER) -> Iterator[list[Path]]:
    """Yield a folder with the code of each revision. The working tree is copied, so that edits while it is measured change nothing."""
    with contextlib.ExitStack() as stack:
        stack.callback(_git, repository, "worktree", "prune")
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gmlp-bench-code-", ignore_cleanup_errors=True)))
        trees = [folder / str(place) for place in range(len(revisions))]
        for revision, tree in zip(revisions, trees, strict=True):
            if revision.name == WORKING_TREE:
                _copy_packages(repository, tree)
                continue
            stack.callback(_remove_worktree, repository, tree)
            if _git(repository, *QUIET, "worktree", "add", "--detach", str(tree), revision.commit) is None:
                raise RequestError(f"git cannot check out {revision.name} to {tree}", f"try: git worktree add --detach DIR {revision.name}")
        yield trees


def _remove_worktree(repository: Path, tree: Path) -> None:
    """Remove a worktree, even one whose making was cut short, which git keeps locked."""
    _git(repository, "worktree", "unlock", str(tree))
    _git(repository, "worktree", "remove", "--force", str(tree))


def _copy_packages(repository: Path, tree: Path) -> None:
    for package in PACKAGES:
        shutil.copytree(repository / package, tree / package, ignore=shutil.ignore_patterns("__pycache__"))


def _first_that_can(repository: Path) -> str:
    added = (_git(repository, "log", "--diff-filter=A", "--reverse", f"--abbrev={SHORT}", "--format=%h", "--", PROTOCOL) or "").split()
    return f"the first revision that can be measured is {added[0]}" if added else "no revision before the working tree can be measured"


def _git(repository: Path, *arguments: str) -> str | None:
    """Return what git prints, None where it fails. Variables of git's own, as of a hook that started this process, would name another repository."""
    command = ["git", "-c", f"safe.directory={repository}", "-C", str(repository), *arguments]
    variables = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        # a group of its own keeps a terminal's signals from it
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=variables, process_group=0)
    except FileNotFoundError as error:
        raise RequestError("git is not installed", "install git, which checks the revisions out") from error
    except subprocess.CalledProcessError:
        return None
    return done.stdout.strip()
