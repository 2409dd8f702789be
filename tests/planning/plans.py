"""Plans of small requests, of parts and of arms."""

from __future__ import annotations

import dataclasses
from typing import Any

from bench.planning.build import PartRequest, build_plan, build_plan_of_parts
from bench.planning.recipe import parse_recipe
from bench.spec import Plan, Recipe, Settings
from tests.requested import parse_request


def planned(command: str = "", seed: int = 0, rounds: int = 3, **flags: Any) -> Plan:
    wanted: dict[str, Any] = {"models": "gmlp,vit", "seq": "17,65", "params": "250k", **flags}
    settings = Settings(rounds=rounds, seed=seed, seeds=2)
    return build_plan(parse_request(**wanted), settings=settings, recipe=Recipe(), device="cpu", command=command)


def of_parts(**requests: dict[str, str]) -> Plan:
    parsed = {name: parse_request(**{"models": "vit", "params": "250k", **flags}) for name, flags in requests.items()}
    parts = [PartRequest(name=name, arms={"": request}) for name, request in parsed.items()]
    return build_plan_of_parts(parts, settings=Settings(), recipe=Recipe(), device="cpu")


def of_arms(**arms: dict[str, str]) -> Plan:
    """One part with those arms, the first being its baseline; `recipe` is the text of --recipe."""
    requests = {}
    for name, flags in arms.items():
        wanted = {"models": "vit", "params": "250k", "seq": "17", "task": "digits", "metrics": "params,accuracy", **flags}
        recipe = Recipe(**dict[str, Any](parse_recipe(wanted.pop("recipe", ""))))
        requests[name] = dataclasses.replace(parse_request(**wanted), own_recipe=recipe)
    part = PartRequest(name="p", arms=requests, baseline=next(iter(arms)), facts={"plain": {"known": "yes"}})
    return build_plan_of_parts([part], settings=Settings(seeds=2), recipe=Recipe(), device="cpu")
