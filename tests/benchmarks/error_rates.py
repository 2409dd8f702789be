"""How often are equal processes called unequal, and how often is a planted 2 % found? Run by hand.

    python -m tests.benchmarks.error_rates --out FILE.csv [--pairs 100] [--planted 10] [--first-seed 0] [--busy]

A small ViT takes turns with itself, as in a run at its defaults: twenty rounds of fresh processes, bursts and blocks by a pilot. Each pair has
a seed of its own, for weights, data and the order of turns. 2 % is planted by 51 calls that are booked as 50. A row per pair: the ratio with its
interval at 95 % and at the level of a family of three models, and the seconds it took.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import math
import statistics
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from bench import fork_server
from bench.console import print_lines
from bench.intervals import LEVEL, joint_level, ratio_over_rounds
from bench.measure.environment import inspect_environment
from bench.planning.jobs import group_jobs
from bench.planning.request import DEFAULT_ROUNDS
from bench.planning.settings import DEFAULT_SAMPLE_S
from bench.planning.timing import designed, pilots_of
from bench.running.executors.process import Executor
from bench.spec import MEASURED, PILOT, Job, Settings
from tests.benchmarks.harnesses import multiply
from tests.benchmarks.test_turns import BOOKED, small_vit
from tests.made_jobs import small_record

FAMILY = 3
"""Pairs of three models."""
COLUMNS = "machine date busy seed planted ratio low high family_low family_high seconds blocks".split()


def measured(runner: Executor, seed: int, extra_calls: int) -> dict[str, Any]:
    """Return the row of one pair."""
    cell, settings = small_vit(), Settings(rounds=DEFAULT_ROUNDS, sample_s=DEFAULT_SAMPLE_S, threads=1, seed=seed)
    began = time.perf_counter()
    pilot = runner.run(Job(cell=cell, metric=PILOT, repeat=0, settings=settings))
    record = small_record(PILOT, pilot.values, subject_id=cell.cell_id)
    group = designed("pair", [(cell, False), (cell, True)], pilots_of([record]), settings)
    logs = []
    for repeat in range(DEFAULT_ROUNDS):
        first, second = (dataclasses.replace(job, num_calls=BOOKED) for job in group_jobs(group, settings, repeat))
        outcomes = runner.run_group((first, dataclasses.replace(second, num_calls=BOOKED + extra_calls)))
        assert all(outcome.status == MEASURED for outcome in outcomes), [outcome.reason for outcome in outcomes]
        pairs = zip(*(outcome.samples["wall_ms"] for outcome in outcomes), strict=True)
        logs.append(statistics.median(math.log(ms / own) for own, ms in pairs) + math.log1p(extra_calls / BOOKED))
    plain, family = (ratio_over_rounds(logs, level) for level in (LEVEL, joint_level(FAMILY)))
    assert plain is not None
    assert family is not None
    bounds = {"ratio": plain.estimate, "low": plain.low, "high": plain.high, "family_low": family.low, "family_high": family.high}
    return {"seed": seed, "planted": extra_calls / BOOKED, **bounds, "seconds": time.perf_counter() - began, "blocks": group.num_blocks}


def main() -> None:
    asked = argparse.ArgumentParser()
    asked.add_argument("--out", type=Path, required=True)
    asked.add_argument("--pairs", type=int, default=100)
    asked.add_argument("--planted", type=int, default=10)
    asked.add_argument("--first-seed", type=int, default=0, help="a later call goes on from the seed after the last")
    asked.add_argument("--busy", action="store_true")
    wanted = asked.parse_args()
    facts = inspect_environment(threads=1, device="cpu")
    rows = []
    with (
        Executor() as runner,
        fork_server.new_process(multiply)[1] if wanted.busy else nullcontext(),
        wanted.out.open("w", newline="") as file,
    ):
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        for index in range(wanted.pairs + wanted.planted):
            row = measured(runner, wanted.first_seed + index, extra_calls=int(index >= wanted.pairs))
            writer.writerow({"machine": facts["cpu_type"], "date": time.strftime("%Y-%m-%d"), "busy": wanted.busy, **row})
            file.flush()
            rows.append(row)
    equal, planted = ([row for row in rows if bool(row["planted"]) is kind] for kind in (False, True))
    for name, low, high in (("95 %", "low", "high"), (f"95 % for {FAMILY} pairs together", "family_low", "family_high")):
        outside, found = sum(not row[low] <= 1 <= row[high] for row in equal), sum(row[low] > 1 for row in planted)
        print_lines(f"{name}: {outside} of {len(equal)} equal pairs lie outside; 2 % is found in {found} of {len(planted)}")
    half, seconds = (statistics.median(values) for values in zip(*(((r["high"] - r["low"]) / 2, r["seconds"]) for r in rows), strict=True))
    print_lines(f"half-width {half:.4f}, {seconds:.1f} s a pair")


if __name__ == "__main__":
    main()
