"""Plans of models of one narrow block, as most runs of these tests have them."""

from __future__ import annotations

from bench.planning.build import build_plan
from bench.spec import Plan, Recipe, Settings
from tests.requested import parse_request

WANTED = {"models": "vit", "seq": "17", "width": "16", "depth": "1", "batch": "1", "metrics": "latency"}


def small_plan(settings: Settings = Settings(rounds=3), /, **flags: str) -> Plan:
    """With `flags` in place of those of WANTED, or beside them."""
    return build_plan(parse_request(**{**WANTED, **flags}), settings=settings, recipe=Recipe(), device="cpu")
