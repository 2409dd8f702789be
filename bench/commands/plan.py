"""Show a plan and its estimated time, or write it to a file."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import console
from bench.report import console_views
from bench.spec import Plan, RequestError

if TYPE_CHECKING:
    from bench.planning.fit import LargestSizes

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


def show_plan(wanted: Plan, as_json: bool, minutes: float | None = None, memory_bytes: int | None = None) -> None:
    """Print the plan, its estimated time and that of its trainings.

    `minutes`: the time that its parts are to fit in.
    `memory_bytes`: also print the largest sizes that fit this memory; None for none.
    """
    from bench.planning.jobs import estimated_training_seconds

    fitting = fitting_in(wanted, memory_bytes)
    if as_json:
        largest = {"memory_bytes": memory_bytes, "largest": largest_rows(fitting)} if fitting else {}
        console.print_json({**plan_json(wanted), **largest})
        return
    if wanted.question:
        console_views.show_parts(wanted, minutes)
    else:
        console_views.show_plan(wanted, fitting)
    if memory_bytes is not None:
        console.say(_fitting_text(wanted, memory_bytes))
    note_untrained(wanted, console.say)
    console.say(amount_text(wanted))
    if seconds := estimated_training_seconds(wanted):
        console.say(f"trainings: about {console.duration_text(seconds)}, {wanted.settings.seeds} of each model")


def fitting_in(plan: Plan, memory_bytes: int | None) -> Mapping[str, LargestSizes] | None:
    """Return the largest sizes that fit a memory, by cell id; None without a memory."""
    if memory_bytes is None:
        return None
    from bench.planning.fit import largest_sizes

    return largest_sizes(plan, memory_bytes)


def largest_rows(fitting: Mapping[str, LargestSizes]) -> list[dict[str, Any]]:
    """Return one row per configuration: `cell_id`, `largest_batch` and `largest_seq_len`."""
    return [{"cell_id": cell_id, **dataclasses.asdict(found)} for cell_id, found in fitting.items()]


def _fitting_text(plan: Plan, memory_bytes: int) -> str:
    """Say what the largest sizes mean."""
    from bench import numbers
    from bench.planning.fit import smallest_batch

    size = numbers.bytes_text(memory_bytes)
    return f"largest: predicted to fit {size} without workspaces and fragmentation; largest_seq_len at batch {smallest_batch(plan)}"


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
