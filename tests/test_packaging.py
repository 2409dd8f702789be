"""What stands beside the package for other tools agrees with it. `.ci/wheel-smoke` builds and runs sdist and wheel."""

from __future__ import annotations

import re
import tomllib

import bench
from tests.specimens import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_citation_names_this_version_and_licence() -> None:
    facts = dict(re.findall(r'^([a-z-]+): "?(.+?)"?$', (ROOT / "CITATION.cff").read_text(), re.MULTILINE))
    assert facts["version"] == bench.__version__
    assert (facts["title"], facts["abstract"], facts["license"]) == (PROJECT["name"], PROJECT["description"], PROJECT["license"])


def test_the_container_file_copies_what_is_there_and_what_the_build_reads() -> None:
    lines = re.findall(r"^COPY (.+) \S+$", (ROOT / "Containerfile").read_text(), re.MULTILINE)
    copied = {name for line in lines for name in line.split()}
    assert [name for name in copied if not (ROOT / name).exists()] == []
    assert {
        "pyproject.toml",
        "setup.py",
        "README.md",
        "CONTRIBUTING.md",
        "docs",
        "bench",
        "models",
        "ablations",
        *PROJECT["license-files"],
    } <= copied
