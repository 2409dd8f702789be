"""Find reasons to distrust a run, each with advice."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from bench import numbers
from bench.analysis.frame import incomplete
from bench.intervals import drifts
from bench.measure.allocator import FAULT_S
from bench.measure.hosts import AT_END, AT_START, COPY_BYTES, UNKNOWN, ceilings, changed_ceilings, furthest_apart, is_known
from bench.needs import needs_quiet
from bench.reading.timings import Timings
from bench.spec import MS_PER_S

MAX_BUSY_CORES = 0.5
"""Other work, in cores, above which it competes with the run."""
MAX_LOAD_OF_OTHERS = 1.5
"""The number of other processes above which they compete with the run.

The run's own main process and the system occasionally need a core too.
"""
MIN_PROCESSOR_SHARE = 0.95
"""The least share of its time that a job should be running."""
MAX_FAULT_SHARE = 0.02
"""The share of a step above which page faults affect its latency."""
MAX_TIMER_SHARE = 0.01
"""The largest share of a sample that reading the timer may take."""
MAX_SHARE_OF_JOBS = 0.1
"""The share of timed jobs above which a problem is serious."""
MIN_DRIFT_ROUNDS = 4
"""The least number of rounds to test for drift."""
MAX_MFU = 1.25
"""The largest share of torch's own rate of products that torch's products may reach; rates vary by some per cent within a run."""
MAX_BANDWIDTH = 2.0
"""The largest share of the rate of copies that reading weights may reach: a copy writes as many bytes as it reads, and writing takes longer."""
TIMES, MEMORY, ALL = "times", "memory", "all"
"""What a concern may be about."""
QUANTITIES = {
    "params": ("parameters", "params"),
    "flops": ("FLOPs", "flops"),
    "latency": (TIMES, "latency_ms"),
    "memory": (MEMORY, "peak_memory_bytes"),
    "energy": ("energy", "energy_j"),
    "accuracy": ("accuracy", "num_seeds"),
}
"""What each metric measures, in the words of a verdict, and a column that it fills."""
NO_EVIDENCE_IF_QUICK = ("latency", "energy", "accuracy")
"""The metrics that are timed or trained."""
SLOWDOWNS = {
    0x0000000000000004: "power limit",
    0x0000000000000008: "hardware slowdown",
    0x0000000000000020: "heat, by software",
    0x0000000000000040: "heat, by hardware",
    0x0000000000000080: "power brake",
}
"""The bits of NVML's nvmlClocksThrottleReason* (nvml.h) that report a slowdown."""


@dataclass(frozen=True, kw_only=True)
class Concern:
    """A reason to distrust a run, with advice.

    `serious`: what it is about should not be trusted as it stands.
    `about`: the quantities it is about; `ALL` for everything.
    """

    text: str
    advice: str
    serious: bool
    about: tuple[str, ...] = (TIMES,)

    @property
    def sentence(self) -> str:
        return f"{self.text}: {self.advice}"


def trusted(found: Sequence[Concern], metrics: Sequence[str], rows: pd.DataFrame) -> dict[str, bool]:
    """Return whether each quantity that a row has can be trusted: no serious concern is about it."""
    doubted = {about for concern in found if concern.serious for about in concern.about}
    return {quantity: not doubted & {quantity, ALL} for quantity, has_value in _quantities(rows, metrics).items() if has_value}


def _quantities(rows: pd.DataFrame, metrics: Sequence[str]) -> dict[str, bool]:
    """Return whether any row has a value of each quantity that was asked for."""
    asked = dict(QUANTITIES[metric] for metric in metrics if metric in QUANTITIES)
    return {quantity: column in rows and bool(rows[column].notna().any()) for quantity, column in asked.items()}


def concerns(
    rows: pd.DataFrame,
    control: Mapping[str, Any] | None,
    environment: Mapping[str, Any],
    *,
    metrics: Sequence[str],
    num_missing: int,
    timed: Sequence[Mapping[str, Any]] = (),
    timings: Sequence[Timings] = (),
    others: Sequence[Mapping[str, Any]] = (),
) -> list[Concern]:
    """Return all concerns, serious ones first.

    `rows`: the table.
    `control`: the A/A control; None if it was not run.
    `environment`: facts about the machine.
    `metrics`: the measured metrics.
    `num_missing`: planned jobs that were not run.
    `timed`: the values recorded with each latency.
    `timings`: the latencies of each run.
    `others`: for merged runs, the environments of the other runs.
    """
    environments = (environment, *others)
    found = [
        *_missing(num_missing),
        *(_control(control) if "latency" in metrics else ()),
        *_unstable(rows),
        *_incomplete(rows),
        *(_valueless(rows, metrics) if not num_missing else ()),
        *_competition(environments, rows, is_timed=any(map(needs_quiet, metrics))),
        *_inline(environment, metrics),
        *_slots(environments, metrics),
        *_preempted(timed),
        *_page_faults(rows),
        *_timer(timed),
        *_throttled(timed),
        *_other_gpu_processes(environment),
        *_restless(timed),
        *_common_drift(timings),
        *_too_fast(rows),
        *_changed_host(environments),
        *(_unknown_host(environments) if "latency" in metrics else ()),
        *_code(environment),
        *_quick(rows, metrics),
    ]
    return sorted(found, key=lambda f: not f.serious)


def _missing(num_missing: int) -> Iterator[Concern]:
    if num_missing:
        advice = "finish the run: bench run --resume, with its folder"
        yield Concern(text=f"{num_missing} jobs were not run", advice=advice, serious=True, about=(ALL,))


def _control(control: Mapping[str, Any] | None) -> Iterator[Concern]:
    if control is None:
        yield Concern(
            text="the run has no A/A control, which needs two measured rounds",
            advice="measure at least three rounds",
            serious=True,
        )
    elif not control["contains_one"]:
        interval = f"{100 * control['level']:g} % interval {control['low']:.3f} to {control['high']:.3f}"
        yield Concern(
            text=f"the same configuration timed twice differs by {control['ratio'] - 1:+.1%} ({interval})",
            advice="chance explains this in one of a thousand runs; measure again",
            serious=False,
        )


def _unstable(rows: pd.DataFrame) -> Iterator[Concern]:
    """Report unstable latencies. Turns keep their ratios reliable."""
    if "latency_stable" not in rows:
        return
    unstable = rows[rows["latency_stable"].eq(False)]
    if len(unstable):
        num_timed = rows["latency_ms"].notna().sum()
        names = list(dict.fromkeys(f"{r.model} n={r.seq_len}" for r in unstable.itertuples()))
        cells = ", ".join(names[:5])
        yield Concern(
            text=f"{len(unstable)} of {num_timed} latencies are unstable ({cells}{', ...' if len(names) > 5 else ''})",
            advice="they drift, or their interval is wider than 10 %; rely on ratios, or run more --rounds for the times",
            serious=False,
        )


def _incomplete(rows: pd.DataFrame) -> Iterator[Concern]:
    if num := len(incomplete(rows)):
        yield Concern(
            text=f"{num} of {len(rows)} configurations were not fully measured",
            advice="see the column reason",
            serious=False,
            about=(ALL,),
        )


def _valueless(rows: pd.DataFrame, metrics: Sequence[str]) -> Iterator[Concern]:
    """Name the quantities that were asked for and that no row has."""
    reasons = sorted({*rows["energy_reason"].dropna()} - {""}) if "energy_reason" in rows else []
    for quantity in (quantity for quantity, has_value in _quantities(rows, metrics).items() if not has_value):
        advice = "; ".join(reasons) if quantity == "energy" and reasons else "see the columns status and reason"
        yield Concern(text=f"no configuration has a value: {quantity}", advice=advice, serious=False, about=(quantity,))


def _competition(environments: Sequence[Mapping[str, Any]], rows: pd.DataFrame, *, is_timed: bool) -> Iterator[Concern]:
    """Report other work. A CPU's counter of energy counts it too.

    It is less serious if most of the merged runs had none, or if the run has no times but those of trainings.
    """
    about = (TIMES, "energy") if "energy_source" in rows and rows["energy_source"].eq("rapl").any() else (TIMES,)
    busy = [facts for facts in environments if facts.get("num_cores") and (facts.get("busy_cores") or 0.0) > MAX_BUSY_CORES]
    if busy:
        most = max(busy, key=lambda facts: float(facts["busy_cores"]))
        runs = f"{len(busy)} of {len(environments)} runs" if len(environments) > 1 else "the run"
        yield Concern(
            text=f"other work took {most['busy_cores']:g} of {numbers.counted(most['num_cores'], 'core')} when {runs} began",
            advice="it competed with the run; measure again on an idle machine",
            serious=is_timed and 2 * len(busy) >= len(environments),
            about=about,
        )
    known = [(facts.get("load_at_end") or 0.0, facts["threads"]) for facts in environments if facts.get("threads")]
    if crowded := [(load, own) for load, own in known if load > own + MAX_LOAD_OF_OTHERS]:
        load, own = max(crowded)
        yield Concern(
            text=f"{load:g} processes wanted a processor in the run's last minute; the run itself needs {own}",
            advice="other work may have competed with it; check how many timed jobs waited for the processor",
            serious=False,
            about=about,
        )


def _inline(environment: Mapping[str, Any], metrics: Sequence[str]) -> Iterator[Concern]:
    if "inline" in environment.get("executors", ()) and {"latency", "memory"} & set(metrics):
        yield Concern(
            text="all jobs ran in one process (--on inline), so each may affect memory and caches of the next",
            advice="use this for debugging only; measure with --on process",
            serious=True,
            about=(TIMES, MEMORY),
        )


def _slots(environments: Sequence[Mapping[str, Any]], metrics: Sequence[str]) -> Iterator[Concern]:
    if "accuracy" in metrics and any("ray" in facts.get("executors", ()) for facts in environments):
        yield Concern(
            text="trainings ran in slots of Ray, which may share a machine",
            advice="compare accuracies, not training times; without --on ray trainings take turns",
            serious=False,
        )


def _preempted(timed: Sequence[Mapping[str, Any]]) -> Iterator[Concern]:
    """Report processor time that single-thread jobs lost to other work.

    A job that waits for a GPU may sleep, so jobs on a GPU do not count.
    """
    on_cpu = [values for values in timed if values.get("threads") == 1 and "gpu_clock_mhz" not in values]
    shares = [share for values in on_cpu if (share := values.get("processor_share")) is not None]
    lacking = [share for share in shares if share < MIN_PROCESSOR_SHARE]
    if lacking:
        yield Concern(
            text=f"{len(lacking)} of {len(shares)} timed jobs had the processor for less than {MIN_PROCESSOR_SHARE:.0%} of the time "
            f"(least: {min(lacking):.0%})",
            advice="other work competed with them during the run; measure again on an idle machine, or with fewer threads",
            serious=len(lacking) > MAX_SHARE_OF_JOBS * len(shares),
        )


def _page_faults(rows: pd.DataFrame) -> Iterator[Concern]:
    """Report latencies whose steps take memory from the system, by the medians over rounds.

    The allocator keeps memory, so steps that still take pages after two discarded bursts take them for good.
    """
    if not {"page_faults", "latency_ms"} <= set(rows):
        return
    known = rows[rows["page_faults"].notna() & rows["latency_ms"].gt(0)]
    shares = 1e3 * FAULT_S * known["page_faults"].astype(float) / known["latency_ms"]
    many = known[shares > MAX_FAULT_SHARE]
    if len(many):
        most = known.loc[shares.idxmax()]
        yield Concern(
            text=f"{len(many)} of {len(known)} latencies hold more than {MAX_FAULT_SHARE:.0%} of taking pages from the system "
            f"(most: {most['model']} n={most['seq_len']}, up to {min(1.0, shares.max()):.0%})",
            advice="see the column page_faults, and `allocator` in the environment: only glibc is told to keep freed memory",
            serious=len(many) > max(1.0, MAX_SHARE_OF_JOBS * len(known)),
        )


def _timer(timed: Sequence[Mapping[str, Any]]) -> Iterator[Concern]:
    coarse = [share for values in timed if (share := values.get("timer_share")) is not None and share > MAX_TIMER_SHARE]
    if coarse:
        yield Concern(
            text=f"reading the timer took up to {max(coarse):.1%} of a sample, in {len(coarse)} of {len(timed)} timed jobs",
            advice="the timer is too slow for such short steps; enlarge --batch",
            serious=False,
        )


def _throttled(timed: Sequence[Mapping[str, Any]]) -> Iterator[Concern]:
    known = [int(reasons) for values in timed if (reasons := values.get("gpu_throttle_reasons")) is not None]
    found = {name: sum(bool(reasons & bit) for reasons in known) for bit, name in SLOWDOWNS.items()}
    if named := {name: num for name, num in found.items() if num}:
        yield Concern(
            text=f"the GPU was slowed down in {', '.join(f'{num} of {len(known)} timed jobs ({name})' for name, num in named.items())}",
            advice="cool the GPU, raise its power limit or fix its clocks; ratios paired by round suffer less than times",
            serious=max(named.values()) > MAX_SHARE_OF_JOBS * len(known),
        )


def _other_gpu_processes(environment: Mapping[str, Any]) -> Iterator[Concern]:
    if environment.get("device") == "cuda" and (num := environment.get("gpu_processes")):
        yield Concern(
            text=f"{num} other processes were on the GPU when the run began",
            advice="they share the GPU's memory and time; measure on an idle GPU",
            serious=True,
        )


def _restless(timed: Sequence[Mapping[str, Any]]) -> Iterator[Concern]:
    known = [int(num) for values in timed if (num := values.get("restless_turns")) is not None]
    if any(known):
        yield Concern(
            text=f"{sum(known)} bursts in {sum(map(bool, known))} of {len(known)} timed jobs began while the previous process was still busy",
            advice="the previous process's threads kept spinning for more than a second; measure with fewer --threads",
            serious=sum(map(bool, known)) > MAX_SHARE_OF_JOBS * len(known),
        )


def _common_drift(timings: Sequence[Timings]) -> Iterator[Concern]:
    """Report if all cells together become slower or faster over rounds."""
    for run in timings:
        num_timed = Counter(place for times in run.values() for place in times)
        most = max(num_timed.values(), default=0)
        rounds = sorted(place for place, num in num_timed.items() if num == most)  # others only unstable cells have
        logs = [[math.log(times[place]) for place in rounds] for times in run.values() if times.keys() >= set(rounds)]
        if not logs or len(rounds) < MIN_DRIFT_ROUNDS:
            continue
        by_round = [math.exp(statistics.fmean(values)) for values in zip(*logs, strict=True)]
        if drifts(by_round):
            yield Concern(
                text=f"the last of {len(by_round)} rounds took {by_round[-1] / by_round[0] - 1:+.0%} time against the first, "
                f"{len(logs)} configurations together",
                advice="the machine changed during the run (heat, clocks, neighbours); use ratios paired by round, or measure again for times",
                serious=False,
            )


def _too_fast(rows: pd.DataFrame) -> Iterator[Concern]:
    """Report times below the roofline of this device: some of the work was not done, or it was counted wrong.

    Bytes allow no shorter time only if no cache holds them, as it does not hold the arrays whose copies give the ceiling.
    """
    if {"mfu", "engine"} <= set(rows):
        yield from _beyond(rows, rows["mfu"].where(rows["engine"].eq("eager")), MAX_MFU, "FLOPs", "matrix products")
    if {"compulsory_bytes", "ceiling_bytes_per_s", "latency_ms", "device"} <= set(rows):
        moved, rate = (pd.to_numeric(rows[name], errors="coerce") for name in ("compulsory_bytes", "ceiling_bytes_per_s"))
        share = (MS_PER_S * moved / rate / rows["latency_ms"]).where(moved > rows["device"].map(COPY_BYTES))
        yield from _beyond(rows, share, MAX_BANDWIDTH, "bytes", "copies")


def _beyond(rows: pd.DataFrame, shares: pd.Series, most: float, what: str, whose: str) -> Iterator[Concern]:
    """Report the steps that reach more than `most` of the rate of a ceiling."""
    if num := int(shares.gt(most).sum()):
        fastest = rows.loc[shares.astype(float).idxmax()]
        yield Concern(
            text=f"{num} of {rows['latency_ms'].notna().sum()} latencies are shorter than their {what} allow on this device "
            f"(most: {fastest['model']} n={fastest['seq_len']}, {shares.max():.1f} times the rate of {whose})",
            advice=f"part of the work was left out, or its {what} are counted wrong; look at the model",
            serious=True,
            about=(TIMES, "FLOPs") if what == "FLOPs" else (TIMES,),
        )


def _changed_host(environments: Sequence[Mapping[str, Any]]) -> Iterator[Concern]:
    """Report ceilings that changed during a run or differ between runs.

    Between runs, only the ceiling that differs most is reported.
    """
    for facts in environments:
        if changed := changed_ceilings(ceilings(facts, AT_START), ceilings(facts, AT_END)):
            figures = (
                f"{name} {start:.3g} at the start, {end:.3g} at the end ({end / start - 1:+.0%})" for name, (start, end) in changed.items()
            )
            yield Concern(
                text=f"the host changed while it was measured: {'; '.join(figures)}",
                advice="use ratios, not times; measure again on a quiet host",
                serious=False,
            )
    rates = []
    for facts in environments:
        start, end = (ceilings(facts, moment) for moment in (AT_START, AT_END))
        rates.append({name: max(start.get(name, 0.0), end.get(name, 0.0)) for name in start | end})
    if found := furthest_apart(rates):
        name, low, high = found
        yield Concern(
            text=f"the hosts of these runs differ: {name} from {low:.3g} to {high:.3g} ({high / low - 1:+.0%})",
            advice="times of different runs are not comparable; use ratios within each run",
            serious=False,
        )


def _unknown_host(environments: Sequence[Mapping[str, Any]]) -> Iterator[Concern]:
    if num := sum(not is_known(facts) for facts in environments):
        of_runs = f" in {num} of {len(environments)} runs" if len(environments) > 1 else ""
        yield Concern(
            text=f"{UNKNOWN}{of_runs}: the type of CPU or GPU could not be read",
            advice="nothing tells it from another host of the same model name; do not compare its times with those of other hosts",
            serious=False,
        )


def _code(environment: Mapping[str, Any]) -> Iterator[Concern]:
    if environment.get("git_dirty"):
        yield Concern(
            text="the code differed from its git revision",
            advice="commit before measuring results to publish",
            serious=False,
            about=(ALL,),
        )


def _quick(rows: pd.DataFrame, metrics: Sequence[str]) -> Iterator[Concern]:
    """Report a quick run, which decides nothing that is timed or trained."""
    if len(rows) and bool(rows["quick"].any()):
        about = tuple(dict.fromkeys(QUANTITIES[metric][0] for metric in metrics if metric in NO_EVIDENCE_IF_QUICK))
        yield Concern(
            text="this was a quick run",
            advice=" on ".join(filter(None, ("measure without --quick before drawing conclusions", " and ".join(about)))),
            serious=bool(about),
            about=about,
        )
