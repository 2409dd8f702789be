"""Time the kernels of single operators."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from bench import console
from bench.commands.options import EXIT_FAILED

if TYPE_CHECKING:
    from bench.operators.request import OperatorRequest


def compare_kernels(request: OperatorRequest, out: Path | None, as_json: bool) -> None:
    """Time the kernels of single operators; write table and figure."""
    from bench.operators import UNSUPPORTED
    from bench.operators.run import NAME, run
    from bench.report import operators
    from bench.running.folder import make_empty_folder
    from bench.running.table import json_rows
    from bench.spec import MEASURED

    folder = make_empty_folder(out, request.device, NAME)
    console.say(f"results, updated after each case: {folder}")
    rows = run(request, folder)
    if as_json:
        console.print_json(json_rows(rows))
    else:
        operators.show(rows)
    if figure := operators.write_figure(rows, folder):
        console.say(f"figure: {figure}")
    if not rows["status"].isin((MEASURED, UNSUPPORTED)).all():
        raise typer.Exit(EXIT_FAILED)
