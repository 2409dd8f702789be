"""What docs/python.md says of MLflow and TensorBoard works as it stands on a stored run, with stand-ins for both."""

from __future__ import annotations

import re
import sys
import textwrap
from typing import Any
from unittest.mock import MagicMock

import pytest

from bench.reading.store import read_run
from bench.reading.table import rows_of
from tests.docs.fill import ROOT

RUN = ROOT / "results" / "2026-11-30_cpu_digits"


def block(start: str) -> str:
    """The indented lines of the page from the one that begins with `start`."""
    (found,) = re.findall(rf"^    {re.escape(start)}.*\n(?:    .*\n|\n(?=    ))*", (ROOT / "docs" / "python.md").read_text(), re.MULTILINE)
    return textwrap.dedent(str(found))


def test_table_and_curves_reach_mlflow_and_tensorboard(monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow, tensorboard = MagicMock(), MagicMock()
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", tensorboard)
    monkeypatch.chdir(ROOT)
    names: dict[str, Any] = {}
    exec(block("import bench, mlflow"), names)
    exec(block("from torch.utils.tensorboard"), names)

    rows = rows_of(read_run(RUN))
    num_epochs = int((rows["num_seeds"] * rows["num_epochs"]).sum())
    assert [call.args[0]["accuracy"] for call in mlflow.log_metrics.call_args_list] == rows["accuracy"].tolist()
    assert mlflow.log_metric.call_count == num_epochs
    scalars = tensorboard.SummaryWriter.return_value.__enter__.return_value.add_scalar.call_args_list
    assert [call.args[0] for call in scalars].count("loss") == num_epochs
    folders = [call.args[0] for call in tensorboard.SummaryWriter.call_args_list]
    assert len({*folders}) == len(folders) == rows["num_seeds"].sum()
