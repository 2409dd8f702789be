"""The experiments about the harness: their pure functions by hand; a busy machine is left idle; a session goes on only with itself."""

from __future__ import annotations

import math
import statistics
import subprocess
from collections.abc import Callable
from pathlib import Path

import pandas
import pytest
import torch
from torch.utils.benchmark import Timer

from bench.measure.step import Step, build_step
from bench.spec import Cell, ModelSpec, Plan, RequestError, Workload
from models.layers.shape import Shape
from tests.benchmarks.harness import busy, folders, peers
from tests.benchmarks.harness.cost_summary import cells_table, protocols_table
from tests.benchmarks.harness.readings import BENCH, TIMM, TIMM_SCRIPT, TORCH
from tests.benchmarks.harness.repeated import busy_repetitions, control_table, ratio_table, repetitions_table
from tests.benchmarks.harness.spread import (
    expected_to_hold,
    half_width,
    processes_needed,
    relative_width,
    single_process_s,
    spread,
    spread_interval,
)

T_975_TWO, T_975_FIVE, T_975_SIX = 4.302652729911275, 2.5705818366147395, 2.4469118487916806
"""Student's t, two-sided 95 %, for 2, 5 and 6 degrees of freedom, from tables."""


def test_half_width_of_three_values_by_hand() -> None:
    values = [math.exp(v) for v in (1.0, 2.0, 3.0)]
    assert spread(values) == pytest.approx(1.0)
    assert half_width(values) == pytest.approx(T_975_TWO / math.sqrt(3))
    with pytest.raises(ValueError, match="two values or more, not 1"):
        spread([1.0])


def test_processes_needed_by_the_table_of_t() -> None:
    """At a spread as large as the half-width wanted, t(k - 1) / sqrt(k) <= 1: six processes miss it (1.05), seven do not (0.92)."""
    assert T_975_FIVE / math.sqrt(6) > 1 > T_975_SIX / math.sqrt(7)
    assert processes_needed(0.02, 0.02) == 7
    assert processes_needed(0.02 * math.sqrt(7) / T_975_SIX, 0.02 * 1.0001) == 7
    assert processes_needed(1e-9, 0.02) == 2
    assert processes_needed(1.0, 1e-6) is None


def test_what_one_process_would_need_grows_with_the_square_of_its_width() -> None:
    assert single_process_s(3.0, 10.0, own=0.02, wanted=0.01) == pytest.approx(43.0)
    assert relative_width(math.log(1.1) / 2) == pytest.approx(0.1)


def test_interval_of_a_spread_by_the_table_of_chi_square() -> None:
    """Chi-square with 10 degrees of freedom: 2.5 % below 3.247, 97.5 % below 20.483."""
    assert spread_interval(1.0, 10) == pytest.approx((math.sqrt(10 / 20.483), math.sqrt(10 / 3.247)), rel=1e-4)


def test_of_forty_intervals_at_99_percent_38_to_40_may_be_expected_to_hold() -> None:
    """By hand, P(X <= 37) = 0.007 and P(X <= 38) = 0.061: 2.5 % lies between."""
    assert expected_to_hold(40, 0.99) == (38, 40)
    below_38 = sum(math.comb(40, k) * 0.99**k * 0.01 ** (40 - k) for k in range(38))
    assert below_38 < 0.025 < below_38 + math.comb(40, 38) * 0.99**38 * 0.01**2


def _readings(protocol: str, latencies: dict[str, list[float]], own: float) -> list[dict[str, object]]:
    return [
        {
            "pass": 1,
            "protocol": protocol,
            "process": i,
            "cell": cell,
            "latency_ms": v,
            "low_ms": v * math.exp(-own),
            "high_ms": v * math.exp(own),
        }
        for cell, values in latencies.items()
        for i, v in enumerate(values)
    ]


def _runs(wall_s: dict[str, float], timed_s: float) -> pandas.DataFrame:
    return pandas.DataFrame([{"pass": 1, "protocol": p, "process": 0, "wall_s": w, "timed_s": timed_s} for p, w in wall_s.items()])


def _spaced(middle: float, step: float, num: int) -> list[float]:
    return [middle * math.exp(step * (i - (num - 1) / 2)) for i in range(num)]


def test_equal_width_by_the_spread_between_processes_and_by_what_one_process_says() -> None:
    """Peer and bench spread alike, so the peer needs as many processes as bench has rounds; what one process says of itself promises far less."""
    values = {"a": _spaced(10.0, 0.01, 7), "b": _spaced(20.0, 0.02, 7)}
    readings = pandas.DataFrame([*_readings(BENCH, values, 0.001), *_readings(TIMM, values, 0.0001)])
    cells = cells_table(readings)
    protocols = protocols_table(cells, _runs({BENCH: 60.0, TIMM: 13.0}, 10.0)).set_index("protocol")
    assert cells["processes"].tolist() == [7, 7, 7, 7]
    assert cells[cells["cell"] == "a"]["spread"].iloc[0] == pytest.approx(0.01 * math.sqrt(14 / 3))
    # only the process in the middle holds the mean of seven that lie ten own half-widths apart
    assert cells["own_holds"].tolist() == pytest.approx([1 / 7] * 4)
    assert protocols.loc[TIMM, "equal_width_s"] == pytest.approx(7 * 13.0)
    assert protocols.loc[TIMM, "every_cell_s"] == pytest.approx(7 * 13.0)
    wanted = math.sqrt(0.01 * 0.02) * math.sqrt(14 / 3) * T_975_SIX / math.sqrt(7)
    assert protocols.loc[TIMM, "naive_s"] == pytest.approx(3.0 + 10.0 * (0.0001 / wanted) ** 2)
    assert protocols.loc[BENCH, "width"] == pytest.approx(math.expm1(2 * wanted))


def test_a_peer_of_twice_the_spread_needs_more_and_one_without_intervals_has_no_naive_time() -> None:
    bench, peer = {"a": _spaced(10.0, 0.01, 7)}, {"a": _spaced(10.0, 0.02, 7)}
    silent = [{**row, "low_ms": None, "high_ms": None} for row in _readings(TIMM, peer, 0.01)]
    cells = cells_table(pandas.DataFrame([*_readings(BENCH, bench, 0.001), *silent]))
    row = cells[cells["protocol"] == TIMM].iloc[0]
    assert row["processes"] > 2 * 7 < row["processes_high"]
    assert row["processes_low"] < row["processes"] < row["processes_high"]
    protocols = protocols_table(cells, _runs({BENCH: 60.0, TIMM: 13.0}, 10.0)).set_index("protocol")
    assert math.isnan(protocols.loc[TIMM, "naive_s"])
    assert protocols.loc[TIMM, "equal_width_s"] == pytest.approx(row["processes"] * 13.0)


def _bench_latencies(repetition: int, is_busy: bool, control_factor: float) -> list[dict[str, object]]:
    """Three rounds: gmlp takes 2, 2.2 and 1.8 times as long as vit; the control `control_factor` times as long as vit, give or take 1 %."""
    rows = []
    for number, (ratio, jitter) in enumerate(zip((2.0, 2.2, 1.8), (0.99, 1.0, 1.01), strict=True)):
        slow = 1.0 + number
        for cell, control, value in (("gmlp", False, ratio), ("vit", False, 1.0), ("vit", True, control_factor * jitter)):
            keys = {"repetition": repetition, "busy": is_busy, "protocol": BENCH, "cell": cell, "control": control, "round": number}
            rows.append({**keys, "latency_ms": slow * value, "run_s": 16.0, "other_cores": 0.0})
    return rows


def _peer_latencies(repetition: int, is_busy: bool, ratio: float) -> list[dict[str, object]]:
    keys = {"repetition": repetition, "busy": is_busy, "protocol": TIMM, "control": False, "round": 0, "run_s": 4.0, "other_cores": 0.0}
    return [{**keys, "cell": "gmlp", "latency_ms": ratio}, {**keys, "cell": "vit", "latency_ms": 1.0}]


def test_repetitions_pair_by_round_and_a_control_that_is_off_is_not_counted() -> None:
    rows = [row for i, factor in enumerate((1.0, 1.5, 1.0)) for row in _bench_latencies(i, i == 2, factor)]
    rows += [row for i, ratio in enumerate((2.0, 2.0 * math.e, 2.0)) for row in _peer_latencies(i, i == 2, ratio)]
    repetitions = repetitions_table(pandas.DataFrame(rows), "gmlp", "vit")
    ratios = repetitions[repetitions["protocol"] == BENCH]["ratio"].tolist()
    assert ratios == pytest.approx([statistics.geometric_mean([2.0, 2.2, 1.8])] * 3)
    control = control_table(repetitions).set_index("condition")
    assert control["hold_1"].to_dict() == {"quiet": 1, "busy": 1, "all": 2}
    # t(0.995, 2 degrees of freedom) = 9.924843; the logs of 0.99, 1, 1.01 spread by 0.0100002
    assert control.loc["busy", "width_median"] == pytest.approx(math.expm1(2 * 9.924843 * 0.0100002 / math.sqrt(3)), rel=1e-4)
    spreads = ratio_table(repetitions).set_index(["condition", "protocol"])
    assert spreads.loc[("quiet", TIMM), "spread"] == pytest.approx(1 / math.sqrt(2))
    # four of its runs fit into one of bench, which halves the spread
    assert spreads.loc[("quiet", TIMM), "spread_at_equal_time"] == pytest.approx(0.5 / math.sqrt(2))
    assert spreads.loc[("quiet", BENCH), "holds"] == 2


def test_the_second_half_is_busy() -> None:
    assert busy_repetitions(5) == [False, False, True, True, True]
    assert busy_repetitions(4, first=True) == [True, True, False, False]


def test_a_machine_kept_busy_is_left_idle_whatever_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []

    class Noted(subprocess.Popen[bytes]):
        def __init__(self, command: list[str], **given: int) -> None:
            super().__init__(command, stderr=given["stderr"])
            started.append(self)

    monkeypatch.setattr(subprocess, "Popen", Noted)
    with pytest.raises(KeyboardInterrupt):
        _interrupted_while_busy(started)
    assert len(started) == 2
    assert all(process.poll() is not None for process in started)


def _interrupted_while_busy(started: list[subprocess.Popen[bytes]]) -> None:
    with busy.burning(2):
        assert [process.poll() for process in started] == [None, None]
        raise KeyboardInterrupt


def test_a_session_goes_on_only_with_its_own_settings_and_machine(tmp_path: Path) -> None:
    folder = tmp_path / "session"
    folders.start_folder(folder, {"rounds": 7})
    folders.start_folder(folder, {"rounds": 7})
    with pytest.raises(RequestError, match="begun with"):
        folders.start_folder(folder, {"rounds": 3})
    (tmp_path / "other").write_text("")
    with pytest.raises(RequestError, match="holds something else"):
        folders.start_folder(tmp_path, {"rounds": 7})
    folders.agree_on_environment(folder, {"cpu_model": "A", "load": 1.0})
    folders.agree_on_environment(folder, {"cpu_model": "A", "load": 2.0})
    with pytest.raises(RequestError, match="another cpu_model: 'A' then, 'B' now"):
        folders.agree_on_environment(folder, {"cpu_model": "B"})


def test_a_table_shows_three_digits_and_nothing_for_nothing() -> None:
    table = pandas.DataFrame({"name": ["a", "b"], "value": [0.012345, math.nan], "count": [7, 12]})
    assert folders.markdown_table(table).splitlines()[2:] == ["| a | 0.0123 | 7 |", "| b |  | 12 |"]


SCRIPT = """
import json, sys
import torch
from timm.data import resolve_data_config
from timm.models import create_model

model = create_model(sys.argv[2], num_classes=None, in_chans=3)
size = resolve_data_config({}, model=model)["input_size"]
torch.manual_seed(1)
answer = model(torch.randn(int(sys.argv[sys.argv.index("--batch-size") + 1]), *size))
print("--result" + chr(10) + json.dumps({"infer_step_time": float(answer.detach().abs().sum())}))
"""
"""Speaks to timm as its benchmark.py does; the time that it reports is a checksum of what the model answered."""


@pytest.fixture
def cell() -> Cell:
    shape = Shape(seq_len=5, width=16, depth=1, heads=2, ffn_width=32)
    return Cell(model=ModelSpec(name="vit", family="vit", shape=shape), workload=Workload(batch_size=2))


@pytest.fixture
def plan() -> Plan:
    return Plan(name="", command="", created="", metrics=("latency",), cells=())


def test_the_protocol_of_timm_calls_ten_times_and_then_means_over_forty(cell: Cell, plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    monkeypatch.setattr(peers, "build_step", _noting(calls))
    reading = peers.reading_of(TIMM, cell, plan, None)
    assert len(calls) == 50
    assert (reading.cell, reading.num_samples) == ("vit n=5", 40)
    assert reading.low_ms is not None
    assert reading.low_ms < reading.latency_ms < 1e3 * reading.timed_s


def test_the_timer_of_torch_gives_a_median_and_says_how_sure_one_process_is(
    cell: Cell, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Measured:
        times = (0.001, 0.002, 0.004)

    monkeypatch.setattr(Timer, "blocked_autorange", lambda *_, **__: Measured)
    reading = peers.reading_of(TORCH, cell, plan, None)
    # the logs lie log 2 apart on both sides of the middle
    half = T_975_TWO * math.log(2) / math.sqrt(3)
    assert (reading.latency_ms, reading.num_samples) == (2.0, 3)
    assert (reading.low_ms, reading.high_ms) == pytest.approx((2 * math.exp(-half), 2 * math.exp(half)))


def test_timms_script_reads_our_module_as_one_of_its_own(cell: Cell, plan: Plan, tmp_path: Path) -> None:
    pytest.importorskip("timm")
    script = tmp_path / "benchmark.py"
    script.write_text(SCRIPT)
    step = build_step(cell, seed=plan.settings.seed)
    torch.manual_seed(1)
    answer = step.model(torch.randn(2, 1, *step.data.shape[1:]).squeeze(1))
    reading = peers.reading_of(TIMM_SCRIPT, cell, plan, script)
    assert reading.latency_ms == pytest.approx(float(answer.detach().abs().sum()))
    assert reading.low_ms is None


def _noting(calls: list[int]) -> Callable[..., Step]:
    """`build_step`, its model telling of every call."""

    def build(cell: Cell, *, seed: int) -> Step:
        step = build_step(cell, seed=seed)
        step.model.register_forward_hook(lambda *_: calls.append(1))
        return step

    return build
