"""Join a Ray cluster and start slots on nodes that agree.

A slot is a place for one job at a time: one GPU, or a share of the CPUs of a node, by default all. The cluster is the one at
RAY_ADDRESS, or a new one on this machine alone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from bench.errors import MAX_REASON, one_line
from bench.measure.hosts import CODE, disagreements
from bench.progress import tell
from bench.running.slot import FACTS
from bench.serialize import from_json
from bench.spec import Outcome, RequestError
from bench.tasks import DATA_VARIABLE

OWN = "local"
OWN_CLUSTER = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
"""Environment variables of a cluster on this machine alone.

Set before Ray is imported: bind to the loopback interface alone, send no usage reports, run jobs at this process's priority (not 15 below).
"""
JOINING = {"RAY_gcs_server_port_wait_time_s": "1"}
"""Environment variables of a process that joins a cluster: a head that refuses it is asked once, not twenty times."""
QUIET = {"RAY_DEDUP_LOGS_SKIP_REGEX": ".*"}
"""Environment variables that keep Ray's messages about lost workers off the standard output; the run reports them itself."""
STDERR = 2
CONNECT_LIMIT_S = 10.0
START_LIMIT_S = 120.0
FIRST_LIMIT_S = 600.0
"""Seconds until a run gives up on a cluster of which no slot has answered: a busy node or a slow file system takes minutes to import torch."""
NO_GPU = "NVML finds no GPU that its jobs may use"
NO_ANSWER = f"no answer within {START_LIMIT_S:g} s (its CPUs may be in use)"
START_HINT = "start one with: ray start --head --node-ip-address=HOST, and name it with `address=HOST:6379`"
TOKEN_HINT = "set the RAY_AUTH_MODE and RAY_AUTH_TOKEN of the cluster here too"
VERSION_HINT = "install the cluster's versions of Ray and Python here too"
LOGS_HINT = "see Ray's logs in /tmp/ray/session_latest/logs"


class SlotSettings(NamedTuple):
    """The settings that the jobs of a slot share.

    `threads`: threads of a job.
    `device`: `cpu` or `cuda`.
    `per_node`: slots that share the CPUs of a node, on the CPU.
    """

    threads: int
    device: str
    per_node: int = 1


@dataclasses.dataclass(frozen=True, eq=False)
class Slot:
    """A place that runs one job at a time.

    `actor`: handle of the Ray actor that runs the jobs.
    `node`: id of its node.
    `needs`: the node's resources that it takes, in Ray's terms.
    `facts`: its environment; empty until it has answered.
    """

    actor: Any
    node: str
    needs: Mapping[str, Any]
    facts: Mapping[str, Any]


SlotSpecs = list[tuple[str, dict[str, Any]]]
"""Node and needs of slots that could be started."""


class _Worker:
    """The actor, which passes jobs to its own `bench.running.slot` process.

    The process runs under the Python of its node.
    """

    def __init__(self, arguments: list[str], variables: dict[str, str]) -> None:
        from ray import get_gpu_ids

        if gpus := get_gpu_ids():  # Ray's ids are NVML's indices, but a node's settings may stop Ray from setting the variable
            variables = {**variables, "CUDA_VISIBLE_DEVICES": ",".join(map(str, gpus)), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "bench.running.slot", *arguments],
            env={**os.environ, **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )

    def facts(self) -> dict[str, Any]:
        return self._answer(FACTS, "facts")

    def run(self, job: str) -> dict[str, Any]:
        return self._answer(job, "outcomes")

    def _answer(self, request: str, wanted: str) -> dict[str, Any]:
        """Send a request; return its answer, and earlier progress messages as `progress`.

        Raises EOFError if the process ends.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(request + "\n")
        self._process.stdin.flush()
        messages: list[str] = []
        for line in self._process.stdout:
            answer = json.loads(line)
            if wanted in answer:
                return {wanted: answer[wanted], "progress": messages}
            messages.append(answer["progress"])
        raise EOFError(f"bench.running.slot ended with {self._process.wait()}")


def ray() -> Any:
    """Import and return the package ray.

    Raises RequestError if it is not installed.
    """
    os.environ.update(OWN_CLUSTER if os.environ.get("RAY_ADDRESS", OWN) in ("", OWN) else JOINING)
    os.environ.update(QUIET)
    try:
        import ray
    except ModuleNotFoundError as error:
        raise RequestError("`on=ray` needs the package ray", "pip install ray") from error
    return ray


def _connect() -> None:
    """Connect to the cluster at RAY_ADDRESS, or start a local one.

    A local cluster cannot be reached from other machines. Raises RequestError if the connection fails.
    """
    if ray().is_initialized():
        return
    address = os.environ.get("RAY_ADDRESS") or OWN
    own: dict[str, Any] = {"include_dashboard": False} if address == OWN else {}
    _require_reachable(address)
    on_termination = signal.getsignal(signal.SIGTERM)
    try:
        with _stderr_silent():
            ray().init(address=address, log_to_driver=False, logging_level="ERROR", **own)
    except Exception as error:  # Ray raises many types of its own
        raise _not_joined(address, error) from error
    finally:  # Ray replaces the run's handler
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, on_termination)


def _not_joined(address: str, error: Exception) -> RequestError:
    """Return the error of a failed connection, with a hint for its cause."""
    if address == OWN:
        return RequestError(f"Ray cannot start a cluster here: {one_line(error)}", LOGS_HINT)
    told = f"{error} {error.__cause__ or error.__context__}"  # only the cause names a refused token
    if "AuthenticationError" in told or "authentication token" in told:
        return RequestError(f"the Ray cluster at {address} refuses this token, or none", TOKEN_HINT)
    reason = " ".join(str(error).split())[:MAX_REASON]
    if "Version mismatch" in told:
        return RequestError(f"cannot join the Ray cluster at {address}: {reason}", VERSION_HINT)
    return RequestError(f"no Ray cluster answers at {address}: {reason}", START_HINT)


@contextlib.contextmanager
def _stderr_silent() -> Iterator[None]:
    """Drop what the process writes to its standard error: Ray's compiled part writes there at every failed attempt, at any logging level."""
    with open(os.devnull, "wb") as nothing:
        kept = os.dup(STDERR)
        try:
            os.dup2(nothing.fileno(), STDERR)
            yield
        finally:
            os.dup2(kept, STDERR)
            os.close(kept)


def head_answers() -> bool:
    """Return whether the head of the joined cluster can be reached."""
    try:
        _reach(ray().get_runtime_context().gcs_address)
    except OSError:
        return False
    return True


def _reach(address: str) -> None:
    """Connect once to HOST:PORT. Raises OSError or OverflowError."""
    host, _, port = address.rpartition(":")
    socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_LIMIT_S).close()


def _require_reachable(address: str) -> None:
    """Raise RequestError unless the address answers; Ray itself would wait for minutes."""
    if address in (OWN, "auto"):
        return
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not port.isdigit():
        raise RequestError(f"{address!r} is not an address HOST:PORT of a Ray cluster", START_HINT)
    try:
        _reach(address)
    except (OSError, OverflowError) as error:
        raise RequestError(f"no Ray cluster answers at {address}: {one_line(error)}", START_HINT) from error


@functools.lru_cache(maxsize=1)
def slots_of(settings: SlotSettings) -> tuple[tuple[Slot, ...], frozenset[str]]:
    """Start slots; return the usable ones and the differing nodes.

    Slots on the most common kind of node are usable. Raises RequestError if there are none.
    """
    _connect()
    _warn_of_idle_gpus(settings)
    asked = {slot.actor.facts.remote(): slot for slot in (start_slot(node, needs, settings) for node, needs in possible_slots(settings))}
    answered, late = _wait(list(asked)) if asked else ([], [])
    for reference in late:
        leave_out(asked[reference], NO_ANSWER)
    found = [dataclasses.replace(asked[reference], facts=facts) for reference in answered if (facts := facts_of(reference))]
    agreeing = _largest_group([slot for slot in found if settings.device == "cpu" or slot.facts["gpu"]])
    differing = [(slot, reason) for slot in found if (reason := difference(agreeing[0], slot) if agreeing else NO_GPU)]
    for slot, reason in differing:
        leave_out(slot, reason)
    if late and not answered:
        raise RequestError(
            f"none of the {len(late)} slots of the Ray cluster answered within {FIRST_LIMIT_S:g} s (its CPUs may be in use)",
            "see what uses them with `ray status`, or wait until they are free",
        )
    if not agreeing:
        needed = f"a GPU and {settings.threads}" if settings.device == "cuda" else settings.threads * settings.per_node
        raise RequestError(
            f"no node of the Ray cluster has {needed} CPUs to run jobs on", "add a node, or ask for fewer `threads` or `slots`"
        )
    first = agreeing[0]
    if facts := facts_of(first.actor.facts.remote()):  # ask again how busy the node is, now that no other slot is starting there
        agreeing[0] = dataclasses.replace(first, facts=facts)
    return tuple(agreeing), frozenset(slot.node for slot, _ in differing)


def _wait(asked: list[Any]) -> tuple[list[Any], list[Any]]:
    """Return the references that have answered within START_LIMIT_S and the others; where none has, wait for the first, to FIRST_LIMIT_S."""
    answered, late = ray().wait(asked, num_returns=len(asked), timeout=START_LIMIT_S)
    if not answered:
        tell(f"Ray: none of {len(asked)} slots has answered within {START_LIMIT_S:g} s; the run waits for the first")
        answered, late = ray().wait(asked, num_returns=1, timeout=FIRST_LIMIT_S - START_LIMIT_S)
    return answered, late


def possible_slots(settings: SlotSettings) -> SlotSpecs:
    """Return the slots that the nodes have resources for.

    On CUDA, one slot per GPU, as long as the node has CPUs for its threads. Otherwise, as many as wanted with equal shares of a node's CPUs.
    """
    found: SlotSpecs = []
    for node, num_gpus, num_cpus in _nodes():
        if settings.device == "cuda":
            found += [(node, {"num_gpus": 1, "num_cpus": settings.threads})] * min(num_gpus, num_cpus // settings.threads)
        elif num_cpus // settings.per_node >= settings.threads:
            found += [(node, {"num_cpus": num_cpus // settings.per_node})] * settings.per_node
    return found


def _warn_of_idle_gpus(settings: SlotSettings) -> None:
    for node, num_gpus, num_cpus in _nodes():
        num_used = min(num_gpus, num_cpus // settings.threads)
        if settings.device == "cuda" and num_used < num_gpus:
            warnings.warn(
                f"{num_used} of {num_gpus} GPUs of node {node[:8]} of the Ray cluster are used: it has {num_cpus} CPUs, and a job takes "
                f"{settings.threads} (--threads)",
                stacklevel=2,
            )


def _nodes() -> list[tuple[str, int, int]]:
    """Return id, GPU count and CPU count of every live node."""
    alive = [(node["NodeID"], node["Resources"]) for node in ray().nodes() if node["Alive"]]
    return [(name, int(resources.get("GPU", 0)), int(resources.get("CPU", 0))) for name, resources in alive]


def start_slot(node: str, needs: Mapping[str, Any], settings: SlotSettings) -> Slot:
    """Start a slot on exactly this node, without waiting for it.

    Its facts are still empty.
    """
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    variables = {"PYTHONPATH": os.pathsep.join(sys.path), **{name: os.environ[name] for name in (DATA_VARIABLE,) if name in os.environ}}
    strategy = NodeAffinitySchedulingStrategy(node_id=node, soft=False)
    actor = _worker_class().options(**needs, max_restarts=0, scheduling_strategy=strategy)
    return Slot(actor.remote([str(settings.threads), settings.device, node[:8]], variables), node, needs, {})


@functools.cache
def _worker_class() -> Any:
    """Return the class of all actors.

    Ray sends a class to the head of the cluster when its first actor is asked for, and waits for that: a new class would block without a head.
    """
    # pickle by value, because a node may not have this program at the driver's path
    ray().cloudpickle.register_pickle_by_value(sys.modules[__name__])
    return ray().remote(_Worker)


def facts_of(reference: Any) -> dict[str, Any] | None:
    """Return the environment of a slot.

    None if the slot or its node is gone.
    """
    answer = _answer(reference)
    return dict(answer["facts"]) if answer else None


def outcomes_of(reference: Any) -> list[Outcome] | None:
    """Return the outcomes of a batch.

    None if its slot or node is gone.
    """
    answer = _answer(reference)
    return [from_json(Outcome, outcome) for outcome in answer["outcomes"]] if answer else None


def _answer(reference: Any) -> dict[str, Any] | None:
    """Wait for an actor's answer and pass on its progress messages.

    None if the actor or its node is gone.
    """
    try:
        answer: dict[str, Any] = ray().get(reference)
    except ray().exceptions.RayError as error:
        tell(f"Ray: {' '.join(str(error).split())[:200]}")
        return None
    for text in answer["progress"]:
        tell(text)
    return answer


def leave_out(slot: Slot, reason: str) -> None:
    """Warn that a slot is left out, and free its resources."""
    kind = "a GPU of node" if "num_gpus" in slot.needs else "node"
    warnings.warn(f"{kind} {slot.node[:8]} of the Ray cluster is left out: {reason}", stacklevel=2)
    end_slot(slot)


def end_slot(slot: Slot) -> None:
    """Free the resources of a slot, unless it is gone already."""
    with contextlib.suppress(Exception):
        ray().kill(slot.actor)


def _largest_group(slots: list[Slot]) -> list[Slot]:
    """Return the slots on the most common kind of node.

    Ties are broken the same way every time, so that an interrupted run can be resumed.
    """
    kinds = Counter(map(_kind, slots))
    chosen = max(kinds, key=lambda kind: (kinds[kind], kind), default=None)
    return [slot for slot in slots if _kind(slot) == chosen]


def _kind(slot: Slot) -> tuple[str, str]:
    return str(slot.facts["environment_id"]), str(slot.facts[CODE])


def difference(chosen: Slot, other: Slot) -> str:
    """Return why times of two slots must not be mixed.

    "" if they may be mixed.
    """
    pairs = disagreements(chosen.facts, other.facts, trained=True).items()
    return next((f"{key} is {theirs!r} there and {ours!r} on the nodes that are used" for key, (ours, theirs) in pairs), "")
