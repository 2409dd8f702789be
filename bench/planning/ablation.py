"""From the name of a question in `ablations/` to the plan that answers it. Needs torch only to size the models."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench import catalog
from bench.peers.names import INSTALL, LIBRARIES
from bench.planning.flags import Flags, settings_on, to_recipe, to_request
from bench.planning.request import MAX_SEQ_LEN, Request, needs_task, parse_whole_numbers, split_list
from bench.spec import EVERY_ARM, FASTEST_PEER, POOLED, Ablation, Arm, Grid, Plan, Question, Recipe, RequestError, Settings, Skipped
from bench.tasks import require_data

if TYPE_CHECKING:
    from bench.planning.build import PartRequest

PEERS = "python:bench.peers."
"""How the peers of our own sizes are named: what follows is the library's name."""


@dataclass(frozen=True, kw_only=True)
class Narrowing:
    """What is asked of an ablation's grids: `seq` and `batch` in the place of their own, and only those of these names, phases and models of their
    baselines. Lists as typed; empty: as the ablation has it."""

    parts: tuple[str, ...] = ()
    seq: str = ""
    batch: str = ""
    phase: str = ""
    models: str = ""


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
    """The lengths and batch sizes that were asked for, where any were."""
    return {key: text for key, text in (("seq", asked.seq), ("batch", asked.batch)) if text}


def _outside(grids: Sequence[Grid], asked: Narrowing) -> Iterator[Skipped]:
    """One per length asked for of an arm that has lists of its own, none of whose entries was asked for."""
    own = _own_lists(asked)
    for grid in grids:
        lost = [arm for arm in grid.arms if _arm_within(arm, own) is None] if _is_asked(grid, asked) else []
        lengths = parse_whole_numbers("--seq", own.get("seq", grid.flags.get("seq", "")), low=2, high=MAX_SEQ_LEN) if lost else ()
        for arm in lost:
            has = ", ".join(f"--{key} {arm.flags[key]}" for key in own if key in arm.flags)
            for n in lengths:
                yield Skipped(model=_models(grid, arm), seq_len=n, budget=None, reason=f"{arm.name} runs at {has} alone")


def _is_asked(grid: Grid, asked: Narrowing) -> bool:
    """By its phase and model; an empty list asks for all."""
    return all(
        not text or name in split_list(flag, text, name)
        for flag, text, name in (("--phase", asked.phase, _phase_of(grid)), ("--models", asked.models, _model_of(grid)))
    )


def _arm_within(arm: Arm, own: Mapping[str, str]) -> Arm | None:
    """An arm with lists of its own keeps what of them is asked for; None where that is nothing."""
    kept = {
        key: [entry for entry in split_list(f"--{key}", arm.flags[key], text) if entry in split_list(f"--{key}", text, arm.flags[key])]
        for key, text in own.items()
        if key in arm.flags
    }
    if not all(kept.values()):
        return None
    return dataclasses.replace(arm, flags={**arm.flags, **{key: ",".join(entries) for key, entries in kept.items()}})


def _chosen(flag: str, text: str, allowed: tuple[str, ...]) -> tuple[str, ...]:
    found = split_list(flag, text, ",".join(allowed)) if text else allowed
    if strays := [entry for entry in found if entry not in allowed]:
        raise catalog.unknown(f"value of {flag}:", strays[0], allowed, "bench peers --help")
    return found


def _about(ablation: Ablation, grids: Sequence[Grid]) -> Ablation:
    """Without the predictions on what was not asked for."""
    parts = [grid.name for grid in grids]
    return dataclasses.replace(ablation, predictions=tuple(found for found in ablation.predictions if found.part in parts))


def _phase_of(grid: Grid) -> str:
    return grid.flags.get("phase", Flags().phase)


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
        seq = arm.flags.get("seq", grid.flags.get("seq", ""))
        for n in parse_whole_numbers("--seq", seq, low=2, high=MAX_SEQ_LEN):
            yield Skipped(model=text, seq_len=n, budget=None, reason=f"{library} is not installed; {INSTALL}")


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
        arms={arm.name: _request(_flags_of({**grid.flags, **arm.flags}, flags)) for arm in arms},
        baseline=grid.baseline or arms[0].name,
        facts={arm.name: arm.facts for arm in arms if arm.facts},
    )


def _request(flags: Flags) -> Request:
    return dataclasses.replace(to_request(flags), recipe=to_recipe(flags))


def _flags_of(own: dict[str, str], flags: Flags) -> Flags:
    """The grid's own before those that were given."""
    chosen = {f.name: getattr(flags, f.name) for f in dataclasses.fields(Flags) if getattr(flags, f.name) != f.default}
    return Flags(**{**chosen, **own})


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
    own: dict[str, Any] = {} if flags.seeds != Flags().seeds else {"seeds": 1 if flags.quick else ablation.seeds}
    if not flags.quick:
        own |= {"sample_s": ablation.sample_s, **({} if flags.rounds else {"rounds": ablation.rounds})}
    return dataclasses.replace(settings, growth=ablation.growth, **own)
