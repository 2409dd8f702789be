"""Resolve revisions of this repository and check them out side by side.

Checkouts are temporary git worktrees. Imports no torch.
"""

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
"""The folder of the packages that this process runs."""
PACKAGES = ("bench", "models", "ablations")
PROTOCOL = "bench/running/turns.py"
"""The file that measures a revision; required in every measured revision."""
WORKING_TREE = "."
SHORT = 10
QUIET = ("-c", f"core.hooksPath={os.devnull}", "-c", "advice.detachedHead=false")


@dataclass(frozen=True, kw_only=True)
class Revision:
    """A commit to measure.

    `name`: as the user gave it; `.` is the working tree.
    `dirty`: packages in the working tree differ from the commit; the working tree is measured.
    """

    name: str
    commit: str
    dirty: bool = False

    @property
    def short(self) -> str:
        return f"{self.commit[:SHORT]}{'.dirty' if self.dirty else ''}"


_TREES: dict[str, Path] = {}
"""The folders with the code of checked-out revisions, by `Revision.short`."""


def tree_of(code: str) -> Path:
    """Return the folder with a revision's code; raises RequestError unless it is checked out."""
    if code not in _TREES:
        raise RequestError(f"the code of {code} is not checked out", "repeat the command that made this run: bench diff --code")
    return _TREES[code]


def find_revision(name: str, repository: Path = OWN_FOLDER) -> Revision:
    """Resolve a revision; `.` is the working tree.

    Raises RequestError if the repository is not a git checkout, the revision is unknown, or it lacks PROTOCOL.
    """
    if not (repository / ".git").exists():
        raise RequestError(
            f"{repository} is not a git checkout, so its revisions cannot be compared", "run bench from a clone of the repository"
        )
    in_tree = name == WORKING_TREE
    commit = _git(repository, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{'HEAD' if in_tree else name}^{{commit}}")
    if not commit:
        raise RequestError(f"{name!r} is not a revision of {repository}", "give a commit, branch or tag, or . for the working tree")
    if in_tree:
        return Revision(name=name, commit=commit, dirty=bool(_git(repository, "status", "--porcelain", "--", *PACKAGES)))
    if _git(repository, "cat-file", "-e", f"{commit}:{PROTOCOL}") is None:
        raise RequestError(f"revision {name} has no {PROTOCOL}, which is needed to measure it", _hint_of_first_measurable(repository))
    return Revision(name=name, commit=commit)


@contextlib.contextmanager
def checked_out(revisions: Sequence[Revision], repository: Path = OWN_FOLDER) -> Iterator[None]:
    """Keep a folder with the code of each revision, which `tree_of` returns.

    The working tree is copied, so that edits during the measurement have no effect. Raises RequestError if git cannot check one out.
    """
    with contextlib.ExitStack() as stack:
        stack.callback(_git, repository, "worktree", "prune")
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gmlp-bench-code-", ignore_cleanup_errors=True)))
        stack.callback(_TREES.clear)
        for place, revision in enumerate(revisions):
            tree = _TREES[revision.short] = folder / str(place)
            if revision.name == WORKING_TREE:
                for package in PACKAGES:
                    shutil.copytree(repository / package, tree / package, ignore=shutil.ignore_patterns("__pycache__"))
                continue
            stack.callback(_git, repository, "worktree", "remove", "--force", str(tree))
            stack.callback(_git, repository, "worktree", "unlock", str(tree))  # first: an interrupted creation leaves it locked
            if _git(repository, *QUIET, "worktree", "add", "--detach", str(tree), revision.commit) is None:
                raise RequestError(f"git cannot check out {revision.name} to {tree}", f"try: git worktree add --detach DIR {revision.name}")
        yield


def _hint_of_first_measurable(repository: Path) -> str:
    added = (_git(repository, "log", "--diff-filter=A", "--reverse", f"--abbrev={SHORT}", "--format=%h", "--", PROTOCOL) or "").split()
    return f"the first revision that can be measured is {added[0]}" if added else "no revision before the working tree can be measured"


def _git(repository: Path, *arguments: str) -> str | None:
    """Run git and return its output; None if it fails.

    Git's environment variables are removed: a git hook that started this process may have set them to another repository.
    """
    command = ["git", "-c", f"safe.directory={repository}", "-C", str(repository), *arguments]
    variables = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        # a separate process group does not receive the terminal's signals
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=variables, process_group=0)
    except FileNotFoundError as error:
        raise RequestError("git is not installed", "install git, which checks out the revisions") from error
    except subprocess.CalledProcessError:
        return None
    return done.stdout.strip()
