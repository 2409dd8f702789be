"""Put the manual and the revision into the wheel, as data of the package bench. All else is in pyproject.toml."""

import shutil
import subprocess
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

REVISION = "REVISION"
"""The file that `bench.measure.environment.code_facts` reads: in the package bench of a wheel, beside the packages in an sdist."""


def git(*arguments: str) -> str:
    """Return what git says; "" where it is missing or fails."""
    try:
        return subprocess.run(["git", *arguments], capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def write_revision(folder: Path) -> None:
    """Name the revision of the clone, or of the sdist, from which this is built; without either write nothing.

    `changed` behind it says that packages of the clone differ from it.
    """
    if Path(".git").exists():
        if revision := git("rev-parse", "HEAD"):
            changed = " changed" if git("status", "--porcelain", "--", "bench", "models", "ablations") else ""
            (folder / REVISION).write_text(f"{revision}{changed}\n")
    elif Path(REVISION).is_file():
        shutil.copy(REVISION, folder)


class BuildWithManual(build_py):
    """Build the packages, and copy the manual to where bench/report/manual.py finds it."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:  # a clone has its own
            package = Path(self.build_lib, "bench")
            shutil.copytree("docs", package / "manual" / "docs", dirs_exist_ok=True, ignore=shutil.ignore_patterns(".*"))
            for page in ("README.md", "CONTRIBUTING.md"):
                shutil.copy(page, package / "manual")
            write_revision(package)


class SourceWithRevision(sdist):
    """Collect the sources, with the revision beside the packages."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        write_revision(Path(base_dir))


setup(cmdclass={"build_py": BuildWithManual, "sdist": SourceWithRevision})
