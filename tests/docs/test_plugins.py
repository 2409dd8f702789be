"""The package of docs/plugins.md is the one that tests/test_packages.py installs and uses."""

from __future__ import annotations

import re

from tests.docs.fill import ROOT
from tests.packages import EXAMPLE

SHOWN = ("pyproject.toml", *(f"gmlp_bench_example/{name}.py" for name in ("per_token", "first_token", "weight_norm", "no_mixing")))


def test_the_page_shows_the_files_of_the_package() -> None:
    blocks = re.findall(r"```(?:toml|python)\n(.*?)```", (ROOT / "docs" / "plugins.md").read_text(), re.DOTALL)
    assert blocks == [(EXAMPLE / name).read_text() for name in SHOWN]
