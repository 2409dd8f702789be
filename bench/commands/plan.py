"""Show a plan and its estimated time, or write it to a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import console
from bench.report import console_views
from bench.spec import Plan, RequestError

MAX_BATCHES = 4
"""Most batch sizes that the line with the estimated time names."""
LONG_QUICK_S, LIGHT_BATCH = 60.0, 4
"""Estimated time above which a quick run suggests this batch size."""

Say = Callable[[str], None]
"""Receives remarks for the user, one line each."""


def write_plan(wanted: Plan, path: Path) -> None:
    """Write a plan file, for `bench run --plan`.

    Raises RequestError for a user's own file or object, whose code a plan does not hold.
    """
    from bench.files import write_json
    from bench.running.store import writing
    from bench.serialize import to_json

    if own := [planned.cell.model for planned in wanted.cells if planned.cell.model.digest]:
        raise RequestError(
            f"a plan file cannot hold the code of {own[0].name}", "measure it with bench run; the run's folder holds its code"
        )
    with writing(path):
        write_json(path, to_json(wanted))


def show_plan(wanted: Plan, as_json: bool, minutes: float | None = None) -> None:
    """Print the plan, its estimated time and that of its trainings.

    `minutes`: the time that its parts are to fit in.
    """
    from bench.planning.jobs import estimated_training_seconds

    if as_json:
        console.print_json(plan_json(wanted))
        return
    if wanted.question:
        console_views.show_parts(wanted, minutes)
    else:
        console_views.show_plan(wanted)
    note_untrained(wanted, console.say)
    console.say(amount_text(wanted))
    if seconds := estimated_training_seconds(wanted):
        console.say(f"trainings: about {console.duration_text(seconds)}, {wanted.settings.seeds} of each model")


def amount_text(plan: Plan) -> str:
    """Say how many configurations a plan has, and how long they take."""
    from bench.planning.jobs import estimated_seconds

    noun = "configurations" if len(plan.cells) > 1 else "configuration"
    seconds = estimated_seconds(plan)
    text = f"{len(plan.cells)} {noun}{_batch_text(plan)}, about {console.duration_text(seconds)}"
    is_slow = plan.settings.quick and seconds > LONG_QUICK_S
    return f"{text} (--batch {LIGHT_BATCH} is faster)" if is_slow and _has_heavy_batch(plan) else text


def _batch_text(plan: Plan) -> str:
    """Name the batch sizes of a request, if they are few."""
    sizes = sorted({planned.cell.workload.batch_size for planned in plan.cells})
    return "" if plan.question or len(sizes) > MAX_BATCHES else f", batch {', '.join(map(str, sizes))}"


def _has_heavy_batch(plan: Plan) -> bool:
    """Return whether a smaller --batch would shorten a request: it sets the batch and trains nothing."""
    follows_length = any(part.batching for part in plan.parts)
    largest = max(planned.cell.workload.batch_size for planned in plan.cells)
    return not plan.question and not follows_length and "accuracy" not in plan.metrics and largest > LIGHT_BATCH


def note_untrained(plan: Plan, say: Say) -> None:
    """Say that the task of a request trains nothing, if so.

    The arms of a question may be timed on a task on purpose.
    """
    from bench.planning.request import trains

    task = plan.cells[0].cell.workload.task
    if task and not plan.question and not trains(plan):
        say(f"note: --task {task} only sets inputs and outputs here; to train on it, add accuracy to --metrics")


def plan_json(wanted: Plan) -> dict[str, Any]:
    from bench.planning.jobs import estimated_seconds, estimated_training_seconds
    from bench.serialize import to_json

    return {"plan": to_json(wanted), "estimated_s": estimated_seconds(wanted), "estimated_training_s": estimated_training_seconds(wanted)}
