"""Starts an experiment: `python -m tests.benchmarks.harness.run interleaved --out FOLDER`.

Every forked process imports the main module again. This one is light; an experiment's own takes half a second.
"""

import importlib
import sys

if __name__ == "__main__":
    import typer

    name = sys.argv.pop(1)
    typer.run(importlib.import_module(f"tests.benchmarks.harness.{name}").measure)
