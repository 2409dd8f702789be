"""Match sizes: find the shape nearest to nominal that meets a budget.

The budget is a target for parameters or FLOPs, met within a tolerance. A rule limits the shapes to try:

- `canonical`, as in published models: two or more attention heads of 32 to 64 channels; ffn_width within a quarter of its nominal value, which
  is 4 widths (gMLP: 6).
- `free`: any number of heads that divides the width; ffn_width from half to twice its nominal value. More budgets can be met, with less usual shapes.
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
"""Widths and ffn_widths are multiples of this."""
FINE_GRAIN = 2
"""ffn_widths are multiples of this in a finer search."""
NOMINAL_HEAD_WIDTH = 32
ONE_HEAD = 1
"""Number of heads used to locate the target.

One head divides every width, and the number of heads hardly changes cost.
"""
CANONICAL_HEAD_WIDTHS = (32, 40, 48, 56, 64)
CANONICAL_MIN_HEADS = 2
FFN_RANGE = {CANONICAL: (0.75, 1.25), FREE: (0.5, 2.0)}
"""Range of ffn_width, as multiples of its nominal value."""
MAX_GRAINS = 1024
"""Number of widths tried to find the narrowest one allowed."""
MAX_MODELS_COUNTED = 1024
"""Number of models with cached counts, each at one length and depth.

The budgets of a request share the counts.
"""


@dataclass(frozen=True, kw_only=True)
class Target:
    """A budget to meet.

    `measure`: `params`, or `flops` (forward, one sample).
    `value`: number of parameters or FLOPs.
    `tolerance`: largest relative error.
    `scope`: the cost scope to count; None for the whole model.
    """

    measure: str
    value: int
    tolerance: float
    scope: str | None = None

    def of(self, cost: Cost, n: int) -> int:
        """Return the parameters or FLOPs of a cost at length n."""
        return _quantity(cost, self.measure, self.scope).at(n)

    def error(self, achieved: int) -> float:
        """Return the signed relative error."""
        return achieved / self.value - 1.0


def _quantity(cost: Cost, measure: str, scope: str | None) -> Polynomial:
    return cost.params(scope) if measure == "params" else cost.flops()


@dataclass(frozen=True, kw_only=True)
class Match:
    """A shape and its distance from the target.

    `achieved`: parameters or FLOPs.
    `error`: signed relative error.
    """

    model: ModelSpec
    achieved: int
    error: float


@dataclass(frozen=True, kw_only=True)
class NoMatch:
    """No shape meets the target.

    `nearest`: the shape with the smallest error; None if no shape could be built.
    """

    reason: str
    nearest: Match | None


@dataclass(frozen=True, kw_only=True)
class _Unbuildable:
    """A width at which the model cannot be built, with the reason."""

    width: int
    reason: str


def match(model: ModelSpec, target: Target, *, rule: str = FREE, heads: int | None = None, width: int | None = None) -> Match | NoMatch:
    """Find the shape nearest to nominal that meets the target.

    Length and depth come from `model.shape`; its other sizes are ignored. Width and ffn_width are multiples of 8. If no canonical shape meets
    the target, ffn_width may be any multiple of 2. Widths at which the model cannot be built are left out.

    `rule`: CANONICAL or FREE.
    `heads`: the number of heads; by default it follows the width.
    `width`: a fixed width; then only ffn_width varies, in multiples of 2.
    """
    grain = narrowest_shape(model).width
    coarse = _Search(model=model, target=target, rule=rule, heads=heads, ffn_grain=_ffn_grain(model, GRAIN))
    fine = replace(coarse, ffn_grain=_ffn_grain(model, FINE_GRAIN))
    if constant := _width_independent(coarse, grain):
        return constant
    if width is not None and not fine.heads_of(width):
        return NoMatch(reason=f"width {width} allows no number of heads under {rule} sizing", nearest=None)
    if rule == CANONICAL and heads is not None and heads < CANONICAL_MIN_HEADS and family_of(model.family).USES_HEADS:
        return NoMatch(reason=f"canonical sizing needs {CANONICAL_MIN_HEADS} heads or more, not {heads}", nearest=None)
    if width is not None:
        return _nearest_to_nominal(fine, _candidates_at(width, fine))
    found = _nearest_to_nominal(coarse, _candidates(coarse, grain))
    if isinstance(found, Match) or rule == FREE:
        return found
    return _nearest_to_nominal(fine, _candidates(fine, grain))


def _nearest_to_nominal(search: _Search, candidates: Iterable[_Sizes | _Unbuildable]) -> Match | NoMatch:
    """Return the candidate within the tolerance that is nearest to nominal."""
    found: list[_Sizes] = []
    unbuildable: _Unbuildable | None = None
    for candidate in candidates:
        if isinstance(candidate, _Unbuildable):
            unbuildable = candidate
        else:
            found.append(candidate)
    # nearest to nominal first: it usually meets the tolerance, and then the others need not be counted
    for sizes in sorted(found, key=lambda sizes: _distance_from_nominal(search.model, sizes)):
        if abs(search.error(sizes)) <= search.target.tolerance:
            return search.measured(sizes)
    nearest = min(found, key=lambda sizes: abs(search.error(sizes)), default=None)
    return _no_match(search, search.measured(nearest) if nearest else None, unbuildable)


def narrowest_shape(model: ModelSpec, heads: int | None = None) -> Shape:
    """Return the narrowest shape that the model's options allow.

    Length and depth come from `model.shape`; the width is a multiple of 8.
    `heads`: the requested number of heads; None for one, which divides every width.
    Raises ValueError, naming the constraint, if no width is allowed.
    """
    chosen = (heads or 1) if family_of(model.family).USES_HEADS else 1
    step, first_error = math.lcm(GRAIN, chosen), None
    for width in range(step, step * MAX_GRAINS + 1, step):
        shape = replace(model.shape, width=width, heads=chosen, ffn_width=_ffn_grain(model, 2 * GRAIN))
        try:
            config_of(replace(model, shape=shape))
        except ValueError as error:
            first_error = first_error or error
        else:
            return shape
    assert first_error is not None
    raise first_error


def _width_independent(search: _Search, grain: int) -> Match | NoMatch | None:
    """Return the result if cost does not depend on width; else None.

    The search would not end for such a model.
    """
    width, target = _round_up(NOMINAL_HEAD_WIDTH, grain), search.target
    small, large = (_ends(search, wide, ONE_HEAD) for wide in (width, 2 * width))
    if small is None or large is None or search.count(small[1]) != search.count(large[1]):
        return None
    only = search.measured(small[1])
    if abs(only.error) <= target.tolerance:
        return only
    unit = "parameters" if target.measure == "params" else "FLOPs"
    return NoMatch(reason=f"has {only.achieved:,} {unit} at every width, not {target.value:,}", nearest=only)


def nominal_shape(model: ModelSpec, *, width: int, heads: int | None, ffn_width: int | None, rule: str = FREE) -> Shape:
    """Return the shape of given sizes, with nominal values for the rest.

    `heads`, `ffn_width`: None for the nominal value.
    """
    family = family_of(model.family)
    return replace(
        model.shape,
        width=width,
        heads=(heads or nominal_heads(width, rule)) if family.USES_HEADS else 1,
        ffn_width=ffn_width or family.NOMINAL_FFN_RATIO * width,
    )


@functools.cache
def nearest_heads(width: int) -> int:
    """Return the number of heads nearest in ratio to width / 32.

    If the width is a multiple of 8, so are the channels of a head, because fused kernels prefer that.
    """
    groups = width // GRAIN if width % GRAIN == 0 else width
    divisors = [h for h in range(1, groups + 1) if groups % h == 0]
    return min(divisors, key=lambda h: (abs(math.log(h * NOMINAL_HEAD_WIDTH / width)), h))


@functools.cache
def canonical_heads(width: int) -> int | None:
    """Return the canonical number of heads at a width.

    The head width is the smallest of 32, 40, 48, 56 and 64 that divides the width into two or more heads. None if there is none.
    """
    fitting = (width // head for head in CANONICAL_HEAD_WIDTHS if width % head == 0)
    return next((heads for heads in fitting if heads >= CANONICAL_MIN_HEADS), None)


def nominal_heads(width: int, rule: str) -> int:
    """Return the default number of heads at a width.

    It is the canonical number if the rule is canonical and the width allows it, else the nearest.
    """
    return (canonical_heads(width) if rule == CANONICAL else None) or nearest_heads(width)


class _Sizes(NamedTuple):
    """The sizes that a search varies.

    A named tuple, because one search creates and hashes hundreds.
    """

    width: int
    heads: int
    ffn_width: int


@dataclass(frozen=True, kw_only=True)
class _Search:
    """The constants of one search.

    `model`: the model, with its length and depth.
    `heads`: the requested number of heads; None if it follows the width.
    `ffn_grain`: every ffn_width is a multiple of it.
    """

    model: ModelSpec
    target: Target
    rule: str
    heads: int | None
    ffn_grain: int

    @functools.cached_property
    def count(self) -> Callable[[_Sizes], int]:
        """Return a function from sizes to parameters or FLOPs.

        The counts are at the model's length. The function raises ValueError for sizes that cannot be built.
        """
        return _counts(self.model, self.target.measure, self.target.scope)

    def heads_of(self, width: int) -> int | None:
        """Return the number of heads at a width.

        None if neither the rule nor the requested number allows one.
        """
        if not family_of(self.model.family).USES_HEADS:
            return 1
        if self.heads:
            is_canonical = self.heads >= CANONICAL_MIN_HEADS and width // self.heads in CANONICAL_HEAD_WIDTHS
            return self.heads if width % self.heads == 0 and (self.rule == FREE or is_canonical) else None
        return canonical_heads(width) if self.rule == CANONICAL else nearest_heads(width)

    def error(self, sizes: _Sizes) -> float:
        return self.target.error(self.count(sizes))

    def measured(self, sizes: _Sizes) -> Match:
        """Return the model of these sizes, with its error."""
        return Match(model=_sized(self.model, sizes), achieved=self.count(sizes), error=self.error(sizes))


@functools.lru_cache(maxsize=MAX_MODELS_COUNTED)
def _counts(model: ModelSpec, measure: str, scope: str | None) -> Callable[[_Sizes], int]:
    """Return a cached function from sizes to the model's parameters or FLOPs.

    Counts do not depend on the budget, so all budgets share them.
    """

    @functools.cache
    def count(sizes: _Sizes) -> int:
        return _quantity(cost_of(_sized(model, sizes)), measure, scope).at(model.shape.seq_len)

    return count


def _sized(model: ModelSpec, sizes: _Sizes) -> ModelSpec:
    return replace(model, shape=replace(model.shape, width=sizes.width, heads=sizes.heads, ffn_width=sizes.ffn_width))


def _candidates(search: _Search, grain: int) -> Iterator[_Sizes | _Unbuildable]:
    """Yield candidates at every width that can meet the target.

    The widths just outside that range are included, because they may hold the nearest shape.
    """
    first = _first_width(search, grain)
    below = next((width for width in range(first - grain, 0, -grain) if search.heads_of(width)), grain)
    has_any = False
    for width in range(below, search.target.value + first + grain, grain):
        found = list(_candidates_at(width, search))
        yield from found
        has_any = has_any or bool(found)
        if has_any and _is_too_wide(found, width, search):
            return


def _is_too_wide(found: list[_Sizes | _Unbuildable], width: int, search: _Search) -> bool:
    """Return whether the candidates at a width rule out all wider ones.

    If the width has no buildable candidate, the cost with one head decides.
    """
    if found and not isinstance(found[0], _Unbuildable):
        return search.error(found[0]) > search.target.tolerance
    ends = _ends(search, width, ONE_HEAD)
    return ends is not None and search.error(ends[0]) > search.target.tolerance


def _candidates_at(width: int, search: _Search) -> Iterator[_Sizes | _Unbuildable]:
    """Yield the candidates at one width.

    They have the smallest and largest ffn_width, and the best ones between. Only the smallest is yielded if it already exceeds the target.
    """
    heads = search.heads_of(width)
    ends = _ends(search, width, heads) if heads else None
    if ends is None:
        return
    try:
        errors = [search.error(sizes) for sizes in ends]
    except ValueError as error:
        yield _Unbuildable(width=width, reason=str(error))
        return
    yield ends[0]
    if errors[0] > search.target.tolerance:
        return
    yield ends[1]
    yield from _between(search, *ends)


def _first_width(search: _Search, grain: int) -> int:
    """Return the smallest width whose largest shape reaches the target.

    Cost grows with width, so doubling and then bisecting find it.
    """

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
    """Return the sizes with the smallest and largest ffn_width at a width.

    None if no multiple of the grain lies in the rule's range.
    """
    nominal, grain = family_of(search.model.family).NOMINAL_FFN_RATIO * width, search.ffn_grain
    least, most = FFN_RANGE[search.rule]
    low, high = _round_up(least * nominal, grain), int(most * nominal) // grain * grain
    return (_Sizes(width, heads, low), _Sizes(width, heads, high)) if low <= high else None


def _between(search: _Search, smallest: _Sizes, largest: _Sizes) -> Iterator[_Sizes]:
    """Yield the best ffn_widths between the two ends.

    Cost is affine in ffn_width at a fixed width, so the exact solution is known. Yields the multiples of the grain on both sides of it, and the
    one nearest to nominal within the tolerance.
    """
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
    """Sum squared log-ratios of ffn_width and head width to nominal."""
    family = family_of(model.family)
    distance = math.log(sizes.ffn_width / (family.NOMINAL_FFN_RATIO * sizes.width)) ** 2
    if family.USES_HEADS:
        distance += math.log(sizes.width / sizes.heads / NOMINAL_HEAD_WIDTH) ** 2
    return distance


def _ffn_grain(model: ModelSpec, multiple: int) -> int:
    """Return a multiple that also splits into halves and spatial heads."""
    spatial_heads = max(1, int(dict(model.options).get("spatial_heads", 1)))
    return math.lcm(multiple, 2 * spatial_heads)


def _round_up(value: float, grain: int) -> int:
    return math.ceil(value / grain) * grain


def _no_match(search: _Search, nearest: Match | None, unbuildable: _Unbuildable | None) -> NoMatch:
    """Explain in words why no shape meets the target."""
    model, target = search.model, search.target
    unit = "parameters" if target.measure == "params" else "FLOPs"
    n, depth = model.shape.seq_len, model.shape.depth
    why = f"; at width {unbuildable.width}: {unbuildable.reason}" if unbuildable else ""
    if nearest is None:
        return NoMatch(reason=f"no shape of depth {depth} can be built for {target.value:,} {unit}{why}", nearest=None)
    fixed = cost_of(nearest.model).params_seq("blocks").at(n)
    if target.measure == "params" and fixed > target.value:
        reason = (
            f"the length-dependent weights of {depth} blocks alone ({fixed:,} at n = {n}) exceed the budget of {target.value:,} parameters"
        )
    else:
        rule = f" of {search.rule} sizing" if search.rule == CANONICAL else ""
        reason = f"no width and ffn_width{rule} at depth {depth} come within {target.tolerance:.1%} of {target.value:,} {unit}"
    return NoMatch(reason=f"{reason}; nearest: {nearest.achieved:,} ({nearest.error:+.2%}){why}", nearest=nearest)
