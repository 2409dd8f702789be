"""Runs to judge claims on: rows and rounds of invented models whose costs are known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas

from bench.analysis.claims import Evidence
from bench.analysis.growth import Growth, growth_of
from tests.timed import timings_of_rounds

LENGTHS = (17, 33, 65, 129, 257, 513, 1025, 2049, 4097)
ROUNDS = 7
NOISE = 0.01
Cost = Callable[[int], float]


def linear(n: int) -> float:
    return 100.0 + 10.0 * n


def quadratic(n: int) -> float:
    return 100.0 + 10.0 * n + 0.1 * n * n


@dataclass(frozen=True, kw_only=True)
class Made:
    """One series: `latency` in ms by n, other costs by the name of their column, `others` what its rows hold beside."""

    model: str
    attention: str = "none"
    latency: Cost = quadratic
    costs: Mapping[str, Cost] = field(default_factory=dict)
    lengths: Sequence[int] = LENGTHS
    others: Mapping[str, Any] = field(default_factory=dict)

    def rows(self, place: int) -> list[dict[str, Any]]:
        return [self._row(n, f"cell-{place}-{n}") for n in self.lengths]

    def _row(self, n: int, cell_id: str) -> dict[str, Any]:
        shared = {"batch_size": 4, "batching": "batch 4", "match": "params", "budget": 1_000_000, "phase": "infer", "engine": "eager"}
        sizes = {"width": 64, "depth": 2, "heads": 2, "ffn_width": 256}
        identity = {"cell_id": cell_id, "model": self.model, "family": self.model.split("+")[0], "attention": self.attention, "seq_len": n}
        work = {"dtype": "fp32", "device": "cpu", "task": None, "latency_ms": self.latency(n), "attention_effective": self.attention}
        return {**identity, **shared, **sizes, **work, **{name: cost(n) for name, cost in self.costs.items()}, **self.others}


def _share(cost: Cost | None, n: int) -> float:
    return 0.1 * n * n / quadratic(n) if cost is quadratic else 0.0


def evidence(*made: Made, rounds: int = ROUNDS, noise: float = NOISE, seed: int = 0, **fields: Any) -> Evidence:
    """Every latency once per round, with noise of its own and a common one of 10 % per round; closed forms as the costs say."""
    rows = [row for place, series in enumerate(made) for row in series.rows(place)]
    generator = np.random.default_rng(seed)
    common = np.exp(0.1 * generator.standard_normal(rounds))
    timed = [
        (row["cell_id"], r, row["latency_ms"] * common[r] * float(np.exp(noise * generator.standard_normal())))
        for r in range(rounds)
        for row in rows
    ]
    values: dict[str, Any] = {
        "rows": rows,
        "timings": timings_of_rounds(pandas.DataFrame(timed, columns=["cell_id", "round", "latency_ms"])),
        "homes": {
            row["cell_id"]: {
                "seq_len": row["seq_len"],
                "flops_share": _share(series.costs.get("flops"), row["seq_len"]),
                "weights_coefficient": 0.1 if series.costs.get("weight_bytes") is quadratic else 0.0,
            }
            for place, series in enumerate(made)
            for row in series.rows(place)
        },
    }
    return Evidence(**{**values, **fields})


def grown(*made: Made) -> list[Growth]:
    """What grows with n in made runs."""
    found = evidence(*made)
    return growth_of(found.shaped, found.timings)


def scores(share: float, *, seeds: int = 5, items: int = 2000, seed: int = 0) -> np.ndarray[Any, Any]:
    """`(seeds, items)` of right and wrong answers, the same share right in every seed."""
    generator = np.random.default_rng(seed)
    return (generator.random((seeds, items)) < share).astype(float)
