"""The nodes of a Ray cluster and the slots on them: joining the cluster at RAY_ADDRESS, or one of this machine alone; what a slot says of itself."""

from __future__ import annotations

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
from collections.abc import Mapping
from typing import Any, NamedTuple

from bench.errors import one_line
from bench.measure.hosts import CODE, disagreements
from bench.progress import tell
from bench.running.slot import FACTS
from bench.serialize import from_json
from bench.spec import Outcome, RequestError
from bench.tasks import DATA_VARIABLE

OWN = "local"
OWN_CLUSTER = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0"}
"""Ray binds to all interfaces but where it is told, before it is imported, that this machine makes no clusters; then to the loopback one alone."""
CONNECT_LIMIT_S = 10.0
START_LIMIT_S = 120.0
NO_GPU = "NVML finds no GPU that its jobs may use"
NOT_HEARD = f"nothing heard in {START_LIMIT_S:g} s (are its CPUs taken?)"
START_ONE = "start one with: ray start --head --node-ip-address=HOST, and name it with --address HOST:6379"


class Place(NamedTuple):
    """What a slot is made for: so many threads, on this kind of device, with this policy of allocation."""

    threads: int
    device: str
    allocator: str


@dataclasses.dataclass(frozen=True, eq=False)
class Slot:
    """An actor, where it is, what it takes of its node (in Ray's resources) and what it says of itself."""

    actor: Any
    node: str
    needs: Mapping[str, Any]
    facts: Mapping[str, Any]


Room = list[tuple[str, dict[str, Any]]]
"""Node and needs of every slot that the nodes have room for."""


class _Worker:
    """The actor: passes jobs to a `bench.running.slot` of its own, under its node's Python."""

    def __init__(self, arguments: list[str], variables: dict[str, str]) -> None:
        from ray import get_gpu_ids

        if gpus := get_gpu_ids():  # Ray names them as NVML counts them, and a node may keep it from setting the variable
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
        """The answer to the request, and as `told` what was said before it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(request + "\n")
        self._process.stdin.flush()
        told: list[str] = []
        for line in self._process.stdout:
            answer = json.loads(line)
            if wanted in answer:
                return {wanted: answer[wanted], "told": told}
            told.append(answer["told"])
        raise EOFError(f"bench.running.slot ended with {self._process.wait()}")


def ray() -> Any:
    """The package. Raises RequestError where it is not installed."""
    if os.environ.get("RAY_ADDRESS", OWN) in ("", OWN):
        os.environ.update(OWN_CLUSTER)
    try:
        import ray
    except ModuleNotFoundError as error:
        raise RequestError("--on ray needs the package ray", "pip install 'gmlp-bench[ray]'") from error
    return ray


def _connect() -> None:
    """To the cluster at RAY_ADDRESS; without it to one of this machine alone, which nothing else can reach."""
    if ray().is_initialized():
        return
    address = os.environ.get("RAY_ADDRESS") or OWN
    own: dict[str, Any] = {"include_dashboard": False} if address == OWN else {}
    _require_reachable(address)
    on_termination = signal.getsignal(signal.SIGTERM)
    try:
        ray().init(address=address, log_to_driver=False, logging_level="ERROR", **own)
    except Exception as error:  # Ray has many of its own
        raise RequestError(f"no Ray cluster can be joined at {address}: {one_line(error)}", START_ONE) from error
    finally:  # Ray installs a handler in place of the run's
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, on_termination)


def _require_reachable(address: str) -> None:
    """Ray itself would wait for minutes."""
    if address in (OWN, "auto"):
        return
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not port.isdigit():
        raise RequestError(f"{address!r} is no address of a Ray cluster", START_ONE)
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_LIMIT_S).close()
    except (OSError, OverflowError) as error:
        raise RequestError(f"no Ray cluster answers at {address}: {one_line(error)}", START_ONE) from error


@functools.lru_cache(maxsize=1)
def slots_of(place: Place) -> tuple[tuple[Slot, ...], frozenset[str]]:
    """Start slots on the nodes of now; return those of the most common kind of node, and the nodes of another kind.

    Raises RequestError where there is none.
    """
    _connect()
    _tell_of_idle_gpus(place)
    asked = {slot.actor.facts.remote(): slot for slot in (start_slot(node, needs, place) for node, needs in room_for_slots(place))}
    answered, late = ray().wait(list(asked), num_returns=len(asked), timeout=START_LIMIT_S) if asked else ([], [])
    for reference in late:
        leave_out(asked[reference], NOT_HEARD)
    found = [dataclasses.replace(asked[reference], facts=facts) for reference in answered if (facts := facts_of(reference))]
    agreeing = _largest_group([slot for slot in found if place.device == "cpu" or slot.facts["gpu"]])
    differing = [(slot, reason) for slot in found if (reason := difference(agreeing[0], slot) if agreeing else NO_GPU)]
    for slot, reason in differing:
        leave_out(slot, reason)
    if not agreeing:
        needed = f"a GPU and {place.threads}" if place.device == "cuda" else place.threads
        raise RequestError(f"no node of the Ray cluster has {needed} CPUs to run jobs on", "add one, or fewer --threads")
    first = agreeing[0]
    if facts := facts_of(first.actor.facts.remote()):  # how busy its node is, now that no other slot is being started there
        agreeing[0] = dataclasses.replace(first, facts=facts)
    return tuple(agreeing), frozenset(slot.node for slot, _ in differing)


def room_for_slots(place: Place) -> Room:
    """Find room for a slot per GPU that has CPUs for its jobs, or for one that takes all CPUs of a node."""
    found: Room = []
    for node, num_gpus, num_cpus in _nodes():
        if place.device == "cuda":
            found += [(node, {"num_gpus": 1, "num_cpus": place.threads})] * min(num_gpus, num_cpus // place.threads)
        elif num_cpus >= place.threads:
            found.append((node, {"num_cpus": num_cpus}))
    return found


def _tell_of_idle_gpus(place: Place) -> None:
    for node, num_gpus, num_cpus in _nodes():
        num_used = min(num_gpus, num_cpus // place.threads)
        if place.device == "cuda" and num_used < num_gpus:
            warnings.warn(
                f"{num_used} of {num_gpus} GPUs of node {node[:8]} of the Ray cluster are used: it has {num_cpus} CPUs, and a job takes "
                f"{place.threads} (--threads)",
                stacklevel=2,
            )


def _nodes() -> list[tuple[str, int, int]]:
    """Name, GPUs and CPUs of every node that is alive."""
    alive = [(node["NodeID"], node["Resources"]) for node in ray().nodes() if node["Alive"]]
    return [(name, int(resources.get("GPU", 0)), int(resources.get("CPU", 0))) for name, resources in alive]


def start_slot(node: str, needs: Mapping[str, Any], place: Place) -> Slot:
    """On that node or nowhere. It has not said yet what it is."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    variables = {"PYTHONPATH": os.pathsep.join(sys.path), **{name: os.environ[name] for name in (DATA_VARIABLE,) if name in os.environ}}
    # by value: a node's worker need not find this program where the driver has it
    ray().cloudpickle.register_pickle_by_value(sys.modules[__name__])
    remote = ray().remote(**needs, max_restarts=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node_id=node, soft=False))(_Worker)
    return Slot(remote.remote([*map(str, place), node[:8]], variables), node, needs, {})


def facts_of(reference: Any) -> dict[str, Any] | None:
    answer = _answer(reference)
    return dict(answer["facts"]) if answer else None


def outcomes_of(reference: Any) -> list[Outcome] | None:
    answer = _answer(reference)
    return [from_json(Outcome, outcome) for outcome in answer["outcomes"]] if answer else None


def _answer(reference: Any) -> dict[str, Any] | None:
    """None where the worker or its node is gone. What it said meanwhile is told."""
    try:
        answer: dict[str, Any] = ray().get(reference)
    except ray().exceptions.RayError as error:
        tell(f"Ray: {' '.join(str(error).split())[:200]}")
        return None
    for text in answer["told"]:
        tell(text)
    return answer


def leave_out(slot: Slot, reason: str) -> None:
    """It is named, and what it was given is free for others."""
    what = "a GPU of node" if "num_gpus" in slot.needs else "node"
    warnings.warn(f"{what} {slot.node[:8]} of the Ray cluster is left out: {reason}", stacklevel=2)
    ray().kill(slot.actor)


def _largest_group(slots: list[Slot]) -> list[Slot]:
    """The slots of the most common kind of node; of several the same one every time, so that an interrupted run goes on."""
    kinds = Counter(map(_kind, slots))
    chosen = max(kinds, key=lambda kind: (kinds[kind], kind), default=None)
    return [slot for slot in slots if _kind(slot) == chosen]


def _kind(slot: Slot) -> tuple[str, str]:
    return str(slot.facts["environment_id"]), str(slot.facts[CODE])


def difference(chosen: Slot, other: Slot) -> str:
    """Why their times must not be mixed; "" where they may."""
    pairs = disagreements(chosen.facts, other.facts, trained=True).items()
    return next((f"{key} is {theirs!r} there and {ours!r} on the nodes that are used" for key, (ours, theirs) in pairs), "")
