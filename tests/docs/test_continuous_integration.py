"""The workflow of docs/continuous-integration.md, run step by step on a repository with a planted slow-down."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.fill import ROOT
from tests.running.test_revisions import commit, git

NET = """
import time

from torch import nn


class Net(nn.Module):
    def __init__(self, patch_dim, num_classes):
        super().__init__()
        self.layer = nn.Linear(patch_dim, num_classes)

    def forward(self, patches):
        time.sleep(0.01)
        return self.layer(patches).mean(1)
"""
SLOWER, ALIKE = NET.replace("0.01", "0.1"), NET.replace("self.layer(patches).mean(1)", "self.layer(patches).mean(dim=1)")
BOUND, FEWER = "latency_ms>1.05", "latency_ms>2"
"""The page's bound, and one that a busy machine does not pass by chance."""


@pytest.fixture(scope="module")
def workflow() -> dict[str, Any]:
    (text,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "continuous-integration.md").read_text(), re.DOTALL)
    found: dict[str, Any] = yaml.safe_load(text)
    return found


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A user's repository with one commit, and the programs `bench` and `gh` in `bin`; `gh` keeps its arguments and the body."""
    for name, does in {
        "bench": f'PYTHONPATH={ROOT} exec {sys.executable} -m bench "$@" --rounds 6',
        "gh": 'echo "$@" > ../comment; cat "${@: -1}" >> ../comment',
    }.items():
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/bash\n{does}\n")
        program.chmod(0o755)
    folder = tmp_path / "repository"
    git(tmp_path, "init", "--quiet", str(folder))
    (folder / "mine.py").write_text(NET)
    commit(folder, "base")
    return folder


def test_the_workflow_fetches_the_base_and_reports_after_a_failure_too(workflow: dict[str, Any]) -> None:
    steps = {step.get("name", step.get("uses", "").partition("@")[0]): step for step in workflow["jobs"]["time"]["steps"]}
    assert steps["actions/checkout"]["with"]["fetch-depth"] == 2
    assert workflow["permissions"] == {"contents": "read", "pull-requests": "write"}
    assert all("!cancelled()" in steps[name]["if"] for name in ("Summary", "Comment"))


@pytest.mark.slow
@pytest.mark.parametrize(("code", "exit_code", "says"), [(SLOWER, 1, "Beyond latency"), (ALIKE, 0, "No configuration is shown")])
def test_only_a_shown_slow_down_fails_and_both_are_posted(
    workflow: dict[str, Any], repository: Path, code: str, exit_code: int, says: str
) -> None:
    (repository / "mine.py").write_text(code)
    commit(repository, "change")
    summary = repository.parent / "summary.md"
    variables = {**os.environ, "PATH": f"{repository.parent / 'bin'}:{os.environ['PATH']}", "GITHUB_STEP_SUMMARY": str(summary)}
    codes = {}
    for step in workflow["jobs"]["time"]["steps"]:
        if "run" in step and step["name"] != "Install":
            command = step["run"].replace(BOUND, FEWER).replace("${{ github.event.number }}", "7")
            done = subprocess.run(["bash", "-e", "-c", command], cwd=repository, env=variables, capture_output=True, text=True, timeout=600)
            codes[step["name"]] = done.returncode
    assert codes == {"Time": exit_code, "Summary": 0, "Comment": 0}, done.stderr
    assert says in summary.read_text()
    told, _, body = (repository.parent / "comment").read_text().partition("\n")
    assert told.startswith("pr comment 7 --edit-last")
    assert body == summary.read_text()
    assert git(repository, "worktree", "list", "--porcelain").count("worktree ") == 1
