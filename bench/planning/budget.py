"""Matched sizes: the shape nearest to nominal whose parameters (or FLOPs) meet a target within a tolerance."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from bench.measure.model import config_of, cost_of, family_of
from bench.spec import ModelSpec
from models.layers.cost import Cost
from models.layers.shape import Shape

PARAMS_TOLERANCE = 0.005
FLOPS_TOLERANCE = 0.01
GRAIN = 8
FINE_GRAIN = 2
NOMINAL_HEAD_WIDTH = 32
ONE_HEAD = 1
"""Divides every width: where the target lies is found by it, since hardly any cost is of heads."""
FFN_RANGE = (0.5, 2.0)
MAX_GRAINS = 1024
"""How many widths are tried for the narrowest that a model's options allow."""


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


@dataclass(frozen=True, kw_only=True)
class _Refused:
    """A width at which the model cannot be built with the nominal number of heads, or with those asked for."""

    width: int
    reason: str


def match(model: ModelSpec, target: Target, *, heads: int | None = None, width: int | None = None) -> Match | NoMatch:
    """Search width (multiples of 8) and ffn_width (multiples of 8 within half to twice nominal) at the depth of `model.shape`.

    `model.shape`'s width, heads and ffn_width are ignored. `heads` fixes the number of heads; by default it follows the width. `width` fixes that
    too: then ffn_width alone meets the target, in multiples of 2, for those of 8 would miss it. Widths at which the model refuses to be built are
    passed over.
    """
    if sizeless := _sizeless(model, target):
        return sizeless
    best: tuple[float, Match] | None = None
    nearest: Match | None = None
    refused: _Refused | None = None
    for candidate in _candidates(model, target, heads) if width is None else _candidates_at(width, model, target, heads, FINE_GRAIN):
        if isinstance(candidate, _Refused):
            refused = candidate
            continue
        if nearest is None or abs(candidate.error) < abs(nearest.error):
            nearest = candidate
        if abs(candidate.error) <= target.tolerance:
            distance = _distance_from_nominal(candidate.model)
            if best is None or distance < best[0]:
                best = (distance, candidate)
    return best[1] if best else _explain(model, target, nearest, refused)


def narrowest_shape(model: ModelSpec, heads: int | None = None) -> Shape:
    """The least width, a multiple of 8, and an ffn_width that the model's options allow at the length and depth of `model.shape`.

    `heads`: asked for (None: one, which divides every width). Raises ValueError, naming the rule, where no width is allowed.
    """
    chosen = (heads or 1) if family_of(model.family).USES_HEADS else 1
    step, refusal = math.lcm(GRAIN, chosen), None
    for width in range(step, step * MAX_GRAINS + 1, step):
        shape = replace(model.shape, width=width, heads=chosen, ffn_width=_ffn_grain(model, 2 * GRAIN))
        try:
            config_of(replace(model, shape=shape))
        except ValueError as error:
            refusal = refusal or error
        else:
            return shape
    assert refusal is not None
    raise refusal


def _sizeless(model: ModelSpec, target: Target) -> Match | NoMatch | None:
    """The answer for a model that no width makes larger, for which the search would not end; None for any other."""
    width = _round_up(NOMINAL_HEAD_WIDTH, narrowest_shape(model).width)
    small, large = (_range(model, wide, ONE_HEAD, target) for wide in (width, 2 * width))
    if small is None or large is None or small.largest.achieved != large.largest.achieved:
        return None
    only = small.largest
    if abs(only.error) <= target.tolerance:
        return only
    what = "parameters" if target.measure == "params" else "FLOPs"
    return NoMatch(reason=f"has {only.achieved:,} {what} at every width, where {target.value:,} were asked for", nearest=only)


def nominal_shape(model: ModelSpec, *, width: int, heads: int | None, ffn_width: int | None) -> Shape:
    """Sizes set outright, with the nominal number of heads and ffn_width where they are left open."""
    family = family_of(model.family)
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


@dataclass(frozen=True, kw_only=True)
class _Range:
    """The smallest and the largest ffn_width at one width, measured."""

    smallest: Match
    largest: Match


def _candidates(model: ModelSpec, target: Target, heads: int | None) -> Iterator[Match | _Refused]:
    """For each width at which the target can be met, its ends and the best ffn_widths between; besides, the ends just outside."""
    grain = narrowest_shape(model).width
    first = _first_width(model, target, grain)
    for width in range(max(grain, first - grain), target.value + first + grain, grain):
        if heads and width % heads and family_of(model.family).USES_HEADS:
            continue
        found = list(_candidates_at(width, model, target, heads, GRAIN))
        yield from found
        if _is_too_wide(found, width, model, target):
            return


def _is_too_wide(found: list[Match | _Refused], width: int, model: ModelSpec, target: Target) -> bool:
    """Whether what was found at a width says that no wider one can meet the target; where it was refused, what one head would cost says so."""
    if found and isinstance(found[0], Match):
        return found[0].error > target.tolerance
    ends = _range(model, width, ONE_HEAD, target)
    return ends is not None and ends.smallest.error > target.tolerance


def _candidates_at(width: int, model: ModelSpec, target: Target, heads: int | None, grain: int) -> Iterator[Match | _Refused]:
    """The ends of one width, the smaller first, and the best ffn_widths between; the smaller end alone where it is too large already."""
    try:
        found = _range(model, width, heads, target, grain)
    except ValueError as error:
        yield _Refused(width=width, reason=str(error))
        return
    if found is None:
        return
    yield found.smallest
    if found.smallest.error > target.tolerance:
        return
    yield found.largest
    for ffn_width in _between(found, target, model, grain):
        yield _measured(model, replace(found.smallest.model.shape, ffn_width=ffn_width), target)


def _first_width(model: ModelSpec, target: Target, grain: int) -> int:
    """The smallest width whose largest shape reaches the target; cost grows with width, so doubling and halving find it."""

    def reaches(units: int) -> bool:
        found = _range(model, units * grain, ONE_HEAD, target)
        return found is not None and found.largest.achieved >= target.value

    high = 1
    while not reaches(high):
        high *= 2
    low = high // 2 + 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if reaches(middle) else (middle + 1, high)
    return low * grain


def _range(model: ModelSpec, width: int, heads: int | None, target: Target, multiple: int = GRAIN) -> _Range | None:
    """None where no multiple of the grain lies within half to twice the nominal ffn_width."""
    family = family_of(model.family)
    nominal = nominal_shape(model, width=width, heads=heads, ffn_width=None)
    grain = _ffn_grain(model, multiple)
    low = _round_up(FFN_RANGE[0] * family.NOMINAL_FFN_RATIO * width, grain)
    high = int(FFN_RANGE[1] * family.NOMINAL_FFN_RATIO * width) // grain * grain
    if low > high:
        return None
    smallest, largest = (_measured(model, replace(nominal, ffn_width=f), target) for f in (low, high))
    return _Range(smallest=smallest, largest=largest)


def _between(ends: _Range, target: Target, model: ModelSpec, multiple: int) -> Iterator[int]:
    """Cost is affine in ffn_width at fixed width: the multiples of the grain around the exact solution, and the one nearest to nominal that the
    tolerance allows."""
    low, high = ends.smallest.model.shape.ffn_width, ends.largest.model.shape.ffn_width
    slope = (ends.largest.achieved - ends.smallest.achieved) / max(1, high - low)
    if not slope:
        return
    grain, tolerance = _ffn_grain(model, multiple), target.tolerance * target.value
    exact, reach = low + (target.value - ends.smallest.achieved) / slope, tolerance / slope
    nominal = family_of(model.family).NOMINAL_FFN_RATIO * ends.smallest.model.shape.width
    first, last = _round_up(exact - reach, grain), int((exact + reach) // grain) * grain
    nearest = min(max(_round_up(nominal, grain), first), last)
    below = int(exact // grain) * grain
    yield from (f for f in dict.fromkeys((below, below + grain, nearest)) if low <= f <= high)


def _measured(model: ModelSpec, shape: Shape, target: Target) -> Match:
    sized = replace(model, shape=shape)
    achieved = target.of(cost_of(sized), shape.seq_len)
    return Match(model=sized, achieved=achieved, error=target.error(achieved))


def _distance_from_nominal(model: ModelSpec) -> float:
    """Squared log-ratios of ffn_width and head width to their nominal values."""
    family = family_of(model.family)
    shape = model.shape
    distance = math.log(shape.ffn_width / (family.NOMINAL_FFN_RATIO * shape.width)) ** 2
    if family.USES_HEADS:
        distance += math.log(shape.width / shape.heads / NOMINAL_HEAD_WIDTH) ** 2
    return distance


def _ffn_grain(model: ModelSpec, multiple: int) -> int:
    """Multiples that also split evenly into halves and spatial heads where the family has them."""
    spatial_heads = max(1, int(dict(model.options).get("spatial_heads", 1)))
    return math.lcm(multiple, 2 * spatial_heads)


def _round_up(value: float, grain: int) -> int:
    return math.ceil(value / grain) * grain


def _explain(model: ModelSpec, target: Target, nearest: Match | None, refused: _Refused | None) -> NoMatch:
    what = "parameters" if target.measure == "params" else "FLOPs"
    n, depth = model.shape.seq_len, model.shape.depth
    why = f"; at width {refused.width}: {refused.reason}" if refused else ""
    if nearest is None:
        return NoMatch(reason=f"no shape of depth {depth} can be built for {target.value:,} {what}{why}", nearest=None)
    fixed = cost_of(nearest.model).params_seq("blocks").at(n)
    if target.measure == "params" and fixed > target.value:
        reason = (
            f"the length-dependent weights of {depth} blocks alone ({fixed:,} at n = {n}) exceed the budget of {target.value:,} parameters"
        )
    else:
        reason = (
            f"no width and ffn_width (multiples of {GRAIN}) at depth {depth} come within {target.tolerance:.1%} of {target.value:,} {what}"
        )
    return NoMatch(reason=f"{reason}; nearest: {nearest.achieved:,} ({nearest.error:+.2%}){why}", nearest=nearest)
