"""Return the plan of a request: from flags, from a plan file, or from an interrupted run."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from bench import catalog
from bench.measure import environment
from bench.peers import own_code
from bench.peers.own_import import children_end
from bench.planning import completion
from bench.planning.flags import Flags, announce_data_root, settings_on, to_recipe, to_request, to_settings, with_lengths_of
from bench.planning.values import flag, named_path
from bench.spec import Plan, RequestError

EXECUTION = "Execution"
"""Panel of the options in the help."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """Flags of `run` that name a stored plan or run in place of a request."""

    plan_file: Annotated[
        Path | None, flag("Run a plan.json, or the plan of a run folder, on this machine.", "FILE", EXECUTION, named_path, names=["--plan"])
    ] = None
    resume: Annotated[Path | None, flag("Finish an interrupted run.", "RUN", EXECUTION, named_path, autocompletion=completion.runs)] = None


def runs_elsewhere(executor: str) -> bool:
    """Return whether an executor runs its jobs on other machines.

    Such an executor inspects their environment itself, so this machine need not have the device.
    """
    return hasattr(catalog.load("executors", executor), "inspect_environment")


@children_end()
def plan_to_run(
    flags: Flags, source: Source, out: Path | None = None, *, elsewhere: bool = False, command: str = ""
) -> tuple[Plan, Path | None]:
    """Return the plan from flags, a file or a run to resume.

    The second value is the folder of the run to resume, else None. Raises RequestError if the flags contradict each other.
    """
    plan_file, resume = source.plan_file, source.resume
    stored = plan_file or resume
    if not stored:
        return plan_of_flags(flags, may_be_elsewhere=elsewhere, command=command), None
    if (plan_file and resume) or flags.given():
        other = "--resume" if plan_file and resume else flags.given()[0]
        raise RequestError(
            f"--{'plan' if plan_file else 'resume'} takes the whole request from {stored}; {other} cannot be added", f"leave {other} out"
        )
    if resume and out:
        raise RequestError("--resume continues in the folder of the run; --out cannot be added", "leave --out out")
    announce_data_root(flags)
    from bench.planning.check import check_plan
    from bench.running.store import read_plan, read_plan_of_run

    plan = read_plan_of_run(stored) if resume else read_plan(stored)
    own_code.look_in(stored if stored.is_dir() else stored.parent)
    check_plan(plan, str(stored), is_own_run=bool(resume))
    if elsewhere:
        return plan, resume
    environment.resolve_device(plan.cells[0].cell.workload.device)
    if max(plan.settings.threads, plan.settings.train_threads) > environment.num_cores():
        raise RequestError(f"the plan needs more threads than the {environment.num_cores()} cores here", "make a new plan with --threads")
    return plan, resume


@children_end()
def plan_of_flags(flags: Flags, *, may_be_elsewhere: bool = False, command: str = "") -> Plan:
    """Return the plan of a request.

    `command`: the command line to note in it; by default the one that was typed.
    Checks that need no torch come first, then the device, then the sizes. Without --seq the device comes first, because it sets the lengths.
    """
    if not flags.models:
        raise RequestError("--models is missing", f"try --models gmlp,vit --seq 17,65,257; allowed: {', '.join(catalog.names('families'))}")
    if not flags.seq:
        flags = with_lengths_of(device_of(flags, may_be_elsewhere=may_be_elsewhere), flags)
    request, _, recipe = to_request(flags), to_settings(flags), to_recipe(flags)
    announce_data_root(flags)
    device = device_of(flags, may_be_elsewhere=may_be_elsewhere)
    from bench.planning.build import build_plan

    return build_plan(request, settings=settings_on(device, flags), recipe=recipe, device=device, command=command or command_line())


def device_of(flags: Flags, *, may_be_elsewhere: bool) -> str:
    """Return `cpu` or `cuda`.

    Raises RequestError if a GPU is requested and absent, unless jobs `may_be_elsewhere`.
    """
    return "cuda" if may_be_elsewhere and flags.device == "cuda" else environment.resolve_device(flags.device)


def require_data_of(plan: Plan) -> None:
    """Raise RequestError for missing data, before anything is measured."""
    from bench.planning.request import needs_task
    from bench.spec import is_trained
    from bench.tasks import require_data

    if any(needs_task(metric) for metric in plan.metrics):
        for task in dict.fromkeys(p.cell.workload.task for p in plan.cells if is_trained(p.cell, plan)):
            require_data(task)


def command_line() -> str:
    """Return the command line that was typed, quoted for a shell."""
    return shlex.join(["bench", *sys.argv[1:]])
