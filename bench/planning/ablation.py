"""Plan the answer to a question in `ablations/`.

Needs torch only to size the models.
"""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bench import catalog
from bench.needs import needs_task
from bench.peers.names import INSTALL, LIBRARIES, PEERS
from bench.planning.fields import read
from bench.planning.request import Request, checked
from bench.planning.settings import recipe_of, settings_of
from bench.planning.values import several, whole_number
from bench.questions import ONE_INTERVAL, OWN_SPREADS, Ablation, Arm, Grid, Question
from bench.spec import ACCURACY, Plan, Recipe, RequestError, Settings, Skipped
from bench.tasks import require_data

if TYPE_CHECKING:
    from bench.planning.build import PartRequest


def ablation_of(name: str) -> Ablation:
    """Return the constant `ABLATION` of a question's file."""
    found: Ablation = catalog.load("ablations", name).ABLATION
    return found


def plan_ablation(name: str, request: Request, device: str, command: str, parts: Sequence[str] = ()) -> Plan:
    """Return the plan that answers a question on this kind of device.

    `request`: the user's choices for all grids: rounds, seeds, threads, limits, quick.
    `parts`: names of the grids to plan; all by default.

    A quick plan skips grids with missing data; a full plan keeps them, and `bench.commands` rejects it before measuring.
    Arms of a library that is not installed are skipped in both.
    Raises RequestError for an unknown part, if nothing is left, or if a prediction is about an unknown part, arm or measure.
    """
    ablation = ablation_of(name)
    _require_known(name, ablation)
    return plan_grids(name, catalog.docstring("ablations", name), ablation, request, device, command, parts)


def plan_grids(
    name: str, statement: str, ablation: Ablation, request: Request, device: str, command: str, parts: Sequence[str] = ()
) -> Plan:
    """Return the plan of an ablation's grids, like `plan_ablation`.

    `statement`: the question in its first line, details below.
    """
    from bench.planning.build import build_plan_of_parts

    grids = _grids_named(_grids(ablation, request.quick, device), parts)
    if parts:
        predictions = tuple(found for found in ablation.predictions if found.part in parts)
        ablation = dataclasses.replace(ablation, predictions=predictions)
    without_library = [skipped for grid in grids for arm in grid.arms for skipped in _skipped_for_library(grid, arm)]
    settings = _settings(ablation, grids, request, device)
    asked = [_part_request(_installed_arms(_tuned(grid, settings.lr_trials))) for grid in grids]
    absent = {part.name: reason for part in asked if (reason := _why_data_missing(part))} if request.quick else {}
    return build_plan_of_parts(
        [part for part in asked if part.name not in absent],
        settings=settings,
        recipe=_recipe(asked),
        device=device,
        name=name,
        command=command,
        question=_question(statement, ablation),
        left_out=[
            *dict.fromkeys(without_library),
            *(skipped for part in asked if part.name in absent for skipped in _skipped_models(part, absent[part.name])),
        ],
    )


def _grids_named(grids: Sequence[Grid], wanted: Sequence[str]) -> Sequence[Grid]:
    """Return the grids with these names; all if no name is given."""
    names = tuple(grid.name for grid in grids)
    if strays := [name for name in wanted if name not in names]:
        raise catalog.unknown("value of `part`:", strays[0], tuple(map(repr, names)), "bench ablate NAME --dry-run")
    return [grid for grid in grids if not wanted or grid.name in wanted]


def _installed_arms(grid: Grid) -> Grid:
    """Return the grid without arms of a library that is not installed."""
    return dataclasses.replace(grid, arms=tuple(arm for arm in grid.arms if not _missing_library(_models_text(grid, arm))))


def _skipped_for_library(grid: Grid, arm: Arm) -> Iterator[Skipped]:
    """Yield a skipped combination per length if an arm's library is missing."""
    text = _models_text(grid, arm)
    if library := _missing_library(text):
        for n in _seq_lens_of(grid, arm):
            yield Skipped(model=text, seq_len=n, budget=None, reason=f"{library} is not installed; {INSTALL}")


def _seq_lens_of(grid: Grid, arm: Arm) -> tuple[int, ...]:
    return several(whole_number(2))({**grid.flags, **arm.flags}["seq"])


def _models_text(grid: Grid, arm: Arm) -> str:
    return {**grid.flags, **arm.flags}.get("models", "")


def _missing_library(models: str) -> str:
    """Return the first missing library that these models need; else ""."""
    for entry in models.split(","):
        library = entry.removeprefix(PEERS).partition(":")[0]
        if library in LIBRARIES and importlib.util.find_spec(library) is None:
            return library
    return ""


def _grids(ablation: Ablation, quick: bool, device: str) -> tuple[Grid, ...]:
    if quick:
        return ablation.quick
    return ablation.cuda if device == "cuda" else ablation.cpu


def _require_known(name: str, ablation: Ablation) -> None:
    """Raise RequestError for a prediction about an unknown measure, part or arm.

    Such a prediction could never be answered.
    """
    from bench.questions import MEASURES

    arms = {(grid.name, arm.name) for grid in (*ablation.cpu, *ablation.cuda, *ablation.quick) for arm in grid.arms}
    file = f"ablations/{name}.py"
    for prediction in ablation.predictions:
        if prediction.measure not in MEASURES:
            raise catalog.unknown("measure", prediction.measure, tuple(MEASURES), file)
        known = tuple(sorted(arm for part, arm in arms if part == prediction.part))
        if not known:
            raise catalog.unknown("part", prediction.part, tuple(sorted({part for part, _ in arms})), file)
        for arm in (prediction.arm, *filter(None, (prediction.against,))):
            if arm not in known:
                raise catalog.unknown(f"arm of part {prediction.part!r}", arm, known, file)


def _recipe(parts: Sequence[PartRequest]) -> Recipe:
    """Return the recipe of the first baseline that is trained.

    Rows of cells with another recipe list their differences from it.
    """
    baselines = [part.arms[part.baseline] for part in parts]
    return next((request.own_recipe for request in baselines if request.task and request.own_recipe), Recipe())


def _question(statement: str, ablation: Ablation) -> Question:
    text, _, rest = statement.partition("\n")
    return Question(text=text, statement=rest.strip(), predictions=ablation.predictions, seed_spread=OWN_SPREADS, interval=ONE_INTERVAL)


def _part_request(grid: Grid) -> PartRequest:
    from bench.planning.build import PartRequest

    arms = grid.arms or (Arm(name=""),)
    return PartRequest(
        name=grid.name,
        arms={arm.name: _request({**grid.flags, **arm.flags}) for arm in arms},
        baseline=grid.baseline or arms[0].name,
        facts={arm.name: arm.facts for arm in arms if arm.facts},
    )


def _request(texts: Mapping[str, str]) -> Request:
    """Return the request of an arm."""
    request = checked(read(Request, texts))
    return dataclasses.replace(request, own_recipe=recipe_of(request))


def _why_data_missing(part: PartRequest) -> str:
    """Return why a part cannot run here, if data are missing.

    The reason names its first missing data set; "" if none is missing.
    """
    for request in part.requests:
        if request.task and any(needs_task(metric) for metric in request.metrics):
            try:
                require_data(request.task)
            except RequestError as error:
                return f"{error}; {error.hint}"
    return ""


def _skipped_models(part: PartRequest, reason: str) -> Iterator[Skipped]:
    """Yield a skipped combination per model and length of a part."""
    for request in part.requests:
        for model in request.models:
            for n in request.seq:
                yield Skipped(model=model.name, seq_len=n, budget=None, reason=reason)


def _trains(grid: Grid) -> bool:
    return ACCURACY in grid.flags.get("metrics", "").split(",")


def _tuned(grid: Grid, lr_trials: int) -> Grid:
    """Add the search for learning rates to a grid that trains."""
    return dataclasses.replace(grid, flags={**grid.flags, "lr_trials": str(lr_trials)}) if lr_trials and _trains(grid) else grid


def _settings(ablation: Ablation, grids: Sequence[Grid], request: Request, device: str) -> Settings:
    """Return the settings of the ablation, with the user's choices.

    A quick run has few rounds and, unless chosen, one seed; it tunes no learning rates.
    """
    settings = settings_of(request, device)
    own: dict[str, Any] = {} if request.seeds else {"seeds": 1 if request.quick else ablation.seeds}
    if not request.quick:
        own |= {"sample_s": ablation.sample_s, **({} if request.rounds else {"rounds": ablation.rounds})}
        own |= {"lr_trials": ablation.lr_trials if any(map(_trains, grids)) else 0}
    return dataclasses.replace(settings, growth=ablation.growth, parts_apart=True, **own)
