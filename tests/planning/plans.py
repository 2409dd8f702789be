"""Plans of small requests, of parts and of arms."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from bench.planning.build import PartRequest, build_plan, build_plan_of_parts
from bench.planning.recipe import parse_recipe
from bench.planning.request import Request
from bench.spec import Plan, Recipe, Settings
from tests.requested import parse_request


def plan_of(*, settings: Settings = Settings(), recipe: Recipe = Recipe(), device: str = "cpu", **flags: Any) -> Plan:
    return build_plan(parse_request(**flags), settings=settings, recipe=recipe, device=device)


def planned(seed: int = 0, rounds: int = 3, **flags: Any) -> Plan:
    settings = Settings(rounds=rounds, seed=seed, seeds=2)
    return plan_of(settings=settings, **{"models": "gmlp,vit", "seq": "17,65", "params": "250k", **flags})


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
    return plan_of_arms(requests, baseline=next(iter(arms)), settings=Settings(seeds=2), facts={"plain": {"known": "yes"}})


def plan_of_arms(
    arms: Mapping[str, Request], *, baseline: str, settings: Settings = Settings(), facts: Mapping[str, Mapping[str, str]] = {}
) -> Plan:
    part = PartRequest(name="p", arms=arms, baseline=baseline, facts=facts)
    return build_plan_of_parts([part], settings=settings, recipe=Recipe(), device="cpu")
