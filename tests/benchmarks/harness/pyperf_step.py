"""pyperf's own runner on one cell of a plan.

python -m tests.benchmarks.harness.pyperf_step --plan results/RUN/plan.json --cell 0 -p 5 -o out.json
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch

from bench.measure.step import attention_backend, build_step
from bench.running.store import read_plan


def main() -> None:
    import pyperf

    def for_workers(command: list[str], asked: argparse.Namespace) -> None:
        command.extend(("--plan", asked.plan, "--cell", str(asked.cell)))

    runner: Any = pyperf.Runner(add_cmdline_args=for_workers, program_args=("-m", "tests.benchmarks.harness.pyperf_step"))
    runner.argparser.add_argument("--plan")
    runner.argparser.add_argument("--cell", type=int)
    asked = runner.parse_args()
    plan = read_plan(Path(asked.plan))
    torch.set_num_threads(plan.settings.threads)
    cell = plan.cells[asked.cell].cell
    with attention_backend(cell.workload.attention):
        runner.bench_func("step", build_step(cell, seed=plan.settings.seed).call)


if __name__ == "__main__":
    main()
