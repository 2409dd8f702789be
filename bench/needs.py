"""What the metrics of a plan need: a task to train on, or the machine itself. Imports no torch."""

from __future__ import annotations

from bench import catalog
from bench.spec import Plan

COUNTED_METRICS = ("params", "flops")
"""Metrics that run no step and use no device."""


def needs_task(metric: str) -> bool:
    """Return whether a metric needs a task to train on."""
    return bool(getattr(catalog.load("metrics", metric), "NEEDS_TASK", False))


def trains(plan: Plan) -> bool:
    """Return whether any metric of the plan needs a task."""
    return any(map(needs_task, plan.metrics))


def depends_on_host(plan: Plan) -> bool:
    """Return whether any measurement of a plan depends on the machine."""
    return any(catalog.load("metrics", m).REPEAT not in ("seed", "trial") for m in plan.metrics if m not in COUNTED_METRICS)
