"""Turn requests into plans; show and write plans. A request is checked as far as possible before torch is imported."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import catalog, console
from bench.commands.options import Options
from bench.measure import environment
from bench.needs import depends_on_host, trains
from bench.peers import own_code
from bench.peers.own_import import children_end
from bench.planning.request import Request, checked
from bench.planning.request_file import SUFFIX, write_request
from bench.planning.settings import announce_data_root, recipe_of, settings_of, with_default_lengths
from bench.report import console_views
from bench.spec import Plan, RequestError

if TYPE_CHECKING:
    from bench.planning.fit import LargestSizes
    from models.layers.plugins import Plugin

MAX_BATCHES = 4
"""Most batch sizes that the line with the estimated time names."""
LONG_QUICK_S, LIGHT_BATCH = 60.0, 4
"""Estimated time above which a quick run suggests this batch size."""

Say = Callable[[str], None]
"""Receives remarks for the user, one line each."""


def runs_elsewhere(executor: str) -> bool:
    """Return whether an executor runs its jobs on other machines.

    Such an executor inspects their environment itself, so this machine need not have the device.
    """
    return hasattr(catalog.load("executors", executor), "inspect_environment")


@children_end()
def plan_to_run(request: Request, options: Options) -> Plan:
    """Return the plan of a request, of a file or of a run to resume.

    Raises RequestError if the fields contradict each other.
    """
    elsewhere, stored = runs_elsewhere(options.on), options.plan or options.resume
    if not stored:
        return plan_of(request, may_be_elsewhere=elsewhere, command=options.command)
    if (options.plan and options.resume) or options.config or request.given:
        other = "resume" if options.plan and options.resume else "config" if options.config else request.given[0]
        source = "plan" if options.plan else "resume"
        raise RequestError(f"`{source}` takes the whole request from {stored}; `{other}` cannot be added", f"leave `{other}` out")
    if options.resume and options.out:
        raise RequestError("`resume` continues in the folder of the run; `out` cannot be added", "leave `out` out")
    if options.plan and options.plan.suffix == SUFFIX:
        raise RequestError(f"{options.plan} is a request, not a plan", f"try `config={options.plan}`")
    announce_data_root(request)
    from bench.planning.check import check_plan
    from bench.reading.store import read_plan, read_plan_of_run

    plan = read_plan_of_run(stored) if options.resume else read_plan(stored)
    own_code.look_in(stored if stored.is_dir() else stored.parent)
    check_plan(plan, str(stored), is_own_run=bool(options.resume))
    if elsewhere:
        return plan
    environment.resolve_device(plan.cells[0].cell.workload.device)
    if max(plan.settings.threads, plan.settings.train_threads) > environment.num_cores():
        raise RequestError(f"the plan needs more threads than the {environment.num_cores()} cores here", "make a new plan with `threads`")
    return plan


@children_end()
def plan_of(request: Request, *, may_be_elsewhere: bool = False, command: str = "") -> Plan:
    """Return the plan of a request.

    `command`: the command line to note in it.
    Checks that need no torch come first, then the device, then the sizes. Without `seq` the device comes first, because it sets the lengths.
    """
    if not request.models:
        families = ", ".join(catalog.names("families"))
        raise RequestError("`models` is missing", f"try `models=gmlp,vit` `seq=17,65,257`; allowed: {families}")
    if not request.seq:
        request = with_default_lengths(request, device_of(request, may_be_elsewhere=may_be_elsewhere))
    request = checked(request)
    for metric in (known for known in catalog.from_packages("metrics") if known.name in request.metrics):
        _require_own_columns(metric)
    announce_data_root(request)
    device = device_of(request, may_be_elsewhere=may_be_elsewhere)
    settings, recipe = settings_of(request, device), recipe_of(request)
    from bench.planning.build import build_plan

    return build_plan(request, settings=settings, recipe=recipe, device=device, command=command)


def _require_own_columns(metric: Plugin) -> None:
    """Raise RequestError if a package's metric fills a column of this program."""
    from bench.contracts.package import taken_columns

    if taken := taken_columns(metric.name):
        raise RequestError(f"{metric.label} fills columns of this program: {', '.join(taken)}", f"see: bench list --check {metric.package}")


def device_of(request: Request, *, may_be_elsewhere: bool) -> str:
    """Return `cpu` or `cuda`.

    Raises RequestError if a GPU is requested and absent, unless jobs `may_be_elsewhere`.
    """
    return "cuda" if may_be_elsewhere and request.device == "cuda" else environment.resolve_device(request.device)


def require_data_of(plan: Plan, say: Say) -> None:
    """Raise RequestError for missing data, or weights to begin with, before anything is measured."""
    from bench.measure.weights import require_start
    from bench.spec import base_recipe, is_trained
    from bench.tasks import require_data

    if trains(plan):
        trained = [planned.cell for planned in plan.cells if is_trained(planned.cell, plan)]
        for task in dict.fromkeys(cell.workload.task for cell in trained):
            require_data(task, say)
        for recipe in dict.fromkeys(base_recipe(cell, plan) for cell in trained):
            require_start(recipe)


def write_plan(wanted: Plan, path: Path, texts: Mapping[str, str]) -> None:
    """Write a plan file, for `bench run --plan`; to FILE.toml only its request, for `bench run --config`.

    `texts`: the request.
    Raises RequestError for a user's own file or object, whose code a plan does not hold, and if the file exists and is no
    plan, or another one.
    """
    from bench.files import write_json, writing
    from bench.reading.store import read_plan
    from bench.serialize import to_json

    if path.suffix == SUFFIX:
        write_request(path, texts)
        return
    if own := [planned.cell.model for planned in wanted.cells if planned.cell.model.digest]:
        raise RequestError(
            f"a plan file cannot hold the code of {own[0].name}", "measure it with bench run; the run's folder holds its code"
        )
    if path.is_file():
        try:
            is_other = read_plan(path) != wanted
        except RequestError as wrong:
            raise RequestError(f"{path} exists and is no plan of this version", "choose another `out`") from wrong
        if is_other:
            raise RequestError(f"{path} exists and holds another plan", "choose another `out`, or delete it")
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
        from bench import numbers
        from bench.planning.fit import smallest_batch

        fits = f"largest: predicted to fit {numbers.bytes_text(memory_bytes)} without workspaces and fragmentation"
        console.say(f"{fits}; largest_seq_len at batch {smallest_batch(wanted)}")
    note_untrained(wanted, console.say)
    console.say(amount_text(wanted))
    if seconds := estimated_training_seconds(wanted):
        console.say(f"trainings: about {console.duration_text(seconds)}, {wanted.settings.seeds} of each model")


@children_end()
def fitting_in(plan: Plan, memory_bytes: int | None) -> Mapping[str, LargestSizes] | None:
    """Return the largest sizes that fit a memory, by cell id; None without a memory."""
    if memory_bytes is None:
        return None
    from bench.planning.fit import largest_sizes

    return largest_sizes(plan, memory_bytes)


def largest_rows(fitting: Mapping[str, LargestSizes]) -> list[dict[str, Any]]:
    """Return one row per configuration: `cell_id`, `largest_batch` and `largest_seq_len`."""
    return [{"cell_id": cell_id, **dataclasses.asdict(found)} for cell_id, found in fitting.items()]


def amount_text(plan: Plan) -> str:
    """Say how many configurations a plan has, of which batch sizes if steps are measured and they are few, and how long they take.

    Suggests a smaller batch for a slow quick run that sets the batch and trains nothing.
    """
    from bench.planning.jobs import estimated_seconds

    num, seconds = len(plan.cells), estimated_seconds(plan)
    sizes = sorted({planned.cell.workload.batch_size for planned in plan.cells})
    batch = "" if plan.question or not depends_on_host(plan) or len(sizes) > MAX_BATCHES else f", batch {', '.join(map(str, sizes))}"
    text = f"{num} configuration{'s' if num > 1 else ''}{batch}, about {console.duration_text(seconds)}"
    sets_batch = not plan.question and not any(part.batching for part in plan.parts)
    is_slow = plan.settings.quick and seconds > LONG_QUICK_S and "accuracy" not in plan.metrics
    return f"{text} (--batch {LIGHT_BATCH} is faster)" if sets_batch and is_slow and sizes[-1] > LIGHT_BATCH else text


def note_untrained(plan: Plan, say: Say) -> None:
    """Say that the task of a request trains nothing, if so.

    The arms of a question may be timed on a task on purpose.
    """
    task = plan.cells[0].cell.workload.task
    if task and not plan.question and not trains(plan):
        say(f"note: --task {task} only sets inputs and outputs here; to train on it, add accuracy to --metrics")


def plan_json(wanted: Plan) -> dict[str, Any]:
    from bench.planning.jobs import estimated_seconds, estimated_training_seconds
    from bench.serialize import to_json

    return {"plan": to_json(wanted), "estimated_s": estimated_seconds(wanted), "estimated_training_s": estimated_training_seconds(wanted)}
