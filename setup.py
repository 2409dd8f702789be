"""Put the manual and the revision into the wheel, as data of the package bench. All else is in pyproject.toml."""

import shutil
import subprocess
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

REVISION = "REVISION"
"""The file that `bench.measure.environment.code_facts` reads: in the package bench of a wheel, beside the packages in an sdist."""


def write_revision(folder: Path) -> None:
    """Name the revision of the clone, or of the sdist, from which this is built; without either write nothing."""
    if Path(".git").exists():
        found = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
        if found.returncode == 0:
            (folder / REVISION).write_text(found.stdout)
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
