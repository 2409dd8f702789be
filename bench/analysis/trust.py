"""Can these numbers be trusted? Findings about a run, each with advice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

MAX_BUSY_CORES = 0.5
"""Processor time of others, in cores, above which they compete with the run."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """`serious` findings mean that the run is not to be trusted as it stands."""

    text: str
    advice: str
    serious: bool

    @property
    def sentence(self) -> str:
        return f"{self.text}: {self.advice}"


def findings(
    rows: pd.DataFrame,
    control: Mapping[str, Any] | None,
    environment: Mapping[str, Any],
    *,
    metrics: Sequence[str],
    num_missing: int,
) -> list[Finding]:
    """All findings, serious ones first."""
    found = [
        *_missing(num_missing),
        *(_control(control) if "latency" in metrics else ()),
        *_unstable(rows),
        *_failed(rows),
        *_competition(environment),
        *_code(environment),
        *_quick(rows),
    ]
    return sorted(found, key=lambda f: not f.serious)


def _missing(num_missing: int) -> Iterator[Finding]:
    if num_missing:
        yield Finding(text=f"{num_missing} jobs were not run", advice="finish it with bench run --resume RUN", serious=True)


def _control(control: Mapping[str, Any] | None) -> Iterator[Finding]:
    if control is None:
        yield Finding(
            text="there is no A/A control, which needs two measured rounds",
            advice="measure at least three rounds",
            serious=True,
        )
    elif not control["contains_one"]:
        yield Finding(
            text=f"the same cell timed twice differs by {control['ratio'] - 1:+.1%} (99 % interval {control['low']:.3f} to {control['high']:.3f})",
            advice="the machine was too noisy; stop other work and measure again",
            serious=True,
        )


def _unstable(rows: pd.DataFrame) -> Iterator[Finding]:
    if "latency_stable" not in rows:
        return
    unstable = rows[rows["latency_stable"].eq(False)]
    if len(unstable):
        cells = ", ".join(f"{r.model} n={r.seq_len}" for r in unstable.head(5).itertuples())
        yield Finding(
            text=f"{len(unstable)} of {len(rows)} latencies are unstable ({cells}{', ...' if len(unstable) > 5 else ''})",
            advice="they drift or their interval is wider than 10 %: rely on ratios paired by round; for the times themselves add --rounds",
            serious=len(unstable) > len(rows) / 2,
        )


def _failed(rows: pd.DataFrame) -> Iterator[Finding]:
    failed = rows[~rows["status"].isin(["measured", "unmeasured"])]
    if len(failed):
        yield Finding(
            text=f"{len(failed)} of {len(rows)} cells were not measured in full",
            advice="their reasons are in the column reason",
            serious=False,
        )


def _competition(environment: Mapping[str, Any]) -> Iterator[Finding]:
    busy, cores = environment.get("busy_cores"), environment.get("num_cores")
    if busy is not None and cores and busy > MAX_BUSY_CORES:
        yield Finding(
            text=f"other work took {busy:g} of {cores} cores when the run began",
            advice="it competed with the run; measure again on an idle machine",
            serious=True,
        )


def _code(environment: Mapping[str, Any]) -> Iterator[Finding]:
    if environment.get("git_dirty"):
        yield Finding(
            text="the code differed from its git revision",
            advice="commit before measuring what is to be published",
            serious=False,
        )


def _quick(rows: pd.DataFrame) -> Iterator[Finding]:
    if len(rows) and bool(rows["quick"].any()):
        yield Finding(text="this was a quick run", advice="measure without --quick before drawing conclusions", serious=False)
