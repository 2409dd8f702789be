"""Put the manual into the wheel, as data of the package bench. All else is in pyproject.toml."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithManual(build_py):
    """Build the packages, and copy the manual to where bench/report/manual.py finds it."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:  # a clone has its own
            manual = Path(self.build_lib, "bench", "manual")
            shutil.copytree("docs", manual / "docs", dirs_exist_ok=True, ignore=shutil.ignore_patterns(".*"))
            for page in ("README.md", "CONTRIBUTING.md"):
                shutil.copy(page, manual)


setup(cmdclass={"build_py": BuildWithManual})
