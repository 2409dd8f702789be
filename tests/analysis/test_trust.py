"""Each finding appears when it should, and not otherwise."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from bench.analysis.trust import QUANTITIES, Concern, concerns, trusted
from bench.reading.timings import Timings

CLEAN = {"busy_cores": 0.1, "num_cores": 2, "git_dirty": False, "cpu_type": "AMD EPYC family 26", "work_version": "w"}
GPU = {"device": "cuda", "gpu": "Example", "gpu_memory_bytes": 2**36}
RATES = {"copy_bytes_per_s": 1e10, "torch_mm_flops_per_s": 1e11}
CONTROL = {"ratio": 1.0, "low": 0.98, "high": 1.02, "level": 0.999, "contains_one": True}


def rows(**columns: Any) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "model": ["gmlp", "vit"],
            "seq_len": [17, 17],
            "status": "measured",
            "quick": False,
            "latency_stable": [True, True],
            **dict.fromkeys((column for _, column in QUANTITIES.values()), 1.0),
            **columns,
        }
    )


def rounds(by_round: list[float]) -> Timings:
    """Three cells that become slower alike."""
    return Timings({f"c{cell}": {place: (cell + 1) * factor for place, factor in enumerate(by_round)} for cell in range(3)})


def retried(by_round: list[float]) -> Timings:
    """One of them got as many rounds again, all of them slow."""
    further = {len(by_round) + place: 9.0 for place in range(len(by_round))}
    found = dict(rounds(by_round))
    return Timings({**found, "c0": {**found["c0"], **further}})


def found(table: pd.DataFrame, **changes: Any) -> list[Concern]:
    given: dict[str, Any] = {"control": CONTROL, "environment": CLEAN, "metrics": ("latency",), "num_missing": 0, **changes}
    return concerns(table, **given)


def test_a_clean_run_has_no_findings() -> None:
    assert found(rows(), control=None, metrics=("params",)) == []
    timed = {"threads": 1, "processor_share": 1.0, "timer_share": 1e-4, "gpu_throttle_reasons": 1}
    assert found(rows(page_faults=[5000, None], latency_ms=1e3)) == []
    assert found(rows(engine=["eager", "other"], mfu=[1.1, 2.0])) == []  # another engine may have faster products than torch's
    assert found(rows(), timed=[timed, {}], timings=[rounds([1.0, 1.01, 0.99, 1.0, 1.01, 0.99, 1.0]), rounds([1.0, 2.0, 3.0])]) == []


@pytest.mark.parametrize(
    ("table", "changes", "words", "serious"),
    [
        (rows(), {"num_missing": 3}, "3 jobs were not run", True),
        (rows(), {"control": None}, "no A/A control", True),
        (rows(), {"control": {**CONTROL, "ratio": 1.2, "contains_one": False}}, "+20.0% (99.9 % interval", False),
        (rows(latency_stable=[False, True]), {}, "1 of 2 latencies are unstable (gmlp n=17)", False),
        (rows(latency_stable=[False, False]), {}, "2 of 2 latencies are unstable", False),
        (rows(latency_stable=[False, None], latency_ms=[1.0, None]), {"metrics": ["params"]}, "1 of 1 latencies are unstable", False),
        (rows(status=["measured", "killed"]), {}, "1 of 2 configurations were not fully measured", False),
        (rows(), {"environment": {**CLEAN, "busy_cores": 1.5}}, "other work took 1.5 of 2 cores when the run began", True),
        (rows(), {"environment": {**CLEAN, "busy_cores": 1.5}, "others": [CLEAN]}, "of 2 cores when 1 of 2 runs began", True),
        (rows(), {"environment": {**CLEAN, "busy_cores": 1.5}, "others": [CLEAN] * 2}, "of 2 cores when 1 of 3 runs began", False),
        (rows(), {"environment": {**CLEAN, "busy_cores": 1.5}, "metrics": ["params", "accuracy"]}, "other work took 1.5 of 2 cores", False),
        (rows(), {"environment": {**CLEAN, "git_dirty": True}}, "the code differed", False),
        (rows(quick=True), {}, "quick run", True),
        (rows(quick=True), {"metrics": ("params", "accuracy")}, "quick run", True),
        (rows(quick=True), {"metrics": ("params", "flops", "memory")}, "quick run", False),
        (rows(), {"timed": [{"threads": 1, "processor_share": 0.5}] * 2}, "2 of 2 timed jobs had the processor for less", True),
        (
            rows(),
            {"timed": [{"threads": 1, "processor_share": 0.5}] + [{"threads": 1, "processor_share": 1.0}] * 19},
            "1 of 20 timed",
            False,
        ),
        (
            rows(page_faults=[24_000, 3], latency_ms=96.0),
            {},
            "1 of 2 latencies hold more than 2% of taking pages from the system (most: gmlp",
            False,
        ),
        (rows(page_faults=24_000, latency_ms=96.0), {}, "2 of 2 latencies hold more than 2% of taking pages", True),
        (
            rows(engine="eager", mfu=[0.4, 1.6]),
            {},
            "1 of 2 latencies are shorter than their FLOPs allow on this device (most: vit n=17, 1.6",
            True,
        ),
        (
            rows(compulsory_bytes=[2**30, 2**20], ceiling_bytes_per_s=1e10, latency_ms=[40.0, 0.001], device="cpu"),
            {},
            "1 of 2 latencies are shorter than their bytes allow on this device (most: gmlp n=17, 2.7",  # the other's are in a cache
            True,
        ),
        (rows(), {"timed": [{"timer_share": 0.02}, {"timer_share": 0.0}]}, "reading the timer took up to 2.0%", False),
        (rows(), {"timed": [{"gpu_throttle_reasons": 0x44}] * 3}, "3 of 3 timed jobs (heat, by hardware)", True),
        (
            rows(),
            {"environment": {**CLEAN, **GPU, "gpu_processes": 2}},
            "2 other processes were on the GPU",
            True,
        ),
        (rows(), {"timings": [rounds([1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6])]}, "the last of 7 rounds took +60% time", False),
        (
            rows(),
            {"timings": [retried([1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6])]},
            "+60% time against the first, 3 configurations together",
            False,
        ),
        (rows(), {"environment": {**CLEAN, "threads": 1, "load_at_end": 4.0}}, "4 processes wanted a processor", False),
        (rows(), {"environment": {**CLEAN, "executors": ["inline", "process"]}}, "--on inline", True),
        (rows(), {"environment": {**CLEAN, "executors": ["ray"]}, "metrics": ["accuracy"]}, "trainings ran in slots of Ray", False),
        (rows(), {"others": [{**CLEAN, "cpu_type": None}]}, "host unknown in 1 of 2 runs", False),
    ],
)
def test_each_finding(table: pd.DataFrame, changes: dict[str, Any], words: str, serious: bool) -> None:
    (finding,) = found(table, **changes)
    assert words in finding.text
    assert finding.serious is serious
    assert finding.advice in finding.sentence


def test_a_finding_doubts_what_it_is_about_alone_and_serious_ones_come_first() -> None:
    metrics = ("params", "latency", "memory", "accuracy")
    busy = found(rows(quick=True), metrics=metrics, environment={**CLEAN, "busy_cores": 1.5})
    assert ["other work" in finding.text for finding in busy] == [True, False]
    assert trusted(busy, metrics, rows()) == {"parameters": True, "times": False, "memory": True, "accuracy": False}
    assert [finding.about for finding in busy] == [("times",), ("times", "accuracy")]
    for source, is_doubted in (("rapl", True), ("nvml", False)):  # a CPU's counter holds the other work
        counted = found(rows(energy_source=source), environment={**CLEAN, "busy_cores": 1.5})
        assert trusted(counted, ("energy",), rows()) == {"energy": not is_doubted}
    assert not any(trusted(found(rows(), num_missing=3), metrics, rows()).values())
    assert all(trusted([], metrics, rows()).values())


def test_what_no_row_has_is_named_and_not_called_trusted() -> None:
    metrics, without = ("latency", "energy"), rows(energy_j=None, energy_reason=["no counter", None])
    (finding,) = found(without, metrics=metrics)
    assert (finding.text, finding.advice, finding.serious) == ("no configuration has a value: energy", "no counter", False)
    assert trusted([finding], metrics, without) == {"times": True}
    (unscored,) = found(rows(num_seeds=None), metrics=("accuracy",))
    assert unscored.text.endswith("accuracy")


def noted(start: float | None, end: float | None, name: str = "torch_mm_flops_per_s") -> dict[str, Any]:
    """An environment with one ceiling of its own at start and end; None: no ceilings were measured then."""
    rates = [None if rate is None else {**RATES, name: rate} for rate in (start, end)]
    return {**CLEAN, "ceilings_at_start": rates[0], "ceilings_at_end": rates[1]}


@pytest.mark.parametrize(
    ("start", "end", "figures"),
    [
        (1e11, 0.5e11, ["torch_mm_flops_per_s 1e+11 at the start, 5e+10 at the end (-50%)"]),
        (1e11, 1.2e11, ["torch_mm_flops_per_s 1e+11 at the start, 1.2e+11 at the end (+20%)"]),
        (1e11, 1.1e11, []),
        (1e11, None, []),
        (None, None, []),
    ],
)
def test_a_host_that_changed_is_a_finding_with_figures(start: float | None, end: float | None, figures: list[str]) -> None:
    said = [finding.text for finding in found(rows(), environment=noted(start, end))]
    assert said == [f"the host changed while it was measured: {text}" for text in figures]


def test_either_of_several_ceilings_counts_in_one_finding() -> None:
    environment = noted(1e10, 2e10, "copy_bytes_per_s")
    environment["ceilings_at_end"] |= {"torch_mm_flops_per_s": 2e11}
    (finding,) = found(rows(), environment=environment)
    assert "copy_bytes_per_s 1e+10 at the start" in finding.text
    assert "; torch_mm_flops_per_s 1e+11 at the start" in finding.text


def test_of_merged_runs_the_largest_difference_between_their_hosts_is_a_finding() -> None:
    runs = [noted(1e11, 1.1e11), noted(1.5e11, 1.5e11), noted(2.2e11, 2.2e11)]
    (finding,) = found(rows(), environment=runs[0], others=runs[1:])
    assert finding.text == "the hosts of these runs differ: torch_mm_flops_per_s from 1.1e+11 to 2.2e+11 (+100%)"
    assert found(rows(), environment=runs[0], others=[noted(1.2e11, 1.2e11)]) == []
