"""Resolve the sizes of every model of a request.

Sizes are matched to a budget, published, or set by flags. A model without a feasible size is skipped with a reason.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from bench import catalog
from bench.errors import one_line
from bench.measure.model import config_of, cost_of, family_of, is_counted, state_of
from bench.measure.weights import cells_to_begin
from bench.planning.budget import (
    FLOPS_TOLERANCE,
    PARAMS_TOLERANCE,
    STATE_TOLERANCE,
    Match,
    NoMatch,
    Target,
    match,
    narrowest_shape,
    nominal_heads,
    nominal_shape,
)
from bench.planning.own_width import FFN_RATIO, nearest_width
from bench.planning.request import ModelRequest, Request, parse_model
from bench.planning.values import params_text
from bench.pooling import pool_of
from bench.spec import CANONICAL, FREE, NO_MATCH, ModelSpec, RequestError, Sizing, Skipped
from bench.tasks._info import info_of
from models.layers.cost import ZERO, Cost
from models.layers.shape import Interface, Shape

MAX_DEPTH_TRIED, MAX_BUDGETS_TRIED = 24, 20
BUDGET_STEPS = (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8)
"""Round budgets that a hint may suggest, times powers of ten."""
SUGGESTED_WIDTHS = (64, 96, 128, 192, 256, 384, 512, 768, 1024)
"""Widths that a hint may suggest: with heads of 32 channels."""
OWN = "python"
"""The family of a user's own models."""
MISSING = re.compile(r"missing \d+ required .*argument.*?: '(\w+)'")
REFUSES = "refuses its arguments"
"""Words of an error that another width may mend; those of all other kinds remain."""
ADVICE = {
    REFUSES: "give arguments that it takes: FILE.py:NAME+argument=VALUE",
    "must return a torch.nn.Module": "return a torch.nn.Module",
    "cannot count": "a count without it would be too small; write it as torch's own matrix products",
    "deepcopy": "name a function that builds it: a built module is copied for every use",
    r"(?i)meta (?:device type )?tensor|data-(?:in)?dependent|depends on values": (  # torch's words where values are asked for, and ours
        "let sizes alone decide what its forward pass does: what depends on the values of its data has no one count of FLOPs"
    ),
}
"""What to do about a model from a user's code, by words of the error; the first that are found."""
BY_REFERENCE = {"flops": FLOPS_TOLERANCE, "state": STATE_TOLERANCE}
"""Policies that match the size of a reference, with their tolerances."""
CAUSAL_REFERENCE = "metaformer+mixer=attention:causal=true"
PLACEHOLDER = Shape(seq_len=2, width=8, depth=1, heads=1, ffn_width=16)


@dataclass(frozen=True, kw_only=True)
class SizedModel:
    """A model with all sizes resolved; `Sizing` explains the fields."""

    model: ModelSpec
    match: str
    budget: int | None
    budget_error: float | None
    rule: str = FREE


def resolve_models(request: Request) -> Iterator[SizedModel | Skipped]:
    """Yield every model at every length and budget.

    Models keep the order of the request; lengths grow if a budget sets the sizes. Raises RequestError if options or given sizes cannot be built.
    """
    for wanted in request.models:
        if wanted.is_outside:
            yield from _resolve_outside(wanted, request)
        elif wanted.variant:
            yield from _resolve_variant(wanted, request)
        elif request.width and not request.params:
            for n in request.seq:
                yield _resolve_given(wanted, request, n)
        else:
            yield from _resolve_budgets(wanted, request)


def _resolve_variant(wanted: ModelRequest, request: Request) -> Iterator[SizedModel | Skipped]:
    shape, interface, options = family_of(wanted.family).VARIANTS[wanted.variant]
    for n in request.seq or (shape.seq_len,):
        model = ModelSpec(
            name=wanted.name,
            family=wanted.family,
            options=tuple(sorted({**options, **dict(wanted.options)}.items())),
            shape=replace(shape, seq_len=n),
            interface=replace(interface, input=request.input),
        )
        yield _checked(replace(model, interface=_task_interface(model, request)) if request.task else model)


def _resolve_outside(wanted: ModelRequest, request: Request) -> Iterator[SizedModel]:
    """Yield a model from outside this repository, with published or given sizes, or sized by its width.

    Raises RequestError if it cannot be built or counted.
    """
    if request.width and request.params and not wanted.is_published:
        raise RequestError(f"`width` and `params` both set the size of {wanted.name}", "leave `width` or `params` out")
    if request.width or (wanted.is_published and not _stands_beside(wanted, request)):
        for n in request.seq or (None,):
            model = _outside_spec(wanted, request, n, request.width)
            _require_countable(model)
            yield SizedModel(model=model, match=NO_MATCH, budget=None, budget_error=None)
        return
    kept: dict[int, int | None] = {}
    for n in sorted(request.seq):
        for budget, width in _own_widths(wanted, request, n, kept).items():
            model = _outside_spec(wanted, request, n, width)
            _require_countable(model)
            target = _own_target(wanted, request, n, budget)
            error = target.error(target.of(cost_of(model), n))
            yield SizedModel(model=model, match=request.match, budget=budget, budget_error=error)


def _stands_beside(wanted: ModelRequest, request: Request) -> bool:
    """Return whether a published model is a convolutional network beside models that a budget sizes, with which it is compared at the nearest."""
    sized = request.params and any(not model.is_published for model in request.models)
    return bool(sized and family_of(wanted.family).reads_whole(wanted.options))


def _own_widths(wanted: ModelRequest, request: Request, n: int, kept: dict[int, int | None]) -> dict[int, int | None]:
    """Return the width of a user's own model for every budget; None if its size is as it is, for the nearest budget alone.

    `kept`: widths at the shortest length, by budget, which a shape keeps; this function adds to it.
    """
    if request.match == "shape" and kept:
        return kept
    if wanted.is_published or not family_of(wanted.family).takes(wanted.options, "width"):
        model = _outside_spec(wanted, request, n, None)
        _require_countable(model)
        params = cost_of(model).params().at(n)
        nearest = min(request.params, key=lambda budget: abs(math.log(budget / params))) if params else request.params[0]
        found: dict[int, int | None] = {nearest: None}
    else:
        found = {budget: _own_width(wanted, request, n, budget) for budget in request.params}
    kept |= found
    return found


def _own_width(wanted: ModelRequest, request: Request, n: int, budget: int) -> int:
    target = _own_target(wanted, request, n, budget)
    at_any_width: list[ValueError] = []

    def count(width: int) -> int:
        if at_any_width:
            raise at_any_width[0]
        model = _outside_spec(wanted, request, n, width)
        try:
            return target.of(cost_of(model), n)
        except RequestError:
            raise
        except Exception as error:  # code from outside may raise anything
            found = ValueError(one_line(error))
            if any(re.search(words, str(found)) for words in ADVICE if words != REFUSES):
                at_any_width.append(found)
            raise found from error

    try:
        return nearest_width(count, target.value)
    except RequestError:
        raise
    except ValueError as error:
        advice = _advice(wanted.name, error, _call_text(_outside_spec(wanted, request, n, None)))
        raise RequestError(f"{wanted.name} cannot be built and counted at seq_len {n}: {error}", advice) from error


def _own_target(wanted: ModelRequest, request: Request, n: int, budget: int) -> Target:
    """Return the budget of a user's own model; under --match flops, the FLOPs of the reference.

    Raises RequestError if the reference has no size, or under --match state, which is known of our models alone.
    """
    if request.match == "state":
        raise RequestError(f"`match=state` knows nothing of the state of {wanted.name}", f"leave {wanted.name} out, or give `width` alone")
    if request.match == "flops":
        found = _reference_target(_outside_spec(wanted, request, n, None), request, budget)
        if isinstance(found, Target):
            return found
        raise RequestError(f"`match=flops`: {found.reason}", "choose another budget or length")
    return Target(measure="params", value=budget, tolerance=PARAMS_TOLERANCE)


def _outside_spec(wanted: ModelRequest, request: Request, n: int | None, width: int | None) -> ModelSpec:
    """Return a model from outside at length n; None for its own length."""
    heads = request.heads or (nominal_heads(width) if width else None)
    ffn_width = request.ffn_width or (FFN_RATIO * width if width and not wanted.is_published else None)
    asked = {"width": width, "depth": request.depth, "heads": heads, "ffn_width": ffn_width}
    family = family_of(wanted.family)
    model: ModelSpec = family.spec_of(wanted.name, wanted.options, seq_len=n, sizes=asked, input=request.input, task=request.task)
    return model


def _require_countable(model: ModelSpec) -> None:
    """Raise RequestError if a model from outside cannot be built and called, or its answer has another shape than the labels."""
    family, n = family_of(model.family), model.shape.seq_len
    called = _call_text(model) if model.family == OWN else ""
    try:
        cost_of(model)
        wrong = family.wrong_answer(config_of(model)) if model.family == OWN else ""
    except RequestError:
        raise
    except Exception as error:  # code from outside may raise anything
        reason = f"{model.name} cannot be built and counted at seq_len {n}: {one_line(error)}"
        raise RequestError(reason, _advice(model.name, error, called) if called else "try another `seq`, or another `input`") from error
    if wrong:
        raise RequestError(f"{model.name}: {called}; {wrong}", "change what it returns")


def _advice(name: str, error: Exception, called: str) -> str:
    """Say how a user's own model that cannot be built or called may be."""
    if missing := MISSING.search(str(error)):
        return f"give the argument as an option: {name}+{missing[1]}=VALUE"
    if found := next((advice for words, advice in ADVICE.items() if re.search(words, str(error))), ""):
        return found
    others = '; if it takes images, add READS = "images" to its file or class; if token ids, `input=tokens`'
    return f"it is {called}" + (others if called.count(", ") == 2 else "")


def _call_text(model: ModelSpec) -> str:
    text: str = family_of(model.family).call_text(config_of(model))
    return text


def _resolve_given(wanted: ModelRequest, request: Request, n: int) -> SizedModel | Skipped:
    model = _placeholder_model(wanted, request, n)
    assert request.width is not None
    shape = nominal_shape(model, width=request.width, heads=request.heads, ffn_width=request.ffn_width)
    return _checked(replace(model, shape=shape))


def _checked(model: ModelSpec) -> SizedModel:
    """Return a model with given or published sizes.

    Raises RequestError if it cannot be built.
    """
    try:
        config_of(model)
    except ValueError as error:
        hint = (
            "see: bench list families"
            if model.name.split("+")[0] != model.family
            else "change `width`, `heads` or `ffn_width`, or give `params`"
        )
        raise RequestError(f"{model.name}: {error}", hint) from error
    return SizedModel(model=model, match=NO_MATCH, budget=None, budget_error=None)


def _resolve_budgets(wanted: ModelRequest, request: Request) -> Iterator[SizedModel | Skipped]:
    for budget in request.params:
        shape: Shape | None = None
        for n in sorted(request.seq):
            model = _placeholder_model(wanted, request, n)
            if begun := _begun_shape(model, request, budget):
                yield _same_shape(replace(model, shape=begun), request, budget)
                continue
            if request.match == "shape" and shape is not None:
                yield _same_shape(replace(model, shape=replace(shape, seq_len=n)), request, budget)
                continue
            resolved = _match_budget(model, request, budget)
            if isinstance(resolved, SizedModel):
                shape = resolved.model.shape
            yield resolved
            if request.match == "shape" and shape is None:
                yield from _skip_longer(wanted, request, budget, n)
                break


def _begun_shape(model: ModelSpec, request: Request, budget: int) -> Shape | None:
    """Return the shape of the weights that a model's training begins with, of several the nearest to the budget; None if there are none of it.

    A head of another number of classes would otherwise change the sizes that meet the budget, and the weights would not fit. Raises RequestError if
    all of it are of another length or depth.
    """
    n, start = model.shape.seq_len, str(dict(request.recipe).get("init", ""))
    shapes = [cell.model.shape for cell in cells_to_begin(start) if cell.model.name == model.name]
    fitting = [shape for shape in shapes if (shape.seq_len, shape.depth) == (n, request.depth)]
    if shapes and not fitting:
        held = sorted({(shape.seq_len, shape.depth) for shape in shapes})
        texts = " and ".join(f"n = {length} and depth {depth}" for length, depth in held)
        raise RequestError(
            f"`recipe=init={start}`: those weights of {model.name} are of {texts}, not n = {n} and depth {request.depth}",
            f"try `seq={held[0][0]}` `depth={held[0][1]}`",
        )
    return min(fitting, key=lambda shape: abs(cost_of(replace(model, shape=shape)).params().at(n) - budget), default=None)


def _same_shape(model: ModelSpec, request: Request, budget: int) -> SizedModel:
    target = _params_target(request, budget)
    error = target.error(target.of(cost_of(model), model.shape.seq_len))
    return SizedModel(model=model, match="shape", budget=budget, budget_error=error, rule=_rule(request))


def _rule(request: Request) -> str:
    """Return how far sizes may be from those of published models: at a given width as far as the budget takes them."""
    return FREE if request.width else CANONICAL


def _skip_longer(wanted: ModelRequest, request: Request, budget: int, solved_at: int) -> Iterator[Skipped]:
    for n in sorted(request.seq):
        if n > solved_at:
            reason = f"the shape is solved at the shortest length, n = {solved_at}, where none meets the budget"
            yield Skipped(model=wanted.name, seq_len=n, budget=budget, reason=reason)


def _match_budget(model: ModelSpec, request: Request, budget: int) -> SizedModel | Skipped:
    n, found = model.shape.seq_len, _sized_for(model, request, budget)
    if isinstance(found, Match):
        return SizedModel(model=found.model, match=request.match, budget=budget, budget_error=found.error, rule=_rule(request))
    nearest = None
    if found.nearest:
        nearest = cost_of(found.nearest.model).params(_scope(request)).at(n)
    return Skipped(model=model.name, seq_len=n, budget=budget, reason=found.reason, nearest_params=nearest)


def _sized_for(model: ModelSpec, request: Request, budget: int) -> Match | NoMatch:
    if request.match == "state" and state_of(model) is None:
        return NoMatch(reason="--match state needs a model in which no token reads a later one (bench list mixers: causal)", nearest=None)
    target: Target | NoMatch = _params_target(request, budget)
    if request.match in BY_REFERENCE and model.name != request.reference:
        target = _reference_target(model, request, budget)
    return target if isinstance(target, NoMatch) else match(model, target, heads=request.heads, width=request.width)


def has_sizes(request: Request, n: int, budget: int) -> bool:
    """Return whether every family meets this budget at this length.

    Models from outside and published variants are ignored, and under --match state those that read ahead.
    """
    models = [model for model in _families(request, n) if request.match != "state" or state_of(model) is not None]
    return all(isinstance(_sized_for(model, request, budget), Match) for model in models)


def _families(request: Request, n: int) -> list[ModelSpec]:
    return [_placeholder_model(wanted, request, n) for wanted in request.models if not (wanted.is_outside or wanted.variant)]


def suggested_flags(request: Request, n: int, budget: int) -> str:
    """Suggest flags with which every family has a size at this length.

    They are the nearest depth, the nearest round budget and a width, at which ffn_width may move further, as alternatives; "" if none gives a size.
    """
    own = request.depth
    depths = sorted((depth for depth in range(1, MAX_DEPTH_TRIED + 1) if depth != own), key=lambda depth: (abs(depth - own), depth))
    at_depth = ((depth, replace(request, depth=depth)) for depth in depths)
    depth = next((depth for depth, other in at_depth if has_sizes(other, n, budget)), None)
    fixed = max((cost_of(model).params_seq("blocks").at(n) for model in _families(request, n)), default=0)
    steps = (round(step * 10**exponent) for exponent in range(3, 9) for step in BUDGET_STEPS)
    budgets = sorted((params for params in steps if params != budget and params > fixed), key=lambda params: abs(math.log(params / budget)))
    params = next((params for params in budgets[:MAX_BUDGETS_TRIED] if has_sizes(request, n, params)), None)
    widths = (width for width in SUGGESTED_WIDTHS if fixed < budget and not request.width)
    width = next((width for width in widths if has_sizes(replace(request, width=width), n, budget)), None)
    own_budget = "" if "params" in request.typed else f" --params {params_text(budget)}"
    ways = {f"--depth {depth}": depth, f"--params {params_text(params or 0)}": params, f"--width {width}{own_budget}": width}
    return " or ".join(way for way, works in ways.items() if works)


def _params_target(request: Request, budget: int) -> Target:
    return Target(measure="params", value=budget, tolerance=PARAMS_TOLERANCE, scope=_scope(request))


def _reference_target(model: ModelSpec, request: Request, budget: int) -> Target | NoMatch:
    """Return the forward FLOPs of the reference family as the target, or its state.

    Raises RequestError if the reference has no state.
    """
    reference = _reference_of(model, request)
    found = match(reference, _params_target(request, budget), heads=request.heads, width=request.width)
    if isinstance(found, NoMatch):
        return replace(found, reason=f"the reference {request.reference} has no size here: {found.reason}")
    target = Target(measure=request.match, value=1, tolerance=BY_REFERENCE[request.match])
    value = target.of(cost_of(found.model), model.shape.seq_len)
    if target.measure == "state" and not (state_of(found.model) and value):
        raise RequestError(f"`reference={request.reference}` carries no state from token to token", f"try `reference={CAUSAL_REFERENCE}`")
    return replace(target, value=value)


def _reference_of(model: ModelSpec, request: Request) -> ModelSpec:
    """Return the reference family with the model's pooling.

    Both then read the same tokens. A reference without that pooling uses its default. Raises RequestError if it cannot be built.
    """
    plain = parse_model(request.reference)
    has_pool = any(option.name == "pool" for option in catalog.options(plain.family)) and "pool" not in dict(plain.options)
    wanted = [replace(plain, options=tuple(sorted((*plain.options, ("pool", pool_of(model)))))), plain] if has_pool else [plain]
    for reference in wanted:
        try:
            return _placeholder_model(reference, request, model.shape.seq_len)
        except RequestError as error:
            problem = error
    families = ", ".join(catalog.names("families"))
    raise RequestError(f"`reference={request.reference}` cannot be matched: {problem}", f"try another of {families}") from problem


def _scope(request: Request) -> str | None:
    """Return the cost scope of the budget; None for the whole model."""
    return None if request.budget_scope == "all" else request.budget_scope


def _placeholder_model(wanted: ModelRequest, request: Request, n: int) -> ModelSpec:
    """Return the model at length n, with placeholders for its widths.

    Depth and heads come from the request. Raises RequestError if no sizes suit its options.
    """
    model = ModelSpec(
        name=wanted.name,
        family=wanted.family,
        options=wanted.options,
        shape=replace(PLACEHOLDER, seq_len=n, depth=request.depth),
        interface=Interface(input=request.input),
    )
    if request.task:  # before sizes: the task sets inputs and outputs, which some families do not support
        model = replace(model, interface=_task_interface(model, request))
    return replace(model, shape=_buildable_shape(model, request.heads))


def _task_interface(model: ModelSpec, request: Request) -> Interface:
    return info_of(request.task).interface(model.shape.seq_len, pool_of(model))


def _buildable_shape(model: ModelSpec, heads: int | None) -> Shape:
    """Return the narrowest shape that the model's options allow.

    Raises RequestError if none exists: then an option's value or the number of heads is wrong.
    """
    try:
        return narrowest_shape(model, heads)
    except ValueError as error:
        hint = "change `heads` or the option; see: bench list families" if heads else "see: bench list families"
        raise RequestError(f"{model.name}: {error}", hint) from error


def sizing_of(sized: SizedModel) -> Sizing:
    """Return the sizing and cost of a model at its own n.

    The cost is in closed form if the model has one, else counted.
    """
    cost, n = cost_of(sized.model), sized.model.shape.seq_len
    family, counted, shape = family_of(sized.model.family), is_counted(sized.model), sized.model.shape
    unknown = config_of(sized.model).unknown_sizes if counted else ()
    return Sizing(
        match=sized.match,
        budget=sized.budget,
        budget_error=sized.budget_error,
        params=cost.params().at(n),
        params_seq=None if counted else cost.params_seq().at(n),
        params_blocks=None if counted else cost.params("blocks").at(n),
        heads=shape.heads if family.USES_HEADS and "heads" not in unknown else None,
        terms=tuple(replace(term, state=ZERO) for term in cost.terms),
        unknown_sizes=unknown,
        rule=sized.rule,
        ffn_moved=shape.ffn_width / (family.NOMINAL_FFN_RATIO * shape.width) - 1 if sized.rule == CANONICAL else None,
        state=state_of(sized.model),
        is_staircase=not counted and _is_staircase(sized.model, cost),
    )


def _is_staircase(model: ModelSpec, cost: Cost) -> bool:
    """Return whether the FLOPs at one of the next lengths that can be built follow another polynomial."""
    for more in range(1, 3):
        with contextlib.suppress(ValueError):
            longer = replace(model, shape=replace(model.shape, seq_len=model.shape.seq_len + more))
            return cost_of(longer).flops() != cost.flops()
    return False
