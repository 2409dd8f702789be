"""Revisions of a repository: which can be measured, and worktrees that leave nothing behind."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

import pytest

from bench.running.revisions import PROTOCOL, Revision, checked_out, find_revision, tree_of
from bench.spec import RequestError

IDENTITY = ("-c", "user.name=A", "-c", "user.email=a@b", "-c", "commit.gpgsign=false", "-c", "init.defaultBranch=main")


def git(folder: Path, *arguments: str) -> str:
    variables = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return subprocess.run(
        ["git", *IDENTITY, "-C", str(folder), *arguments], capture_output=True, text=True, check=True, env=variables
    ).stdout.strip()


def commit(folder: Path, message: str) -> str:
    git(folder, "add", "-A")
    git(folder, "commit", "--quiet", "-m", message)
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three commits, tagged old, first and new: the protocol arrives with the second. Temporary folders are made below `temporary`."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    folder = tmp_path / "repository"
    for package in ("bench/running", "models", "ablations"):
        (folder / package).mkdir(parents=True)
        (folder / package / "__init__.py").touch()
    git(tmp_path, "init", "--quiet", str(folder))
    commit(folder, "old")
    git(folder, "tag", "old")
    (folder / PROTOCOL).write_text("1")
    commit(folder, "first")
    git(folder, "tag", "first")
    (folder / PROTOCOL).write_text("2")
    commit(folder, "new")
    return folder


def is_clean(repository: Path) -> bool:
    trees = git(repository, "worktree", "list", "--porcelain").count("worktree ")
    return trees == 1 and not list((repository.parent / "temporary").iterdir())


def test_each_revision_has_its_own_code_while_it_lasts(repository: Path) -> None:
    (repository / PROTOCOL).write_text("3")
    revisions = [find_revision(name, repository) for name in ("first", "main", ".")]
    with checked_out(revisions, repository):
        trees = [tree_of(revision.short) for revision in revisions]
        assert [(tree / PROTOCOL).read_text() for tree in trees] == ["1", "2", "3"]
        (repository / PROTOCOL).write_text("edited while it is measured")
        assert (trees[2] / PROTOCOL).read_text() == "3"
    assert is_clean(repository)
    with pytest.raises(RequestError, match="is not checked out"):
        tree_of(revisions[0].short)


def test_the_working_tree_is_a_commit_that_may_be_dirty(repository: Path) -> None:
    head = git(repository, "rev-parse", "HEAD")
    assert find_revision(".", repository) == Revision(name=".", commit=head, dirty=False)
    (repository / "README").write_text("no code")
    assert not find_revision(".", repository).dirty
    (repository / "models" / "new.py").touch()
    assert find_revision(".", repository).dirty
    assert find_revision(".", repository).short == f"{head[:10]}.dirty"


def test_what_is_no_revision_is_refused(repository: Path, tmp_path: Path) -> None:
    for name in ("nowhere", "", "--all", "-n", "first:bench", "main..first"):
        with pytest.raises(RequestError, match="is not a revision"):
            find_revision(name, repository)
    with pytest.raises(RequestError, match="not a git checkout"):
        find_revision("main", tmp_path)


def test_a_revision_without_a_needed_file_is_refused(repository: Path) -> None:
    (repository / "new.py").touch()
    for name, file in (("old", PROTOCOL), ("main", "new.py"), ("main", "nope.py")):
        with pytest.raises(RequestError, match=f"{name} has no {file}"):
            find_revision(name, repository, needed=[file])


def test_nothing_is_left_where_the_second_cannot_be_checked_out(repository: Path) -> None:
    git(repository, "worktree", "add", "--detach", str(repository.parent / "mine"), "first")
    revisions = [find_revision("first", repository), Revision(name="gone", commit="0" * 40)]
    with pytest.raises(RequestError, match="cannot check out gone"), checked_out(revisions, repository):
        raise AssertionError("it was checked out")
    assert git(repository, "worktree", "list", "--porcelain").count("worktree ") == 2  # others stay
    git(repository, "worktree", "remove", str(repository.parent / "mine"))
    assert is_clean(repository)


def test_a_worktree_that_was_cut_short_is_removed(repository: Path) -> None:
    """As after a signal while git makes it: it stays locked, and without files."""
    with pytest.raises(KeyboardInterrupt), checked_out([find_revision("first", repository)], repository):  # noqa: PT012
        tree = tree_of(find_revision("first", repository).short)
        (tree / "untracked").touch()
        (tree / PROTOCOL).write_text("changed")
        git(repository, "worktree", "lock", "--reason", "initializing", str(tree))
        raise KeyboardInterrupt
    assert is_clean(repository)


def test_hooks_neither_run_nor_lead_elsewhere(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hook = repository / ".git" / "hooks" / "post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\ntouch hooked\n")
    hook.chmod(0o755)
    monkeypatch.setenv("GIT_DIR", "/nowhere")  # as a hook that starts bench has it
    with checked_out([find_revision("first", repository)], repository):
        tree = tree_of(find_revision("first", repository).short)
        assert (tree / PROTOCOL).read_text() == "1"
        assert not (tree / "hooked").exists()
    assert is_clean(repository)


def test_a_base_that_a_shallow_clone_lacks_is_said_to_be_fetched(repository: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "--quiet", "--depth", "1", repository.as_uri(), str(tmp_path / "shallow"))
    with pytest.raises(RequestError, match="HEAD\\^1") as caught:
        find_revision("HEAD^1", tmp_path / "shallow")
    assert "git fetch --unshallow" in caught.value.hint
