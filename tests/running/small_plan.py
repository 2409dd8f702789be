"""Plans of models of one narrow block, as most runs of these tests have them."""

from __future__ import annotations

from typing import Any

from bench.spec import Plan, Settings
from tests.planning.plans import plan_of

WANTED = {"models": "vit", "seq": "17", "width": "16", "depth": "1", "batch": "1", "metrics": "latency"}


def small_plan(settings: Settings = Settings(rounds=3), /, **flags: Any) -> Plan:
    """With `flags` in place of those of WANTED, or beside them."""
    return plan_of(settings=settings, **{**WANTED, **flags})
