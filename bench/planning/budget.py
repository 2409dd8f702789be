"""Matched sizes: the shape nearest to nominal whose parameters (or FLOPs) meet a target within a tolerance.

Two rules say which shapes may be tried. `canonical`: attention has two heads or more, of 32 to 64 channels, and ffn_width is within a quarter of its
nominal value (4 widths; 6 for gMLP), as in the published models. `free`: any number of heads that divides the width, ffn_width from half to twice
its nominal value; more budgets have a size, of stranger shapes.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from bench.measure.model import config_of, cost_of, family_of
from bench.spec import CANONICAL, FREE, ModelSpec
from models.layers.cost import Cost, Polynomial
from models.layers.shape import Shape

PARAMS_TOLERANCE = 0.005
FLOPS_TOLERANCE = 0.01
GRAIN = 8
FINE_GRAIN = 2
NOMINAL_HEAD_WIDTH = 32
ONE_HEAD = 1
"""Divides every width: where the target lies is found by it, since hardly any cost is of heads."""
CANONICAL_HEAD_WIDTHS = (32, 40, 48, 56, 64)
CANONICAL_MIN_HEADS = 2
FFN_RANGE = {CANONICAL: (0.75, 1.25), FREE: (0.5, 2.0)}
"""Of ffn_width, as multiples of its nominal value."""
MAX_GRAINS = 1024
"""How many widths are tried for the narrowest that a model's options allow."""
MAX_MODELS_COUNTED = 1024
"""Of how many models, each of a length and depth, what was counted is kept: those of a request share it among its budgets."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """What to meet: `measure` is `params` or `flops` (forward, one sample); `scope` a cost scope or None for the whole model."""

    measure: str
    value: int
    tolerance: float
    scope: str | None = None

    def of(self, cost: Cost, n: int) -> int:
        return _quantity(cost, self.measure, self.scope).at(n)

    def error(self, achieved: int) -> float:
        """Signed relative error."""
        return achieved / self.value - 1.0


def _quantity(cost: Cost, measure: str, scope: str | None) -> Polynomial:
    return cost.params(scope) if measure == "params" else cost.flops()


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


def match(model: ModelSpec, target: Target, *, rule: str = FREE, heads: int | None = None, width: int | None = None) -> Match | NoMatch:
    """Search width and ffn_width (multiples of 8) among the shapes that the rule allows, at the depth of `model.shape`.

    `model.shape`'s width, heads and ffn_width are ignored. `heads` fixes the number of heads; by default it follows the width. Where no canonical
    shape meets the target, ffn_width may be any multiple of 2. `width` fixes that too: then ffn_width alone meets the target, in multiples of 2.
    Widths at which the model refuses to be built are passed over.
    """
    grain = narrowest_shape(model).width
    coarse = _Search(model=model, target=target, rule=rule, heads=heads, ffn_grain=_ffn_grain(model, GRAIN))
    fine = replace(coarse, ffn_grain=_ffn_grain(model, FINE_GRAIN))
    if sizeless := _sizeless(coarse, grain):
        return sizeless
    if width is not None and not fine.heads_of(width):
        return NoMatch(reason=f"width {width} has no number of heads that {rule} sizing allows", nearest=None)
    if rule == CANONICAL and heads is not None and heads < CANONICAL_MIN_HEADS and family_of(model.family).USES_HEADS:
        return NoMatch(reason=f"canonical sizing has {CANONICAL_MIN_HEADS} heads or more, not {heads}", nearest=None)
    if width is not None:
        return _nearest_to_nominal(fine, _candidates_at(width, fine))
    found = _nearest_to_nominal(coarse, _candidates(coarse, grain))
    if isinstance(found, Match) or rule == FREE:
        return found
    return _nearest_to_nominal(fine, _candidates(fine, grain))


def _nearest_to_nominal(search: _Search, candidates: Iterable[_Sizes | _Refused]) -> Match | NoMatch:
    """Of the candidates within the tolerance."""
    found: list[_Sizes] = []
    refused: _Refused | None = None
    for candidate in candidates:
        if isinstance(candidate, _Refused):
            refused = candidate
        else:
            found.append(candidate)
    # nearest to nominal first: it is within the tolerance more often than not, and no other between the ends of a width need be counted
    for sizes in sorted(found, key=lambda sizes: _distance_from_nominal(search.model, sizes)):
        if abs(search.error(sizes)) <= search.target.tolerance:
            return search.measured(sizes)
    nearest = min(found, key=lambda sizes: abs(search.error(sizes)), default=None)
    return _explain(search, search.measured(nearest) if nearest else None, refused)


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


def _sizeless(search: _Search, grain: int) -> Match | NoMatch | None:
    """The answer for a model that no width makes larger, for which the search would not end; None for any other."""
    width, target = _round_up(NOMINAL_HEAD_WIDTH, grain), search.target
    small, large = (_ends(search, wide, ONE_HEAD) for wide in (width, 2 * width))
    if small is None or large is None or search.count(small[1]) != search.count(large[1]):
        return None
    only = search.measured(small[1])
    if abs(only.error) <= target.tolerance:
        return only
    what = "parameters" if target.measure == "params" else "FLOPs"
    return NoMatch(reason=f"has {only.achieved:,} {what} at every width, where {target.value:,} were asked for", nearest=only)


def nominal_shape(model: ModelSpec, *, width: int, heads: int | None, ffn_width: int | None, rule: str = FREE) -> Shape:
    """Sizes set outright, with the nominal number of heads and ffn_width where they are left open."""
    family = family_of(model.family)
    return replace(
        model.shape,
        width=width,
        heads=(heads or nominal_heads(width, rule)) if family.USES_HEADS else 1,
        ffn_width=ffn_width or family.NOMINAL_FFN_RATIO * width,
    )


@functools.cache
def nearest_heads(width: int) -> int:
    """The number of heads nearest to width / 32 (as a ratio) that divides the width into heads of a multiple of 8, as fused kernels like them."""
    groups = width // GRAIN if width % GRAIN == 0 else width
    divisors = [h for h in range(1, groups + 1) if groups % h == 0]
    return min(divisors, key=lambda h: (abs(math.log(h * NOMINAL_HEAD_WIDTH / width)), h))


@functools.cache
def canonical_heads(width: int) -> int | None:
    """The number of heads, two or more, whose width is the least of 32, 40, 48, 56 and 64 that divides the model's; None where none does."""
    fitting = (width // head for head in CANONICAL_HEAD_WIDTHS if width % head == 0)
    return next((heads for heads in fitting if heads >= CANONICAL_MIN_HEADS), None)


def nominal_heads(width: int, rule: str) -> int:
    """Canonical where the rule asks for it and the width allows it, else the nearest."""
    return (canonical_heads(width) if rule == CANONICAL else None) or nearest_heads(width)


class _Sizes(NamedTuple):
    """What a search varies. No dataclass: hundreds are made and looked up in one search."""

    width: int
    heads: int
    ffn_width: int


@dataclass(frozen=True, kw_only=True)
class _Search:
    """What stays the same while sizes are tried. `heads`: asked for, or None. `ffn_grain`: what every ffn_width is a multiple of."""

    model: ModelSpec
    target: Target
    rule: str
    heads: int | None
    ffn_grain: int

    @functools.cached_property
    def count(self) -> Callable[[_Sizes], int]:
        """The parameters or FLOPs, at the model's length. Raises ValueError for sizes that cannot be built."""
        return _counts(self.model, self.target.measure, self.target.scope)

    def heads_of(self, width: int) -> int | None:
        """Of a model of this width; None where the rule, or the number that was asked for, allows none."""
        if not family_of(self.model.family).USES_HEADS:
            return 1
        if self.heads:
            is_canonical = self.heads >= CANONICAL_MIN_HEADS and width // self.heads in CANONICAL_HEAD_WIDTHS
            return self.heads if width % self.heads == 0 and (self.rule == FREE or is_canonical) else None
        return canonical_heads(width) if self.rule == CANONICAL else nearest_heads(width)

    def error(self, sizes: _Sizes) -> float:
        return self.target.error(self.count(sizes))

    def measured(self, sizes: _Sizes) -> Match:
        return Match(model=_sized(self.model, sizes), achieved=self.count(sizes), error=self.error(sizes))


@functools.lru_cache(maxsize=MAX_MODELS_COUNTED)
def _counts(model: ModelSpec, measure: str, scope: str | None) -> Callable[[_Sizes], int]:
    """What a model counts at sizes: nothing of it depends on the budget, so each is counted once for all of them."""

    @functools.cache
    def count(sizes: _Sizes) -> int:
        return _quantity(cost_of(_sized(model, sizes)), measure, scope).at(model.shape.seq_len)

    return count


def _sized(model: ModelSpec, sizes: _Sizes) -> ModelSpec:
    return replace(model, shape=replace(model.shape, width=sizes.width, heads=sizes.heads, ffn_width=sizes.ffn_width))


def _candidates(search: _Search, grain: int) -> Iterator[_Sizes | _Refused]:
    """For each width at which the target can be met, its ends and the best ffn_widths between; besides, the ends just outside."""
    first = _first_width(search, grain)
    below = next((width for width in range(first - grain, 0, -grain) if search.heads_of(width)), grain)
    has_any = False
    for width in range(below, search.target.value + first + grain, grain):
        found = list(_candidates_at(width, search))
        yield from found
        has_any = has_any or bool(found)
        if has_any and _is_too_wide(found, width, search):
            return


def _is_too_wide(found: list[_Sizes | _Refused], width: int, search: _Search) -> bool:
    """Whether what was found at a width says that no wider one can meet the target; where it was refused, what one head would cost says so."""
    if found and not isinstance(found[0], _Refused):
        return search.error(found[0]) > search.target.tolerance
    ends = _ends(search, width, ONE_HEAD)
    return ends is not None and search.error(ends[0]) > search.target.tolerance


def _candidates_at(width: int, search: _Search) -> Iterator[_Sizes | _Refused]:
    """The ends of one width, the smaller first, and the best ffn_widths between; the smaller end alone where it is too large already."""
    heads = search.heads_of(width)
    ends = _ends(search, width, heads) if heads else None
    if ends is None:
        return
    try:
        errors = [search.error(sizes) for sizes in ends]
    except ValueError as error:
        yield _Refused(width=width, reason=str(error))
        return
    yield ends[0]
    if errors[0] > search.target.tolerance:
        return
    yield ends[1]
    yield from _between(search, *ends)


def _first_width(search: _Search, grain: int) -> int:
    """The smallest width whose largest shape reaches the target; cost grows with width, so doubling and halving find it."""

    def reaches(units: int) -> bool:
        ends = _ends(search, units * grain, ONE_HEAD)
        return ends is not None and search.count(ends[1]) >= search.target.value

    high = 1
    while not reaches(high):
        high *= 2
    low = high // 2 + 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if reaches(middle) else (middle + 1, high)
    return low * grain


def _ends(search: _Search, width: int, heads: int) -> tuple[_Sizes, _Sizes] | None:
    """The smallest and the largest ffn_width at one width; None where no multiple of the grain lies within the rule's range."""
    nominal, grain = family_of(search.model.family).NOMINAL_FFN_RATIO * width, search.ffn_grain
    least, most = FFN_RANGE[search.rule]
    low, high = _round_up(least * nominal, grain), int(most * nominal) // grain * grain
    return (_Sizes(width, heads, low), _Sizes(width, heads, high)) if low <= high else None


def _between(search: _Search, smallest: _Sizes, largest: _Sizes) -> Iterator[_Sizes]:
    """Cost is affine in ffn_width at fixed width: the multiples of the grain around the exact solution, and the one nearest to nominal that the
    tolerance allows."""
    low, high, least = smallest.ffn_width, largest.ffn_width, search.count(smallest)
    slope = (search.count(largest) - least) / max(1, high - low)
    if not slope:
        return
    grain, value, tolerance = search.ffn_grain, search.target.value, search.target.tolerance
    exact, reach = low + (value - least) / slope, tolerance * value / slope
    nominal = family_of(search.model.family).NOMINAL_FFN_RATIO * smallest.width
    first, last = _round_up(exact - reach, grain), int((exact + reach) // grain) * grain
    nearest = min(max(_round_up(nominal, grain), first), last)
    below = int(exact // grain) * grain
    yield from (smallest._replace(ffn_width=f) for f in dict.fromkeys((below, below + grain, nearest)) if low <= f <= high)


def _distance_from_nominal(model: ModelSpec, sizes: _Sizes) -> float:
    """Squared log-ratios of ffn_width and head width to their nominal values."""
    family = family_of(model.family)
    distance = math.log(sizes.ffn_width / (family.NOMINAL_FFN_RATIO * sizes.width)) ** 2
    if family.USES_HEADS:
        distance += math.log(sizes.width / sizes.heads / NOMINAL_HEAD_WIDTH) ** 2
    return distance


def _ffn_grain(model: ModelSpec, multiple: int) -> int:
    """Multiples that also split evenly into halves and spatial heads where the family has them."""
    spatial_heads = max(1, int(dict(model.options).get("spatial_heads", 1)))
    return math.lcm(multiple, 2 * spatial_heads)


def _round_up(value: float, grain: int) -> int:
    return math.ceil(value / grain) * grain


def _explain(search: _Search, nearest: Match | None, refused: _Refused | None) -> NoMatch:
    model, target = search.model, search.target
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
        rule = f" of {search.rule} sizing" if search.rule == CANONICAL else ""
        reason = f"no width and ffn_width{rule} at depth {depth} come within {target.tolerance:.1%} of {target.value:,} {what}"
    return NoMatch(reason=f"{reason}; nearest: {nearest.achieved:,} ({nearest.error:+.2%}){why}", nearest=nearest)
