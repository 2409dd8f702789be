"""Hold the plugins that an installed package declares to their contracts."""

from __future__ import annotations

import dataclasses
import difflib
import math
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from bench import catalog
from bench.errors import one_line
from bench.metrics import Repeat
from bench.planning.ablation import plan_ablation
from bench.planning.fields import read
from bench.planning.request import Request, checked
from bench.planning.settings import recipe_of, settings_of
from bench.spec import MEASURED, Outcome, Plan, Record, RequestError, Workload
from bench.tasks import require_data
from models.layers import plugins
from models.layers.options import option_text
from models.layers.shape import Interface

OK, WRONG, UNCHECKED = "ok", "wrong", "not checked"
SMALL = {"models": "vit", "seq": "17", "width": "16", "heads": "2", "depth": "1", "threads": "1", "device": "cpu"}
"""The configuration on which metrics, engines and executors are tried, in words of the command line."""
TOLERANCE = 1e-3
"""Largest difference of an engine's answers from those of the plain model, as a share of the largest answer."""
MISSPELT = 0.8
"""Likeness, by difflib, from which a column that stays empty is another spelling of a value that is measured."""
LIGHT_KINDS = ("metrics", "tasks", "ablations")
"""Kinds whose modules import no torch at their top level."""
PROBE = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
    if "torch" in sys.modules:
        sys.exit(name + " imports torch")
"""


class UncheckedError(Exception):
    """What a check needs is missing here."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """How a plugin stands. `answer`: OK, WRONG or UNCHECKED; `reason` and `advice` are empty if it is OK."""

    kind: str
    name: str
    answer: str
    reason: str = ""
    advice: str = ""


def check_package(package: str) -> list[Finding]:
    """Check all plugins that an installed package declares, by kind and name.

    Raises RequestError if no package of that name declares any.
    """
    if not __debug__:
        raise RequestError("the contracts are assertions, which Python leaves out here", "start Python without -O")
    declared = plugins.packages()
    known = next((name for name in declared if _normalised(name) == _normalised(package)), None)
    if known is None and not declared:
        raise RequestError(
            f"{package!r} declares no plugins, nor does any other installed package", "install the package whose plugins to check"
        )
    if known is None:
        raise catalog.unknown("package with plugins", package, tuple(sorted(declared)), "bench list")
    found = [
        Finding(
            kind=kind, name="", answer=WRONG, reason=f"unknown group {plugins.GROUP}{kind}", advice=f"allowed: {', '.join(catalog.FOLDERS)}"
        )
        for kind in sorted(declared[known] - set(catalog.FOLDERS))
    ]
    for kind in (kind for kind in catalog.FOLDERS if kind in declared[known]):
        left_out = [other for other in catalog.found(kind).left_out if other.package == known]
        found += [Finding(kind=kind, name=o.name, answer=WRONG, reason=o.problem) for o in left_out]
        found += [_finding(kind, plugin.name) for plugin in catalog.from_packages(kind) if plugin.package == known]
    return found


def _normalised(package: str) -> str:
    return re.sub(r"[-_.]+", "-", package).lower()


def _finding(kind: str, name: str) -> Finding:
    try:
        catalog.load(kind, name)
        assert catalog.summary(kind, name), "the module has no docstring, whose first line is its summary"
        if kind in LIGHT_KINDS:
            heavy = first_torch_importer([catalog.plugin(kind, name).module])
            assert not heavy, f"{heavy.splitlines()[-1]}: import it within functions"
        CHECKS[kind](name)
    except UncheckedError as missing:
        return Finding(kind=kind, name=name, answer=UNCHECKED, reason=str(missing))
    except (Exception, SystemExit) as error:  # code of others may raise anything
        is_said = isinstance(error, AssertionError | RequestError) and str(error)
        reason = one_line(error) if is_said else f"{type(error).__name__}: {one_line(error)}"
        return Finding(kind=kind, name=name, answer=WRONG, reason=reason, advice=f"the contract: python -m pydoc {catalog.FOLDERS[kind]}")
    return Finding(kind=kind, name=name, answer=OK)


def first_torch_importer(modules: Iterable[str], path: Iterable[str] = ()) -> str:
    """Import modules in turn in a fresh interpreter; return what it says of the first that brings torch in, or "".

    `path`: where it finds them; by default as this process does.
    """
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(path or (entry or os.getcwd() for entry in sys.path))}
    done = subprocess.run([sys.executable, "-c", PROBE, *modules], capture_output=True, text=True, check=False, env=variables)
    return done.stderr.strip()


def check_family(name: str) -> None:
    table = catalog.load("families", name)
    taken = [variant for variant in getattr(table, "VARIANTS", {}) if catalog.variants().get(variant) != name]
    assert not taken, f"the variant {taken[0]} is one of another family" if taken else ""
    _check_architecture("families", name)


def check_mixer(name: str) -> None:
    _check_architecture("mixers", name)


def _check_architecture(kind: str, name: str) -> None:
    from bench.contracts.architectures import CONTRACT, check_refusals
    from bench.contracts.subjects import every_subject

    check_refusals(kind, name)
    for subject in every_subject(*([name] if kind == own else [] for own in ("families", "mixers"))):
        for check in CONTRACT:
            try:
                check(subject)
            except Exception as error:
                said = str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
                raise AssertionError(f"{subject.label}: {said}") from error


def check_task(name: str) -> None:
    from bench.contracts.tasks import check_all, subject_of

    if argument := getattr(catalog.load("tasks", name), "ARGUMENT", ""):
        raise UncheckedError(f"what {name}:{argument} holds is known once {argument} is")
    try:
        require_data(name)
    except RequestError as missing:
        raise UncheckedError(f"{missing}; {missing.hint}") from missing
    subject = subject_of(name)
    assert subject.info.name == name, f"info names the task {subject.info.name}"
    check_all(subject)


def check_metric(name: str) -> None:
    """Check what a metric declares; one that needs no training is measured too, and its columns are filled."""
    metric, repeats = catalog.load("metrics", name), get_args(Repeat)
    assert metric.REPEAT in repeats, f"REPEAT is {metric.REPEAT!r}, not one of {', '.join(repeats)}"
    columns = metric.COLUMNS
    assert isinstance(columns, tuple), f"COLUMNS is {columns!r}, not a tuple of names"
    taken = taken_columns(name)
    assert not taken, f"{', '.join(taken)} of COLUMNS are another one's already"
    strays = sorted(set(getattr(metric, "NOT_NUMBERS", ())) - set(columns))
    assert not strays, f"{strays} of NOT_NUMBERS are not in COLUMNS"
    if metric.REPEAT not in ("once", "round"):
        return
    plan = _plan(metrics=name, **({"task": "digits"} if getattr(metric, "NEEDS_TASK", False) else {}))
    record = _measured(plan, name, "inline")
    row: Mapping[str, Any] = metric.summarise([record])
    strays = sorted(set(row) - set(columns))
    assert not strays, f"summarise fills {strays}, which are not in COLUMNS"
    numbers = {column: value for column, value in row.items() if column not in getattr(metric, "NOT_NUMBERS", ())}
    for column, value in numbers.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        assert value is None or is_number, f"the column {column} holds {value!r}: a number, None, or an entry of NOT_NUMBERS"
    values = record.outcome.values
    unclaimed = [key for key, value in values.items() if key not in columns and value is not None]
    for column in (column for column in columns if column not in values and row.get(column) is None):
        near = difflib.get_close_matches(column, unclaimed, n=1, cutoff=MISSPELT)
        assert not near, f"the column {column} stays empty, but measure gives {near[0]}"
    if all(value is None for value in row.values()):
        raise UncheckedError(f"a {SMALL['models']} on a CPU fills no column")


def taken_columns(metric: str) -> list[str]:
    """Return the columns of a metric that every table has, or that a metric of this program fills."""
    from bench.reading.table import IDENTITY

    others = {*IDENTITY} if catalog.plugin("metrics", metric).package else set()
    for other in catalog.found("metrics").plugins.values():
        others.update(() if other.package or other.name == metric else catalog.load("metrics", other.name).COLUMNS)
    return sorted(others & {*catalog.load("metrics", metric).COLUMNS})


def check_ablation(name: str) -> None:
    check_question(name)
    plan_ablation(name, Request(quick=True), "cpu", command="")


def check_question(name: str) -> None:
    """Check that a question's docstring says what it asks, predicts and costs, and where that comes from."""
    text = catalog.docstring("ablations", name)
    assert catalog.summary("ablations", name).endswith("?"), "the first line of the docstring is no question"
    for word in ("Prediction:", "Source:", "Cost:"):
        assert f"\n\n{word}" in text, f"no paragraph of the docstring begins with {word}"


def check_executor(name: str) -> None:
    _measured(_plan(metrics="params"), "params", name)


def check_engine(name: str) -> None:
    """Check an engine's options, and where it can run a small model that its answers are those of the plain model."""
    engine, told = catalog.load("engines", name), catalog.options(name, "engines")
    config = engine.Config()
    for option in told:
        found = getattr(config, option.name)
        assert found == option.default, (
            f"the default of {option.name} is {option_text(option.default)} in the text, {option_text(found)} when run"
        )
    assert isinstance(engine.HIDES_OPERATORS, bool), "HIDES_OPERATORS is neither True nor False"
    work: Workload = _plan(metrics="params").cells[0].cell.workload
    reason = engine.why_unsupported(config, work)
    assert isinstance(reason, str), f"why_unsupported returns {reason!r}, not a text"
    if reason:
        raise UncheckedError(f"it cannot run a small model on this CPU: {reason}")
    from torch import no_grad

    from bench.contracts.architectures import assert_close_to_largest
    from bench.contracts.subjects import family_subject

    subject = family_subject(SMALL["models"], Interface(), {})
    model, data = subject.build(17).eval(), subject.data(17)
    with no_grad():
        expected = model(data)
        found = engine.prepare(model, data, config, trains=False).forward(data)
        assert_close_to_largest(found, expected, TOLERANCE, "its answers and those of the plain model")


def _plan(**texts: str) -> Plan:
    from bench.planning.build import build_plan

    request = checked(read(Request, {**SMALL, **texts}))
    return build_plan(request, settings=settings_of(request, "cpu"), recipe=recipe_of(request), device="cpu")


def _measured(plan: Plan, metric: str, executor: str) -> Record:
    from bench.planning.jobs import jobs
    from bench.running.executors import run_batch
    from bench.running.runner import record_of

    job = next(job for job in jobs(plan) if job.metric == metric)
    with tempfile.TemporaryDirectory() as folder, catalog.load("executors", executor).Executor() as runner:
        (outcome,) = run_batch(runner, (dataclasses.replace(job, scratch=folder, run_folder=folder),))
    assert isinstance(outcome, Outcome), f"a job ends in {outcome!r}, not in an Outcome"
    assert outcome.status == MEASURED, f"a small {SMALL['models']} is {outcome.status}: {outcome.reason}"
    return record_of(job, outcome, {"environment_id": "", "code_version": ""})


CHECKS: dict[str, Callable[[str], None]] = {
    "families": check_family,
    "mixers": check_mixer,
    "metrics": check_metric,
    "tasks": check_task,
    "ablations": check_ablation,
    "executors": check_executor,
    "engines": check_engine,
}
