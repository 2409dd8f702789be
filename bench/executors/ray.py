"""Runs jobs on a Ray cluster, one at a time on each node's CPUs or on each GPU; the cluster at RAY_ADDRESS, or one of this machine alone.

Every slot runs `bench.slot` in a process of its own, so that a job is measured as `--on process` measures it. Nodes whose machine, software or code
differs from that of most slots are left out and named: their times must not be mixed.
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
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Self

from bench.environment import MUST_AGREE, code_facts
from bench.faults import one_line
from bench.plain_data import from_json, to_json
from bench.spec import Job, Outcome, RequestError
from bench.tasks import DATA_VARIABLE
from bench.telling import tell

OWN = "local"
OWN_CLUSTER = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0"}
"""Ray binds to all interfaces but where it is told, before it is imported, that this machine makes no clusters; then to the loopback one alone."""
CONNECT_LIMIT_S = 10.0
MAX_LOSSES = 3
"""A job whose worker or node is lost so often is given up: it may be the cause."""
START_LIMIT_S = 120.0
START_ONE = "start one with: ray start --head --node-ip-address=HOST, and name it with --address HOST:6379"
LOST = "lost_workers"
"""The value in an outcome that says how many workers or nodes were lost before."""


def inspect_environment(*, threads: int, device: str, allocator: str) -> dict[str, Any]:
    """The facts of the nodes that run the jobs. Raises RequestError where none can, or they run other code than this process."""
    there, here = dict(_slots(threads, device, allocator)[0].facts), code_facts()["code_version"]
    if there["code_version"] != here:
        raise RequestError(f"the nodes run version {there['code_version']!r}, and this is {here!r}", "install the same on all nodes")
    return there


class Executor:
    """A context manager. A cluster that was started for it ends with it; of one that was there already, only its own slots do."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        _slots.cache_clear()
        with contextlib.suppress(Exception):  # a cluster that is gone cannot be left
            _ray().shutdown()

    def run(self, job: Job) -> Outcome:
        return next(outcome for _, outcome in self.run_many(iter([job])))

    def run_many(self, jobs: Iterator[Job]) -> Iterator[tuple[Job, Outcome]]:
        """Each job on a free slot. A job whose worker or node was lost is run again on another. Raises RequestError where no slot is left."""
        ray = _ray()
        free: deque[_Slot] = deque()
        known = False
        again: deque[Job] = deque()
        running: dict[Any, tuple[_Slot, Job]] = {}
        losses: Counter[Any] = Counter()
        while True:
            while (free or not known) and (job := again.popleft() if again else next(jobs, None)):
                if not known:
                    free, known = deque(_slots(*_place_of(job))), True
                slot = free.popleft()
                running[slot.actor.run.remote(json.dumps(to_json(job)))] = (slot, job)
            if not running:
                if again:
                    raise RequestError("no node of the Ray cluster is left", "start one, and go on with: bench run --resume RUN --on ray")
                return
            (done, *_), _ = ray.wait(list(running), num_returns=1)
            slot, job = running.pop(done)
            outcome = _outcome(done)
            if outcome is None:
                losses[job.key] += 1
                what = "giving it up" if losses[job.key] >= MAX_LOSSES else "it runs again"
                told = f"{job.metric} {job.repeat + 1} of {job.cell.model.name} n={job.cell.model.shape.seq_len}"
                warnings.warn(f"a worker or node of the Ray cluster was lost during {told}; {what}", stacklevel=2)
                free += _replacements(slot, job)
                if losses[job.key] < MAX_LOSSES:
                    again.append(job)
                    continue
                outcome = Outcome(status="killed", reason=f"its worker or node was lost {MAX_LOSSES} times")
            else:
                free.append(slot)
            yield job, _marked(outcome, losses[job.key])


@dataclasses.dataclass(frozen=True, eq=False)
class _Slot:
    """An actor, where it is and what it says of itself."""

    actor: Any
    node: str
    facts: Mapping[str, Any]


class _Worker:
    """The actor: passes jobs to a `bench.slot` of its own, under its node's Python."""

    def __init__(self, arguments: list[str], variables: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "bench.slot", *arguments],
            env={**os.environ, **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )

    def facts(self) -> dict[str, Any]:
        return self._answer("facts")

    def run(self, job: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(job + "\n")
        self._process.stdin.flush()
        return self._answer("outcome")

    def _answer(self, wanted: str) -> dict[str, Any]:
        """The answer, and as `told` what was said before it."""
        assert self._process.stdout is not None
        told: list[str] = []
        for line in self._process.stdout:
            answer = json.loads(line)
            if wanted in answer:
                return {wanted: answer[wanted], "told": told}
            told.append(answer["told"])
        raise EOFError(f"bench.slot ended with {self._process.wait()}")


def _ray() -> Any:
    if os.environ.get("RAY_ADDRESS", OWN) in ("", OWN):
        os.environ.update(OWN_CLUSTER)
    try:
        import ray
    except ModuleNotFoundError as error:
        raise RequestError("--on ray needs the package ray", "pip install 'gmlp-bench[ray]'") from error
    return ray


def _connect() -> Any:
    """To the cluster at RAY_ADDRESS; without it to one of this machine alone, which nothing else can reach."""
    ray = _ray()
    if ray.is_initialized():
        return ray
    address = os.environ.get("RAY_ADDRESS") or OWN
    own: dict[str, Any] = {"include_dashboard": False} if address == OWN else {}
    _require_reachable(address)
    try:
        with _own_termination():
            ray.init(address=address, log_to_driver=False, logging_level="ERROR", **own)
    except Exception as error:  # Ray has many of its own
        raise RequestError(f"no Ray cluster can be joined at {address}: {one_line(error)}", START_ONE) from error
    return ray


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


@contextlib.contextmanager
def _own_termination() -> Iterator[None]:
    """Ray puts its own handler of SIGTERM in the place of the run's."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


@functools.lru_cache(maxsize=1)
def _slots(threads: int, device: str, allocator: str) -> tuple[_Slot, ...]:
    """All of the most common kind of node. Raises RequestError where there is none."""
    ray = _connect()
    kind = "GPU" if device == "cuda" else "CPU"
    places = [
        (node["NodeID"], {"num_gpus": 1} if kind == "GPU" else {"num_cpus": node["Resources"]["CPU"]})
        for node in ray.nodes()
        if node["Alive"]
        for _ in range(int(node["Resources"].get(kind, 0)) if kind == "GPU" else int(node["Resources"].get(kind, 0) >= threads))
    ]
    actors = [(_started(node, needs, threads, device, allocator), node) for node, needs in places]
    asked = {actor.facts.remote(): (actor, node) for actor, node in actors}
    answered, late = ray.wait(list(asked), num_returns=len(asked), timeout=START_LIMIT_S) if asked else ([], [])
    for reference in late:
        _leave_out(*asked[reference], f"nothing heard in {START_LIMIT_S:g} s (are its CPUs taken?)")
    found = [_Slot(*asked[reference], facts) for reference in asked if reference in answered and (facts := _facts(reference))]
    agreeing = _largest_group(found)
    for slot in found:
        if difference := _difference(agreeing[0], slot):
            _leave_out(slot.actor, slot.node, difference)
    if not agreeing:
        raise RequestError(
            f"no node of the Ray cluster has {f'{threads} CPUs' if kind == 'CPU' else 'a GPU'} to run jobs on",
            "add one, or fewer --threads",
        )
    return tuple(agreeing)


def _started(node: str, needs: Mapping[str, Any], threads: int, device: str, allocator: str) -> Any:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    variables = {"PYTHONPATH": os.pathsep.join(sys.path), **{name: os.environ[name] for name in (DATA_VARIABLE,) if name in os.environ}}
    # by value: a node's worker need not find this program where the driver has it
    _ray().cloudpickle.register_pickle_by_value(sys.modules[__name__])
    remote = _ray().remote(**needs, max_restarts=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node_id=node, soft=False))(_Worker)
    return remote.remote([str(threads), device, allocator], variables)


def _facts(reference: Any) -> dict[str, Any] | None:
    answer = _answer(reference)
    return dict(answer["facts"]) if answer else None


def _outcome(reference: Any) -> Outcome | None:
    answer = _answer(reference)
    return from_json(Outcome, answer["outcome"]) if answer else None


def _answer(reference: Any) -> dict[str, Any] | None:
    """None where the worker or its node is gone. What it said meanwhile is told."""
    ray = _ray()
    try:
        answer: dict[str, Any] = ray.get(reference)
    except ray.exceptions.RayError as error:
        tell(f"Ray: {' '.join(str(error).split())[:200]}")
        return None
    for text in answer["told"]:
        tell(text)
    return answer


def _leave_out(actor: Any, node: str, reason: str) -> None:
    """It is named, and what it was given is free for others."""
    warnings.warn(f"node {node[:8]} of the Ray cluster is left out: {reason}", stacklevel=2)
    _ray().kill(actor)


def _largest_group(slots: list[_Slot]) -> list[_Slot]:
    """The slots of the most common kind of node; of several the same one every time, so that an interrupted run goes on."""
    kinds = Counter(str(slot.facts["environment_id"]) for slot in slots)
    chosen = max(kinds, key=lambda kind: (kinds[kind], kind), default="")
    return [slot for slot in slots if slot.facts["environment_id"] == chosen]


def _difference(chosen: _Slot, other: _Slot) -> str:
    pairs = ((key, chosen.facts.get(key), other.facts.get(key)) for key in MUST_AGREE)
    return next((f"{key} is {theirs!r} there and {ours!r} on the nodes that are used" for key, ours, theirs in pairs if ours != theirs), "")


def _replacements(lost: _Slot, job: Job) -> list[_Slot]:
    """Another slot on the same node, where it is still there."""
    ray = _ray()
    with contextlib.suppress(Exception):
        ray.kill(lost.actor)
    threads, device, allocator = _place_of(job)
    alive = {node["NodeID"]: node for node in ray.nodes() if node["Alive"]}
    if lost.node not in alive:
        return []
    needs = {"num_gpus": 1} if device == "cuda" else {"num_cpus": alive[lost.node]["Resources"].get("CPU", 0)}
    actor = _started(lost.node, needs, threads, device, allocator)
    reference = actor.facts.remote()
    answered, _ = ray.wait([reference], timeout=START_LIMIT_S)
    slot = _Slot(actor, lost.node, (_facts(reference) if answered else None) or {})
    if _difference(lost, slot):
        ray.kill(actor)
        return []
    return [slot]


def _place_of(job: Job) -> tuple[int, str, str]:
    return job.settings.threads, job.cell.workload.device, job.settings.allocator


def _marked(outcome: Outcome, num_lost: int) -> Outcome:
    return dataclasses.replace(outcome, values={**outcome.values, LOST: num_lost}) if num_lost else outcome
