"""Place the arms of a question by time and quality, over the baseline's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.analysis.effects import QUALITIES, Effect
from bench.intervals import Interval
from bench.numbers import is_empty
from bench.questions import MEASURES, Prediction
from bench.spec import Part

MIN_ARMS = 3
"""Fewer arms are compared by their effects alone."""
TIME = "latency_ms"
MORE_IS_BETTER = tuple(name for name in QUALITIES if not MEASURES[name].is_ratio)
"""Columns of quality, by preference; less perplexity is better."""


@dataclass(frozen=True, kw_only=True)
class ArmPoint:
    """One arm: its time over the baseline's, and its quality.

    `time`: the ratio, with bounds that hold together for the effects on time at its place; exactly 1 for the baseline.
    `quality`: mean over seeds with its own bounds.
    `is_tested`: whether its quality was tested against the baseline's.
    `is_worse`: whether it is shown to be below.
    """

    arm: str
    time: Interval
    quality: Interval
    is_tested: bool
    is_worse: bool


@dataclass(frozen=True, kw_only=True)
class ArmFront:
    """All arms at one length of a trained part.

    `part`, `seq_len`, `quality`: the trained part, its length and the column of its quality.
    `time_part`, `time_seq_len`: the timed part and its length.
    `baseline`: the arm with time 1.
    `points`: in the order of the arms.
    """

    part: str
    seq_len: int
    quality: str
    time_part: str
    time_seq_len: int
    baseline: str
    points: tuple[ArmPoint, ...]


def arm_fronts(
    parts: Sequence[Part], rows: Mapping[str, Mapping[str, Any]], effects: Sequence[Effect], predictions: Sequence[Prediction] = ()
) -> list[ArmFront]:
    """Return a front per trained part and length, in the order of the parts; empty unless a part is timed.

    Times are those of the part timed at the longest n. Of its lengths at which most arms have one, the length is the one that most predictions on
    time ask about, else the longest.
    """
    found = [(part, *times) for part in parts if (times := _times(part, effects, predictions))]
    if not found:
        return []
    timed, seq_len, ratios = max(found, key=lambda one: one[1])
    return [front for part in parts for front in _fronts(part, timed, seq_len, ratios, rows, effects)]


def _times(part: Part, effects: Sequence[Effect], predictions: Sequence[Prediction]) -> tuple[int, Mapping[str, Interval]] | None:
    """Return the length and each arm's time over the baseline's; None if nothing was timed."""
    against = [
        effect
        for effect in effects
        if effect.measure.name == TIME and effect.contrast.part == part.name and effect.contrast.against == part.baseline
    ]
    if not against:
        return None
    nums = Counter(effect.contrast.seq_len for effect in against)
    asked = Counter(found.seq_len for found in predictions if (found.part, found.measure) == (part.name, TIME))
    seq_len = max(nums, key=lambda n: (nums[n], asked[n], n))
    ratios = {effect.contrast.arm: effect.estimate for effect in against if effect.contrast.seq_len == seq_len}
    return seq_len, {part.baseline: Interval(estimate=1.0, low=1.0, high=1.0, num=0), **ratios}


def _fronts(
    part: Part,
    timed: Part,
    time_seq_len: int,
    ratios: Mapping[str, Interval],
    rows: Mapping[str, Mapping[str, Any]],
    effects: Sequence[Effect],
) -> Iterator[ArmFront]:
    by_length: dict[int, dict[str, Mapping[str, Any]]] = {}
    for arm in part.arms:
        for row in (rows[cell] for cell in arm.cells if cell in rows):
            by_length.setdefault(int(row["seq_len"]), {})[arm.name] = row
    for seq_len, arms in sorted(by_length.items()):
        quality = next((name for name in MORE_IS_BETTER if any(not is_empty(row.get(name)) for row in arms.values())), "")
        scored = {name: row for name, row in arms.items() if quality and not is_empty(row.get(quality)) and name in ratios}
        if len(scored) < MIN_ARMS or timed.baseline not in scored:
            continue
        tested = {
            effect.contrast.arm: effect
            for effect in effects
            if (effect.contrast.part, effect.contrast.seq_len, effect.measure.name) == (part.name, seq_len, quality)
            and effect.contrast.against == timed.baseline
            and not effect.caveat
        }
        yield ArmFront(
            part=part.name,
            seq_len=seq_len,
            quality=quality,
            time_part=timed.name,
            time_seq_len=time_seq_len,
            baseline=timed.baseline,
            points=tuple(
                ArmPoint(
                    arm=name,
                    time=ratios[name],
                    quality=_interval(row, quality),
                    is_tested=name in tested,
                    is_worse=name in tested and tested[name].shown and tested[name].distance < 0,
                )
                for name, row in scored.items()
            ),
        )


def _interval(row: Mapping[str, Any], quality: str) -> Interval:
    middle = float(row[quality])
    low, high = (middle if is_empty(row.get(f"{quality}_{end}")) else float(row[f"{quality}_{end}"]) for end in ("low", "high"))
    return Interval(estimate=middle, low=low, high=high, num=int(row.get("num_seeds") or 0))
