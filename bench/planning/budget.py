"""Match sizes: find the shape nearest to nominal that meets a budget.

The budget is a target for parameters, FLOPs or the state, met within a tolerance. Shapes are those of published models: two or more attention heads
of 32 to 64 channels; ffn_width within a quarter of its nominal value, which is 4 widths (gMLP: 6). At a width that is given, ffn_width moves further.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from bench.measure.model import config_of, cost_of, family_of
from bench.planning.law import Counts, Law, Numbers, law_of
from bench.spec import ModelSpec
from models.layers.cost import Cost, Polynomial
from models.layers.shape import Shape

PARAMS_TOLERANCE = 0.005
FLOPS_TOLERANCE = 0.01
STATE_TOLERANCE = 0.01
GRAIN = 8
"""Widths and ffn_widths are multiples of this, and so are the halves that a gate multiplies (docs/decisions/0023)."""
FINE_GRAIN = 2
"""ffn_widths are multiples of this in a finer search."""
NOMINAL_HEAD_WIDTH = 32
CANONICAL_HEAD_WIDTHS = (32, 40, 48, 56, 64)
EVERY_HEAD_WIDTH = tuple(range(32, 65))
"""Head widths in a search for a state, which often follows from the width alone."""
MIN_HEADS = 2
FFN_RANGE, FFN_RANGE_AT_WIDTH = (0.75, 1.25), (0.5, 2.0)
"""Ranges of ffn_width, as multiples of its nominal value: of any width, and of one that is given."""
FIRST_WIDTHS, MAX_WIDTH = 16, 1 << 17
"""Number of widths counted at first; then twice as many each time, up to the largest width."""
MAX_GRAINS = 1024
"""Number of widths tried to find the narrowest one allowed."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """A budget to meet.

    `measure`: `params`, `flops` (forward, one sample) or `state` (numbers held after n tokens).
    `value`: number of them.
    `tolerance`: largest relative error.
    `scope`: the cost scope to count; None for the whole model.
    """

    measure: str
    value: int
    tolerance: float
    scope: str | None = None

    def of(self, cost: Cost, n: int) -> int:
        """Return the number of what is counted at length n."""
        return self.quantity(cost).at(n)

    def quantity(self, cost: Cost) -> Polynomial:
        """Return the polynomial in n that is counted."""
        return cost.params(self.scope) if self.measure == "params" else cost.state() if self.measure == "state" else cost.flops()

    @property
    def unit(self) -> str:
        return {"params": "parameters", "flops": "FLOPs", "state": "numbers of state"}[self.measure]

    @functools.cached_property
    def bounds(self) -> tuple[int, int]:
        """The least and the largest number within the tolerance."""
        least, most = math.ceil((1 - self.tolerance) * self.value), math.floor((1 + self.tolerance) * self.value)
        return least + (abs(self.error(least)) > self.tolerance), most - (abs(self.error(most)) > self.tolerance)

    def error(self, achieved: int) -> float:
        """Return the signed relative error."""
        return achieved / self.value - 1.0


@dataclass(frozen=True, kw_only=True)
class Match:
    """A shape and its distance from the target.

    `achieved`: the number of what is counted.
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


def match(model: ModelSpec, target: Target, *, heads: int | None = None, width: int | None = None) -> Match | NoMatch:
    """Find the shape nearest to nominal that meets the target.

    Length and depth come from `model.shape`; its other sizes are ignored. Width and ffn_width are multiples of 8, ffn_width one of 16 where the model
    multiplies its halves; if no such shape meets the target, ffn_width may be any multiple of 8, or else of 2. Widths at which the model cannot be
    built are left out. If no such shape has the state of the target, the width and that of a head may be any.

    `heads`: the number of heads; by default it follows the width.
    `width`: a given width; then only ffn_width varies, in multiples of 2, and so far that the target is met if it can be.
    """
    if not family_of(model.family).USES_HEADS:
        heads = None
    if width is None and heads is not None and heads < MIN_HEADS:
        return NoMatch(reason=f"models that people train have {MIN_HEADS} heads or more, not {heads}", nearest=None)
    found = _match_among(CANONICAL_HEAD_WIDTHS, model, target, heads, width)
    if isinstance(found, NoMatch) and target.measure == "state" and not width:
        return _match_among(EVERY_HEAD_WIDTH, model, target, heads, width)
    return found


def _match_among(head_widths: tuple[int, ...], model: ModelSpec, target: Target, heads: int | None, width: int | None) -> Match | NoMatch:
    law = _law(model, target, heads, width, head_widths)
    fine = _search_in_reach(law, model, target, width or (max(head_widths) * heads if heads else MAX_WIDTH), at_width=bool(width))
    grains = () if width else (2 * GRAIN, GRAIN) if getattr(family_of(model.family), "HALVES_FFN", False) else (GRAIN,)
    coarse = (replace(fine, grain=_ffn_grain(model, grain)).nearest_to_nominal() for grain in grains)
    return next(filter(None, coarse), None) or fine.nearest_to_nominal() or _no_match(fine, law.problems)


def _law(model: ModelSpec, target: Target, heads: int | None, width: int | None, head_widths: tuple[int, ...]) -> Law:
    """Return the counts of a model at any length and at every width, or at a given one.

    `head_widths`: those allowed; where all are, so is every width.
    """

    def heads_of(wide: int) -> int | None:
        if not family_of(model.family).USES_HEADS:
            return 1
        if width:
            return heads or nominal_heads(wide)
        if heads:
            return heads if wide % heads == 0 and wide // heads in head_widths else None
        return canonical_heads(wide, head_widths)

    def make() -> Law:
        grain = width or (1 if head_widths == EVERY_HEAD_WIDTH else narrowest_shape(model).width)
        ffn_unit = _ffn_grain(model, FINE_GRAIN)
        return Law(model=model, quantity=target.quantity, heads_of=heads_of, grain=grain, ffn_unit=ffn_unit)

    key = (model.family, model.options, model.interface, model.shape.depth, target.measure, target.scope, heads, width, head_widths)
    return law_of(key, model.shape.seq_len, make)


def _search_in_reach(law: Law, model: ModelSpec, target: Target, max_width: int, *, at_width: bool) -> _Search:
    """Return a search, in the finest grain, of the widths that can meet the target: up to twice the first that is too large.

    Counts need not rise with the width: a wider model may have fewer heads, or smaller ones.
    """
    widest = min(FIRST_WIDTHS * law.grain, max_width)
    while True:
        law.up_to(widest)
        search = _Search(model=model, target=target, counts=law.at(model.shape.seq_len), grain=law.ffn_unit, at_width=at_width)
        too_large = np.flatnonzero(search.smallest > target.bounds[1])
        if len(too_large) and 2 * search.counts.widths[too_large[0]] <= widest:
            return search
        if search.is_constant or widest >= max_width:
            return search
        widest *= 2


@dataclass(frozen=True, kw_only=True)
class _Search:
    """One search among the shapes of a model at one length.

    ffn_widths are counted in grains, unless a docstring says otherwise.

    `grain`: every ffn_width is a multiple of it.
    `at_width`: whether the width is given.
    """

    model: ModelSpec
    target: Target
    counts: Counts
    grain: int
    at_width: bool

    @functools.cached_property
    def step(self) -> Numbers:
        """Parameters or FLOPs of one grain of ffn_width, by width."""
        return self.counts.slope * (self.grain // _ffn_grain(self.model, FINE_GRAIN))

    @functools.cached_property
    def nominal(self) -> Numbers:
        """The nominal ffn_width, in channels, by width."""
        nominal: Numbers = self.counts.widths * family_of(self.model.family).NOMINAL_FFN_RATIO
        return nominal

    @property
    def ffn_range(self) -> tuple[float, float]:
        """The least and the largest ffn_width, as multiples of its nominal value."""
        return FFN_RANGE_AT_WIDTH if self.at_width else FFN_RANGE

    @functools.cached_property
    def ends(self) -> tuple[Numbers, Numbers]:
        """The least and the largest ffn_width, by width; where there is none, the least is above the largest."""
        least, most = self.ffn_range
        return np.ceil(least * self.nominal / self.grain), np.floor(most * self.nominal / self.grain)

    @functools.cached_property
    def smallest(self) -> Numbers:
        """The least count, by width."""
        return self.counts.base + self.step * self.ends[0]

    @property
    def is_constant(self) -> bool:
        """Whether the count does not depend on the width."""
        return len(self.smallest) > 1 and bool(self.smallest[0] == self.smallest[-1])

    def nearest_to_nominal(self) -> Match | None:
        """Return the shape within the tolerance whose ffn_width and head width have the least sum of squared log-ratios to nominal."""
        first, last = self._within_tolerance()
        places = np.flatnonzero(first <= last)
        if not len(places):
            return None
        nominal = self.nominal[places] / self.grain
        ffn_widths = np.stack([np.clip(near(nominal), first[places], last[places]) for near in (np.floor, np.ceil)])
        distances = np.log(ffn_widths / nominal) ** 2
        if family_of(self.model.family).USES_HEADS:
            distances += np.log(self.counts.widths / self.counts.heads / NOMINAL_HEAD_WIDTH)[places] ** 2
        chosen = np.unravel_index(distances.argmin(), distances.shape)
        return self._match(int(places[chosen[1]]), ffn_widths[chosen])

    def _within_tolerance(self) -> tuple[Numbers, Numbers]:
        """Return the least and the largest ffn_width within the tolerance, by width; where there is none, the least is above the largest."""
        (low, high), step = self.ends, np.maximum(self.step, 1)
        least, most = (bound - self.counts.base for bound in self.target.bounds)
        first, last = np.maximum(low, -(-least // step)), np.minimum(high, most // step)
        of_constant = np.where((least <= 0) & (most >= 0), high, -1)  # a cost without ffn_width is met by every one, or by none
        return np.where(self.step > 0, first, low), np.where(self.step > 0, last, of_constant)

    def nearest_to_target(self) -> Match | None:
        """Return the shape whose count is nearest to the target; None if there is no shape."""
        (low, high), base, value = self.ends, self.counts.base[:, None], self.target.value
        below = (value - self.counts.base) // np.maximum(self.step, 1)
        ffn_widths = np.stack([np.clip(each, low, high) for each in (low, high, below, below + 1)], axis=1)
        errors = np.where((low <= high)[:, None], np.abs(base + self.step[:, None] * ffn_widths - value), np.inf)
        if not np.isfinite(errors).any():
            return None
        place, which = divmod(int(errors.argmin()), ffn_widths.shape[1])
        return self._match(place, ffn_widths[place, which])

    def _match(self, place: int, ffn_width: float) -> Match:
        width, heads = int(self.counts.widths[place]), int(self.counts.heads[place])
        model = replace(self.model, shape=replace(self.model.shape, width=width, heads=heads, ffn_width=int(ffn_width) * self.grain))
        achieved = self.target.of(cost_of(model), model.shape.seq_len)
        return Match(model=model, achieved=achieved, error=self.target.error(achieved))


def _no_match(search: _Search, problems: Mapping[int, str]) -> NoMatch:
    """Explain in words why no shape meets the target.

    `problems`: reasons of widths that cannot be built.
    """
    target, n, depth = search.target, search.model.shape.seq_len, search.model.shape.depth
    unit = target.unit
    nearest, widths = search.nearest_to_target(), search.counts.widths
    problem = next((width for width in problems if not len(widths) or width <= widths[-1]), None)
    why = f"; at width {problem}: {problems[problem]}" if problem else ""
    if nearest is None:
        return NoMatch(reason=f"no shape of depth {depth} can be built for {target.value:,} {unit}{why}", nearest=None)
    fixed = cost_of(nearest.model).params_seq("blocks").at(n)
    if search.is_constant:
        return NoMatch(reason=f"has {nearest.achieved:,} {unit} at every width, not {target.value:,}", nearest=nearest)
    if target.measure == "params" and fixed > target.value:
        reason = (
            f"the length-dependent weights of {depth} blocks alone ({fixed:,} at n = {n}) exceed the budget of {target.value:,} parameters"
        )
    else:
        sizes = f" and width {nearest.model.shape.width} no" if search.at_width else " no width with an"
        least, most = (share * family_of(nearest.model.family).NOMINAL_FFN_RATIO for share in search.ffn_range)
        ranged = f"at depth {depth}{sizes} ffn_width of {least:g} to {most:g} times the width"
        reason = f"{ranged} comes within {target.tolerance:.1%} of {target.value:,} {unit}"
    return NoMatch(reason=f"{reason}; nearest: {nearest.achieved:,} ({nearest.error:+.2%}){why}", nearest=nearest)


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


def nominal_shape(model: ModelSpec, *, width: int, heads: int | None, ffn_width: int | None) -> Shape:
    """Return the shape of given sizes, with nominal values for the rest.

    `heads`, `ffn_width`: None for the nominal value.
    """
    family = family_of(model.family)
    return replace(
        model.shape,
        width=width,
        heads=(heads or nominal_heads(width)) if family.USES_HEADS else 1,
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
def canonical_heads(width: int, head_widths: tuple[int, ...] = CANONICAL_HEAD_WIDTHS) -> int | None:
    """Return the canonical number of heads at a width.

    The head width is the smallest of 32, 40, 48, 56 and 64, or of others, that divides the width into two or more heads. None if there is none.
    """
    fitting = (width // head for head in head_widths if width % head == 0)
    return next((heads for heads in fitting if heads >= MIN_HEADS), None)


def nominal_heads(width: int) -> int:
    """Return the default number of heads at a given width: the canonical number if there is one, else the nearest."""
    return canonical_heads(width) or nearest_heads(width)


def _ffn_grain(model: ModelSpec, multiple: int) -> int:
    """Return a multiple that also splits into halves and spatial heads."""
    spatial_heads = max(1, int(dict(model.options).get("spatial_heads", 1)))
    return math.lcm(multiple, 2 * spatial_heads)
