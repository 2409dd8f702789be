"""Resolve revisions of this repository, or of a user's, and check them out side by side.

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


def repository_of(file: Path) -> Path:
    """Return the git checkout that holds a file. Raises RequestError if none does."""
    found = next((folder for folder in file.resolve().parents if (folder / ".git").exists()), None)
    if found is None:
        raise RequestError(f"{file} is in no git checkout, so its revisions cannot be compared", "name a file of a git repository")
    return found


def find_revision(
    name: str, repository: Path = OWN_FOLDER, *, packages: Sequence[str] = PACKAGES, needed: Sequence[str] = (PROTOCOL,)
) -> Revision:
    """Resolve a revision; `.` is the working tree.

    `packages`: folders that are measured; all of the repository if empty.
    `needed`: files without which a commit cannot be measured.

    Raises RequestError if the repository is not a git checkout, the revision is unknown, or it lacks a needed file.
    """
    if not (repository / ".git").exists():
        raise RequestError(
            f"{repository} is not a git checkout, so its revisions cannot be compared", "run bench from a clone of the repository"
        )
    in_tree = name == WORKING_TREE
    commit = _git(repository, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{'HEAD' if in_tree else name}^{{commit}}")
    if not commit:
        is_shallow = _git(repository, "rev-parse", "--is-shallow-repository") == "true"
        advice = (
            "the clone is shallow; try: git fetch --unshallow" if is_shallow else "give a commit, branch or tag, or . for the working tree"
        )
        raise RequestError(f"{name!r} is not a revision of {repository}", advice)
    if in_tree:
        return Revision(name=name, commit=commit, dirty=bool(_git(repository, "status", "--porcelain", "--", *packages)))
    for file in needed:
        if _git(repository, "cat-file", "-e", f"{commit}:{file}") is None:
            raise RequestError(
                f"revision {name} has no {file}, which is needed to measure it", "name a later revision, or check the file's name"
            )
    return Revision(name=name, commit=commit)


@contextlib.contextmanager
def checked_out(revisions: Sequence[Revision], repository: Path = OWN_FOLDER, *, packages: Sequence[str] = PACKAGES) -> Iterator[None]:
    """Keep a folder with the code of each revision, which `tree_of` returns.

    `packages`: folders of the working tree that are copied, so that edits during the measurement have no effect; if empty, it is used as it is.

    Raises RequestError if git cannot check one out.
    """
    with contextlib.ExitStack() as stack:
        stack.callback(_git, repository, "worktree", "prune")
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gmlp-bench-code-", ignore_cleanup_errors=True)))
        stack.callback(_TREES.clear)
        for place, revision in enumerate(revisions):
            in_place = revision.name == WORKING_TREE and not packages
            tree = _TREES[revision.short] = repository if in_place else folder / str(place)
            if revision.name == WORKING_TREE:
                for package in packages:
                    shutil.copytree(repository / package, tree / package, ignore=shutil.ignore_patterns("__pycache__"))
                continue
            stack.callback(_git, repository, "worktree", "remove", "--force", str(tree))
            stack.callback(_git, repository, "worktree", "unlock", str(tree))  # first: an interrupted creation leaves it locked
            if _git(repository, *QUIET, "worktree", "add", "--detach", str(tree), revision.commit) is None:
                raise RequestError(f"git cannot check out {revision.name} to {tree}", f"try: git worktree add --detach DIR {revision.name}")
        yield


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
