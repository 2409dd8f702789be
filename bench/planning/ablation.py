"""From the name of a question in `ablations/` to the plan that answers it. Needs torch only to size the models."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench import catalog
from bench.peers.names import INSTALL, LIBRARIES
from bench.planning.flags import Flags, read_flags, settings_on, to_recipe, to_request
from bench.planning.request import Request, needs_task
from bench.planning.values import entries, several, whole_number
from bench.spec import EVERY_ARM, FASTEST_PEER, POOLED, Ablation, Arm, Grid, Plan, Question, Recipe, RequestError, Settings, Skipped
from bench.tasks import require_data

if TYPE_CHECKING:
    from bench.planning.build import PartRequest

PEERS = "python:bench.peers."
"""How the peers of our own sizes are named: what follows is the library's name."""


@dataclass(frozen=True, kw_only=True)
class Narrowing:
    """Which of an ablation's grids to run: those of these names, phases and baselines' models; and the `seq` and `batch` to run them at.

    Empty: as the ablation has it.
    """

    parts: tuple[str, ...] = ()
    seq: tuple[int, ...] = ()
    batch: tuple[int, ...] = ()
    phase: tuple[str, ...] = ()
    models: tuple[str, ...] = ()


def ablation_of(name: str) -> Ablation:
    found: Ablation = catalog.load("ablations", name).ABLATION
    return found


def plan_ablation(name: str, flags: Flags, device: str, command: str, narrowing: Narrowing | None = None) -> Plan:
    """The plan of every grid for this kind of device. `flags` holds what the user chose for all of them: rounds, seeds, threads, limits, quick.

    A quick run leaves out grids whose data are absent; a full one refuses. Arms whose library is absent are left out of either.
    """
    ablation = ablation_of(name)
    _require_known(name, ablation)
    return plan_grids(name, catalog.docstring("ablations", name), ablation, flags, device, command, narrowing)


def plan_grids(
    name: str, statement: str, ablation: Ablation, flags: Flags, device: str, command: str, narrowing: Narrowing | None = None
) -> Plan:
    """The same for grids from anywhere. `statement`: the question in its first line, and what is said of it below."""
    from bench.planning.build import build_plan_of_parts

    grids = _grids(ablation, flags.quick, device)
    outside: list[Skipped] = []
    if narrowing:
        outside = list(_outside(_parts(grids, narrowing.parts), narrowing))
        grids = narrowed(grids, narrowing)
        ablation = _about(ablation, grids)
    without_library = [skipped for grid in grids for arm in grid.arms for skipped in _without_library(grid, arm)]
    asked = [_part_request(_available(grid), flags) for grid in grids]
    absent = {part.name: reason for part in asked if (reason := _absence(part))} if flags.quick else {}
    return build_plan_of_parts(
        [part for part in asked if part.name not in absent],
        settings=_settings(ablation, flags, device),
        recipe=_recipe(asked),
        device=device,
        name=name,
        command=command,
        question=_question(statement, ablation),
        left_out=[
            *dict.fromkeys(without_library),
            *dict.fromkeys(outside),
            *(skipped for part in asked if part.name in absent for skipped in _left_out(part, absent[part.name])),
        ],
    )


def narrowed(grids: Sequence[Grid], asked: Narrowing) -> tuple[Grid, ...]:
    """Those that were asked for. Raises RequestError for a part, phase or model that none of them has."""
    grids = _parts(grids, asked.parts)
    phases, models = (tuple(dict.fromkeys(found)) for found in (map(_phase_of, grids), map(_model_of, grids)))
    chosen_phases, chosen_models = _chosen("--phase", asked.phase, phases), _chosen("--models", asked.models, models)
    own = _own_lists(asked)
    return tuple(
        dataclasses.replace(grid, flags={**grid.flags, **own}, arms=tuple(arm for found in grid.arms if (arm := _arm_within(found, own))))
        for grid in grids
        if _phase_of(grid) in chosen_phases and _model_of(grid) in chosen_models
    )


def _parts(grids: Sequence[Grid], wanted: Sequence[str]) -> Sequence[Grid]:
    names = tuple(grid.name for grid in grids)
    if strays := [name for name in wanted if name not in names]:
        raise catalog.unknown("value of --part:", strays[0], tuple(map(repr, names)), "bench ablate NAME --dry-run")
    return [grid for grid in grids if not wanted or grid.name in wanted]


def _own_lists(asked: Narrowing) -> dict[str, str]:
    """The lengths and batch sizes that were asked for, where any were, as a grid writes them."""
    return {key: ",".join(map(str, found)) for key, found in (("seq", asked.seq), ("batch", asked.batch)) if found}


def _outside(grids: Sequence[Grid], asked: Narrowing) -> Iterator[Skipped]:
    """One per length asked for of an arm that has lists of its own, none of whose entries was asked for."""
    own = _own_lists(asked)
    for grid in grids:
        lost = [arm for arm in grid.arms if _arm_within(arm, own) is None] if _is_asked(grid, asked) else []
        for arm in lost:
            has = ", ".join(f"--{key} {arm.flags[key]}" for key in own if key in arm.flags)
            for n in asked.seq or _lengths(grid, arm):
                yield Skipped(model=_models(grid, arm), seq_len=n, budget=None, reason=f"{arm.name} runs at {has} alone")


def _is_asked(grid: Grid, asked: Narrowing) -> bool:
    """By its phase and model; an empty list asks for all."""
    return (not asked.phase or _phase_of(grid) in asked.phase) and (not asked.models or _model_of(grid) in asked.models)


def _arm_within(arm: Arm, own: Mapping[str, str]) -> Arm | None:
    """An arm with lists of its own keeps what of them is asked for; None where that is nothing."""
    kept = {key: [entry for entry in entries(arm.flags[key]) if entry in entries(text)] for key, text in own.items() if key in arm.flags}
    if not all(kept.values()):
        return None
    return dataclasses.replace(arm, flags={**arm.flags, **{key: ",".join(left) for key, left in kept.items()}})


def _chosen(flag: str, asked: tuple[str, ...], allowed: tuple[str, ...]) -> tuple[str, ...]:
    if strays := [entry for entry in asked if entry not in allowed]:
        raise catalog.unknown(f"value of {flag}:", strays[0], allowed, "bench peers --help")
    return asked or allowed


def _about(ablation: Ablation, grids: Sequence[Grid]) -> Ablation:
    """Without the predictions on what was not asked for."""
    parts = [grid.name for grid in grids]
    return dataclasses.replace(ablation, predictions=tuple(found for found in ablation.predictions if found.part in parts))


def _phase_of(grid: Grid) -> str:
    return grid.flags.get("phase", Flags().phase[0])


def _model_of(grid: Grid) -> str:
    """The baseline's family or variant, without its options."""
    baseline = next((arm.flags for arm in grid.arms if arm.name == (grid.baseline or grid.arms[0].name)), {})
    return baseline.get("models", grid.flags.get("models", "")).partition("+")[0]


def _available(grid: Grid) -> Grid:
    """Without the arms whose library is absent."""
    return dataclasses.replace(grid, arms=tuple(arm for arm in grid.arms if not _missing_library(_models(grid, arm))))


def _without_library(grid: Grid, arm: Arm) -> Iterator[Skipped]:
    """One per length of an arm whose library is absent, with how to install it."""
    text = _models(grid, arm)
    if library := _missing_library(text):
        for n in _lengths(grid, arm):
            yield Skipped(model=text, seq_len=n, budget=None, reason=f"{library} is not installed; {INSTALL}")


def _lengths(grid: Grid, arm: Arm) -> tuple[int, ...]:
    return several(whole_number(2))({**grid.flags, **arm.flags}["seq"])


def _models(grid: Grid, arm: Arm) -> str:
    return {**grid.flags, **arm.flags}.get("models", "")


def _missing_library(models: str) -> str:
    """The first library that an outside model in this list needs and that is absent; "" where none is."""
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
    """Raise RequestError, naming what there is, for a prediction on what no grid holds: it could never be answered."""
    from bench.spec import MEASURES

    arms = {(grid.name, arm.name) for grid in (*ablation.cpu, *ablation.cuda, *ablation.quick) for arm in grid.arms}
    file = f"ablations/{name}.py"
    for prediction in ablation.predictions:
        if prediction.measure not in MEASURES:
            raise catalog.unknown("measure", prediction.measure, tuple(MEASURES), file)
        there = tuple(sorted(arm for part, arm in arms if part == prediction.part))
        for arm in (prediction.arm, *filter(None, (prediction.against,))):
            if arm not in (*there, FASTEST_PEER, EVERY_ARM):
                raise catalog.unknown(f"arm of part {prediction.part!r}", arm, there, file)


def _recipe(parts: Sequence[PartRequest]) -> Recipe:
    """That of the first baseline that is trained: rows name what their own has other than this."""
    baselines = [part.arms[part.baseline] for part in parts]
    return next((request.recipe for request in baselines if request.task and request.recipe), Recipe())


def _question(statement: str, ablation: Ablation) -> Question:
    text, _, rest = statement.partition("\n")
    return Question(text=text, statement=rest.strip(), predictions=ablation.predictions, seed_spread=POOLED)


def _part_request(grid: Grid, flags: Flags) -> PartRequest:
    from bench.planning.build import PartRequest

    arms = grid.arms or (Arm(name=""),)
    return PartRequest(
        name=grid.name,
        arms={arm.name: _request({**grid.flags, **arm.flags}, flags) for arm in arms},
        baseline=grid.baseline or arms[0].name,
        facts={arm.name: arm.facts for arm in arms if arm.facts},
    )


def _request(texts: Mapping[str, str], flags: Flags) -> Request:
    """The grid's own flags take the place of those that were given."""
    own = read_flags(texts)
    merged = dataclasses.replace(flags, **{name: getattr(own, name) for name in texts})
    return dataclasses.replace(to_request(merged), recipe=to_recipe(merged))


def _absence(part: PartRequest) -> str:
    """Why a part cannot be run here: what is said of the first data set that it trains on and that is absent; "" where none is."""
    for request in part.requests:
        if request.task and any(needs_task(metric) for metric in request.metrics):
            try:
                require_data(request.task)
            except RequestError as error:
                return f"{error}; {error.hint}"
    return ""


def _left_out(part: PartRequest, reason: str) -> Iterator[Skipped]:
    for request in part.requests:
        for model in request.models:
            for n in request.seq_lens:
                yield Skipped(model=model.name, seq_len=n, budget=None, reason=reason)


def _settings(ablation: Ablation, flags: Flags, device: str) -> Settings:
    """The ablation's own rounds, seeds and sampling time, where the user did not choose; a quick run keeps its few rounds and has one seed."""
    settings = settings_on(device, flags)
    own: dict[str, Any] = {} if flags.seeds else {"seeds": 1 if flags.quick else ablation.seeds}
    if not flags.quick:
        own |= {"sample_s": ablation.sample_s, **({} if flags.rounds else {"rounds": ablation.rounds})}
    return dataclasses.replace(settings, growth=ablation.growth, **own)
