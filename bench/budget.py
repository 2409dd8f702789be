"""Matched sizes: the shape nearest to nominal whose parameters (or FLOPs) meet a target within a tolerance."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from bench import catalog
from bench.build import cost_of
from bench.spec import ModelSpec
from models.layers.cost import Cost
from models.layers.shape import Shape

PARAMS_TOLERANCE = 0.005
FLOPS_TOLERANCE = 0.01
GRAIN = 8
NOMINAL_HEAD_WIDTH = 32
FFN_RANGE = (0.5, 2.0)


@dataclass(frozen=True, kw_only=True)
class Target:
    """What to meet: `measure` is `params` or `flops` (forward, one sample); `scope` a cost scope or None for the whole model."""

    measure: str
    value: int
    tolerance: float
    scope: str | None = None

    def of(self, cost: Cost, n: int) -> int:
        polynomial = cost.params(self.scope) if self.measure == "params" else cost.flops()
        return polynomial.at(n)

    def error(self, achieved: int) -> float:
        """Signed relative error."""
        return achieved / self.value - 1.0


@dataclass(frozen=True, kw_only=True)
class Match:
    """A shape that meets the target."""

    model: ModelSpec
    achieved: int
    error: float


@dataclass(frozen=True, kw_only=True)
class NoMatch:
    """No shape meets the target; the nearest one, if any could be built."""

    reason: str
    nearest: Match | None


def match(model: ModelSpec, target: Target, *, heads: int | None = None) -> Match | NoMatch:
    """Search width (multiples of 8) and ffn_width (multiples of 8 within half to twice nominal) at the depth of `model.shape`.

    `model.shape`'s width, heads and ffn_width are ignored. `heads` fixes the number of heads; by default it follows the width.
    """
    best: tuple[float, Match] | None = None
    nearest: Match | None = None
    for candidate in _candidates(model, target, heads):
        if nearest is None or abs(candidate.error) < abs(nearest.error):
            nearest = candidate
        if abs(candidate.error) <= target.tolerance:
            distance = _distance_from_nominal(candidate.model)
            if best is None or distance < best[0]:
                best = (distance, candidate)
    return best[1] if best else _explain(model, target, nearest)


def nominal_shape(model: ModelSpec, *, width: int, heads: int | None, ffn_width: int | None) -> Shape:
    """Sizes set outright, with the nominal number of heads and ffn_width where they are left open."""
    family = catalog.load("families", model.family)
    return replace(
        model.shape,
        width=width,
        heads=(heads or nearest_heads(width)) if family.USES_HEADS else 1,
        ffn_width=ffn_width or family.NOMINAL_FFN_RATIO * width,
    )


def nearest_heads(width: int) -> int:
    """The number of heads nearest to width / 32 (as a ratio) that divides the width into heads of a multiple of 8, as fused kernels like them."""
    groups = width // GRAIN if width % GRAIN == 0 else width
    divisors = [h for h in range(1, groups + 1) if groups % h == 0]
    return min(divisors, key=lambda h: (abs(math.log(h * NOMINAL_HEAD_WIDTH / width)), h))


def _candidates(model: ModelSpec, target: Target, heads: int | None) -> Iterator[Match]:
    """For each width, the one or two ffn_widths nearest to the target; stops at the first width that exceeds it at its smallest."""
    family = catalog.load("families", model.family)
    for width in range(GRAIN, target.value + GRAIN, GRAIN):
        if heads and width % heads:
            continue
        nominal = nominal_shape(model, width=width, heads=heads, ffn_width=None)
        grain = _ffn_grain(model)
        low = _round_up(FFN_RANGE[0] * family.NOMINAL_FFN_RATIO * width, grain)
        high = int(FFN_RANGE[1] * family.NOMINAL_FFN_RATIO * width) // grain * grain
        if low > high:
            continue
        smallest, largest = (_measured(model, replace(nominal, ffn_width=f), target) for f in (low, high))
        yield smallest
        if smallest.error > target.tolerance:
            return
        yield largest
        if largest.error < 0:
            continue
        for ffn_width in _between(low, high, smallest.achieved, largest.achieved, target.value, grain):
            yield _measured(model, replace(nominal, ffn_width=ffn_width), target)


def _between(low: int, high: int, at_low: int, at_high: int, value: int, grain: int) -> tuple[int, ...]:
    """Cost is affine in ffn_width at fixed width: the two multiples of `grain` around the exact solution."""
    if high == low:
        return ()
    exact = low + (value - at_low) * (high - low) / (at_high - at_low)
    below = max(low, int(exact) // grain * grain)
    return tuple(f for f in (below, below + grain) if low <= f <= high)


def _measured(model: ModelSpec, shape: Shape, target: Target) -> Match:
    sized = replace(model, shape=shape)
    achieved = target.of(cost_of(sized), shape.seq_len)
    return Match(model=sized, achieved=achieved, error=target.error(achieved))


def _distance_from_nominal(model: ModelSpec) -> float:
    """Squared log-ratios of ffn_width and head width to their nominal values."""
    family = catalog.load("families", model.family)
    shape = model.shape
    distance = math.log(shape.ffn_width / (family.NOMINAL_FFN_RATIO * shape.width)) ** 2
    if family.USES_HEADS:
        distance += math.log(shape.width / shape.heads / NOMINAL_HEAD_WIDTH) ** 2
    return distance


def _ffn_grain(model: ModelSpec) -> int:
    """Multiples of 8 that also split evenly into halves and spatial heads where the family has them."""
    spatial_heads = dict(model.options).get("spatial_heads", 1)
    return math.lcm(GRAIN, 2 * int(spatial_heads))


def _round_up(value: float, grain: int) -> int:
    return math.ceil(value / grain) * grain


def _explain(model: ModelSpec, target: Target, nearest: Match | None) -> NoMatch:
    what = "parameters" if target.measure == "params" else "FLOPs"
    n, depth = model.shape.seq_len, model.shape.depth
    if nearest is None:
        return NoMatch(reason=f"no shape of depth {depth} can be built for {target.value:,} {what}", nearest=None)
    fixed = cost_of(nearest.model).params("blocks").varying().at(n)
    if target.measure == "params" and fixed > target.value:
        reason = (
            f"the length-dependent weights of {depth} blocks alone ({fixed:,} at n = {n}) exceed the budget of {target.value:,} parameters"
        )
    else:
        reason = (
            f"no width and ffn_width (multiples of {GRAIN}) at depth {depth} come within {target.tolerance:.1%} of {target.value:,} {what}"
        )
    return NoMatch(reason=f"{reason}; nearest: {nearest.achieved:,} ({nearest.error:+.2%})", nearest=nearest)
