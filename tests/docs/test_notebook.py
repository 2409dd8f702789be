"""The quickstart notebook runs as it stands, in an empty folder, and its cells return what they say."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.docs.fill import ROOT

NOTEBOOK = ROOT / "docs" / "quickstart.ipynb"
MAX_BYTES = 200_000
# in a process of its own: Jupyter's libraries warn, and start threads
EXECUTE = """
import sys
import nbclient, nbformat
notebook = nbformat.read(sys.argv[1], as_version=4)
nbclient.NotebookClient(notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": sys.argv[2]}}).execute()
nbformat.write(notebook, sys.argv[3])
"""


def cells(path: Path) -> list[dict[str, Any]]:
    return [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]


def test_the_notebook_is_small_and_holds_no_numbers_of_a_machine() -> None:
    assert NOTEBOOK.stat().st_size < MAX_BYTES
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells(NOTEBOOK))


@pytest.mark.slow
def test_the_notebook_runs(tmp_path: Path) -> None:
    target, folder = tmp_path / "executed.ipynb", tmp_path / "work"
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", EXECUTE, str(NOTEBOOK), str(folder), str(target)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = cells(target)
    shown = {cell["source"][-1] if cell["source"] else "": cell["outputs"] for cell in found}
    for source, outputs in shown.items():
        assert not [output for output in outputs if output.get("name") == "stderr"], source
    planned, run, own, diff = (text_of(shown, start) for start in ("planned", "run", "own", "bench.diff("))
    assert planned.startswith("<p>4 configurations, batch 4, about ")
    assert "<p>A first look: at equal parameters, " in run
    assert run.count("<svg") == 1 == run.count("<table")
    assert "MeanMixer" in own
    assert "at equal parameters" in own
    compared = text_of(shown, "bench.compare(")
    assert "Front of accuracy against forward FLOPs per sample" in compared
    assert compared.count("<svg") == 1
    counted = re.findall(r"(\d+) (?:differs between these two occasions|no significant difference)", diff[: diff.index("(latency)")])
    assert sum(map(int, counted)) == 4
    assert len(list((folder / "results").iterdir())) == 4
    progress = [text for outputs in shown.values() if (text := progress_of(outputs))]
    assert len(progress) == 4
    assert all(text.endswith(" jobs; done") for text in progress)


def text_of(shown: dict[str, Any], start: str) -> str:
    """The HTML of the cell whose last line is this, or a call that begins so."""
    (outputs,) = (outputs for line, outputs in shown.items() if line == start or (start.endswith("(") and line.startswith(start)))
    return "".join(outputs[-1]["data"]["text/html"])


def progress_of(outputs: list[dict[str, Any]]) -> str:
    return "".join("".join(output["data"]["text/plain"]) for output in outputs if output["output_type"] == "display_data")
