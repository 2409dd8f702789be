"""Compare two hosts by the facts of their environments.

A host is known if the type of its processor could be read. Ceilings are the best rates that a
host reaches, measured at the start and at the end of a run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from bench.spec import MUST_AGREE, SAME_MACHINE

Facts = Mapping[str, Any]
Pairs = dict[str, tuple[Any, Any]]
CODE, TRAINING_CODE = "code_version", "training_versions"
TRAINING_KEYS = (TRAINING_CODE, "torch_version")
REPORTED = ("boot", "cpu_microcode", *MUST_AGREE, CODE)
"""Facts that are listed if two hosts differ in them.

The kernel's release is part of `operating_system`.
"""
CONTINUED_ON = "continued_on"
HOST_FACTS = ("environment_id", "cpu_type", "boot", "code_version")
"""Facts that are noted of each further environment that continues a run."""
AT_START, AT_END = "ceilings_at_start", "ceilings_at_end"
MAX_CEILING_CHANGE = 0.15
"""A ceiling has changed if it differs by more than this fraction."""
COPY_BYTES = {"cpu": 2**27, "cuda": 2**29}
"""Bytes of each array whose copies give the ceiling of bandwidth: several times the last cache."""
MAX_ITEMS, MAX_CHARACTERS = 30, 300
"""A longer fact is not shown."""
UNKNOWN = "host unknown"
GIB = 2**30


def host_type(facts: Facts) -> str | None:
    """Name the type of the measured processor; None if unknown.

    It is the GPU's type if the device is cuda, else the CPU's.
    """
    return gpu_type(facts) if facts.get("device") == "cuda" else facts.get("cpu_type")


def gpu_type(facts: Facts) -> str | None:
    """Name the GPU or MIG slice with its memory; None if unknown."""
    gpu, memory = facts.get("gpu"), facts.get("gpu_memory_bytes")
    return f"{gpu}, {memory / GIB:.0f} GiB" if gpu and memory else None


def is_known(facts: Facts) -> bool:
    """Return whether the type of the host could be read."""
    return host_type(facts) is not None


def shown(facts: Facts, place: str) -> dict[str, Any]:
    """Return the facts for a table, with a reference to their place instead of long ones, such as all packages."""

    def short(value: Any) -> Any:
        if isinstance(value, Mapping) and len(value) > MAX_ITEMS:
            return f"{len(value)}, in {place}"
        return f"in {place}" if isinstance(value, str) and len(value) > MAX_CHARACTERS else value

    return {name: short(value) for name, value in facts.items()}


def identity(facts: Facts) -> dict[str, Any]:
    """Return the facts that identify an environment."""
    return {key: facts.get(key) for key in MUST_AGREE}


def training_identity(facts: Facts) -> dict[str, Any]:
    """Return the facts that determine what trainings learn."""
    return {key: facts.get(key) for key in TRAINING_KEYS}


def machine(facts: Facts) -> dict[str, Any]:
    """Return the facts that times of two runs must share: host type, cores, threads and allocator."""
    return {"host type": host_type(facts) or UNKNOWN, **{key: facts.get(key) for key in SAME_MACHINE}}


def disagreements(first: Facts, second: Facts, *, trained: bool, timed: bool = True) -> Pairs:
    """Return the facts that forbid mixing records of two environments.

    Each fact comes with both values; empty if the records may be mixed.

    `trained`: models are trained, so the code that determines what they learn must agree; the version of all code, if it is not recorded.
    `timed`: the records depend on the machine. Trainings alone may move to another machine.
    """
    found: Pairs = {}
    if trained and TRAINING_CODE in first and TRAINING_CODE in second:
        found = _training_differences(first, second)
        if not timed:
            return found
    elif trained:
        found = _differing(first, second, (CODE,))
    return found | _differing(first, second, MUST_AGREE)


def _training_differences(first: Facts, second: Facts) -> Pairs:
    """Return what differs in code and library that determine what models learn.

    A family's version is of its own code and of the loop, which all share. So runs that share a family agree if its version does; those that share
    none agree in all code.
    """
    one, other = (facts[TRAINING_CODE] for facts in (first, second))
    shared = one.keys() & other.keys()
    if not shared:
        return _differing(first, second, (CODE, "torch_version"))
    first, second = ({**facts, TRAINING_CODE: {name: facts[TRAINING_CODE][name] for name in shared}} for facts in (first, second))
    return _differing(first, second, TRAINING_KEYS)


def machine_differences(first: Facts, second: Facts) -> Pairs:
    """Return the facts that forbid comparing times of two runs.

    They are host type, cores, threads and allocator, each with both values.
    """
    return _differing(machine(first), machine(second), tuple(machine(first)))


def host_differences(first: Facts, second: Facts) -> Pairs:
    """Return the differing facts and ceilings of two hosts, with both values.

    The facts describe machine and software. A ceiling differs if it changed by more than MAX_CEILING_CHANGE.
    """
    found = _differing(first, second, REPORTED)
    for moment in (AT_START, AT_END):
        apart = changed_ceilings(ceilings(first, moment), ceilings(second, moment))
        found |= {f"{name} in {moment}": pair for name, pair in apart.items()}
    return found


def ceilings(facts: Facts, moment: str) -> dict[str, float]:
    """Return the ceilings noted at AT_START or AT_END, per second, by name.

    Empty if none were measured.
    """
    noted = facts.get(moment)
    rates = noted.items() if isinstance(noted, Mapping) else ()
    return {name: rate for name, rate in rates if isinstance(rate, int | float) and rate > 0}


def changed_ceilings(first: Mapping[str, float], second: Mapping[str, float]) -> dict[str, tuple[float, float]]:
    """Return the ceilings that differ by more than MAX_CEILING_CHANGE, with both values.

    Ceilings that only one host has are left out.
    """
    pairs = {name: (rate, second[name]) for name, rate in first.items() if name in second}
    return {name: pair for name, pair in pairs.items() if spread(pair) > MAX_CEILING_CHANGE}


def furthest_apart(hosts: Sequence[Mapping[str, float]]) -> tuple[str, float, float] | None:
    """Return the ceiling that differs most between any two hosts.

    The result is its name, the lower rate and the higher; None if no ceiling has changed.
    """
    found = [(name, pair) for one, other in combinations(hosts, 2) for name, pair in changed_ceilings(one, other).items()]
    if not found:
        return None
    name, pair = max(found, key=lambda each: spread(each[1]))
    return name, min(pair), max(pair)


def spread(pair: tuple[float, float]) -> float:
    """Return the relative excess of the larger value over the smaller."""
    return max(pair) / min(pair) - 1


def _differing(first: Facts, second: Facts, keys: Sequence[str]) -> Pairs:
    pairs = {key: (first.get(key), second.get(key)) for key in keys}
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}
