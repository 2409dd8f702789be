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
    return any(map(needs_quiet, plan.metrics))


def needs_quiet(metric: str) -> bool:
    """Return whether what a metric measures depends on what else the machine does; trainings give the same answers, only later."""
    return metric not in COUNTED_METRICS and catalog.load("metrics", metric).REPEAT not in ("seed", "trial")
