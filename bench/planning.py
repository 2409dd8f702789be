"""From flags, a file or an interrupted run to the plan that is to be run. What can be refused without torch is refused first."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from bench import catalog, environment
from bench.flags import Flags, announce_data_root, to_device, to_recipe, to_request, to_settings
from bench.spec import Plan, RequestError


def runs_elsewhere(executor: str) -> bool:
    """Does the executor say itself where its jobs run? Then this machine need not have what they need."""
    return hasattr(catalog.load("executors", executor), "inspect_environment")


def plan_to_run(flags: Flags, plan_file: str, resume: str, out: str, *, elsewhere: bool = False) -> tuple[Plan, Path | None]:
    """The plan from flags, from a file, or of the run to resume; for the last, also its folder."""
    source = plan_file or resume
    if not source:
        return plan_of_flags(flags, may_be_elsewhere=elsewhere), None
    if (plan_file and resume) or flags.given():
        other = "--resume" if plan_file and resume else flags.given()[0]
        raise RequestError(
            f"--{'plan' if plan_file else 'resume'} takes the whole request from {source}; {other} cannot be added", "leave it out"
        )
    if resume and out:
        raise RequestError("--resume goes on in its own folder; --out cannot be added", "leave --out out")
    announce_data_root(flags)
    from bench.plan import check_plan
    from bench.record import read_plan, read_plan_of_run

    plan = read_plan_of_run(Path(resume)) if resume else read_plan(Path(plan_file))
    check_plan(plan, source, is_own_run=bool(resume))
    if elsewhere:
        return plan, Path(resume) if resume else None
    environment.resolve_device(plan.cells[0].cell.workload.device)
    if max(plan.settings.threads, plan.settings.train_threads) > environment.num_cores():
        raise RequestError(f"the plan asks for more threads than the {environment.num_cores()} cores here", "plan anew with --threads")
    return plan, Path(resume) if resume else None


def plan_of_flags(flags: Flags, *, may_be_elsewhere: bool = False) -> Plan:
    """Everything that can be refused without torch first; then the device; then the sizes."""
    if not flags.models:
        raise RequestError(
            "--models is missing", f"try --models gmlp,vit --seq 17,65,257; there are: {', '.join(catalog.names('families'))}"
        )
    request, settings, recipe = to_request(flags), to_settings(flags), to_recipe(flags)
    announce_data_root(flags)
    device = device_of(flags, may_be_elsewhere=may_be_elsewhere)
    from bench.plan import build_plan

    return build_plan(request, settings=settings, recipe=recipe, device=device, command=command_line())


def device_of(flags: Flags, *, may_be_elsewhere: bool) -> str:
    """`cpu` or `cuda`. Raises RequestError for a GPU that is not here, where it must be."""
    device = to_device(flags)
    return device if may_be_elsewhere and device == "cuda" else environment.resolve_device(device)


def require_data_of(plan: Plan) -> None:
    """Data that are absent are named before anything is measured, not after."""
    from bench.request import needs_task
    from bench.spec import is_trained
    from bench.tasks import require_data

    if any(needs_task(metric) for metric in plan.metrics):
        for task in dict.fromkeys(p.cell.workload.task for p in plan.cells if is_trained(p.cell, plan)):
            require_data(task)


def command_line() -> str:
    """What was typed, as a shell would take it."""
    return shlex.join(["bench", *sys.argv[1:]])
