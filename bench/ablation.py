"""From the name of a question in `ablations/` to the plan that answers it. Needs torch only to size the models."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from bench import catalog
from bench.flags import Flags, to_request, to_settings
from bench.record import read_plan
from bench.spec import Ablation, Grid, Plan, RequestError, Settings

RESULTS = Path("results")


def ablation_of(name: str) -> Ablation:
    found: Ablation = catalog.load("ablations", name).ABLATION
    return found


def plan_ablation(name: str, flags: Flags, device: str, command: str) -> Plan:
    """The plan of every grid for this kind of device. `flags` holds what the user chose for all of them: rounds, seeds, threads, limits, quick."""
    from bench.plan import build_plan_of_parts
    from bench.recipe import parse_recipe

    ablation = ablation_of(name)
    requests = {grid.name: to_request(_flags_of(grid, flags)) for grid in _grids(ablation, flags.quick, device)}
    return build_plan_of_parts(
        requests, settings=_settings(ablation, flags), recipe=parse_recipe(""), device=device, name=name, command=command
    )


def listing() -> list[dict[str, Any]]:
    """Every ablation: `name`, `question`, `cost`, and `last`, the folder of its latest run below results/ (None: there is none here)."""
    return [
        {"name": name, "question": catalog.summary("ablations", name), "cost": ablation_of(name).cost, "last": _last_run(name)}
        for name in catalog.names("ablations")
    ]


def _grids(ablation: Ablation, quick: bool, device: str) -> tuple[Grid, ...]:
    if quick:
        return ablation.quick
    return ablation.cuda if device == "cuda" else ablation.cpu


def _flags_of(grid: Grid, flags: Flags) -> Flags:
    chosen = {f.name: getattr(flags, f.name) for f in dataclasses.fields(Flags) if getattr(flags, f.name) != f.default}
    return Flags(**{**chosen, **grid.flags})


def _settings(ablation: Ablation, flags: Flags) -> Settings:
    """The ablation's own rounds, seeds and sampling time, where the user did not choose and the run is not a quick one."""
    settings = to_settings(flags)
    own: dict[str, Any] = {} if flags.seeds != Flags().seeds else {"seeds": ablation.seeds}
    if not flags.quick:
        own |= {"sample_s": ablation.sample_s, **({} if flags.rounds else {"rounds": ablation.rounds})}
    return dataclasses.replace(settings, **own)


def _last_run(name: str) -> str | None:
    runs = [folder for folder in sorted(RESULTS.glob("*"), reverse=True) if (folder / "plan.json").exists() and _is_run_of(folder, name)]
    return str(runs[0]) if runs else None


def _is_run_of(folder: Path, name: str) -> bool:
    try:
        return read_plan(folder).name == name
    except RequestError:
        return False
