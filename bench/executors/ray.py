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
import subprocess
import sys
import warnings
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Self

from bench.environment import MUST_AGREE
from bench.spec import Job, Outcome, RequestError, from_json, to_json
from bench.tasks import DATA_VARIABLE
from bench.telling import tell

LOOPBACK = "127.0.0.1"
MAX_LOSSES = 3
"""A job whose worker or node is lost so often is given up: it may be the cause."""
START_LIMIT_S = 120.0
LOST = "lost_workers"
"""The value in an outcome that says how many workers or nodes were lost before."""


def inspect_environment(*, threads: int, device: str, allocator: str) -> dict[str, Any]:
    """The facts of the nodes that run the jobs. Raises RequestError where none can."""
    slots = _slots(threads, device, allocator)
    return dict(slots[0].facts)


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
                what = "giving the job up" if losses[job.key] >= MAX_LOSSES else "the job runs again"
                warnings.warn(f"a worker or node of the Ray cluster was lost; {what}", stacklevel=2)
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
    """The actor: passes jobs to a `bench.slot` of its own."""

    def __init__(self, command: list[str], variables: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            command, env={**os.environ, **variables}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )

    def facts(self) -> dict[str, Any]:
        return dict(self._answer("facts"))

    def run(self, job: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(job + "\n")
        self._process.stdin.flush()
        return dict(self._answer("outcome"))

    def _answer(self, wanted: str) -> Any:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            answer = json.loads(line)
            if wanted in answer:
                return answer[wanted]
        raise EOFError(f"bench.slot ended with {self._process.wait()}")


def _ray() -> Any:
    try:
        import ray
    except ModuleNotFoundError as error:
        raise RequestError("--on ray needs the package ray", "pip install 'gmlp-bench[ray]'") from error
    return ray


def _connect() -> Any:
    """Nothing listens but on this machine where the cluster is started here, and no dashboard does."""
    ray = _ray()
    if not ray.is_initialized():
        own = {} if os.environ.get("RAY_ADDRESS") else {"_node_ip_address": LOOPBACK}
        ray.init(include_dashboard=None if not own else False, log_to_driver=False, logging_level="ERROR", **own)
    return ray


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
        node = asked[reference][1][:8]
        warnings.warn(
            f"node {node} of the Ray cluster is left out: nothing heard in {START_LIMIT_S:g} s (are its CPUs taken?)", stacklevel=2
        )
    found = [_Slot(*asked[reference], facts) for reference in asked if reference in answered and (facts := _facts(reference))]
    agreeing = _largest_group(found)
    for slot in found:
        if difference := _difference(agreeing[0], slot):
            warnings.warn(f"node {slot.node[:8]} of the Ray cluster is left out: {difference}", stacklevel=2)
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
    return remote.remote([sys.executable, "-m", "bench.slot", str(threads), device, allocator], variables)


def _facts(reference: Any) -> dict[str, Any] | None:
    found = _got(reference)
    return dict(found) if found is not None else None


def _outcome(reference: Any) -> Outcome | None:
    """None where the worker or its node is gone."""
    found = _got(reference)
    return from_json(Outcome, found) if found is not None else None


def _got(reference: Any) -> Any:
    ray = _ray()
    try:
        return ray.get(reference)
    except ray.exceptions.RayError as error:
        tell(f"Ray: {' '.join(str(error).split())[:200]}")
        return None


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
    if not ray.wait([reference], timeout=START_LIMIT_S)[0]:
        return []
    slot = _Slot(actor, lost.node, _facts(reference) or {})
    return [] if _difference(lost, slot) else [slot]


def _place_of(job: Job) -> tuple[int, str, str]:
    return job.settings.threads, job.cell.workload.device, job.settings.allocator


def _marked(outcome: Outcome, num_lost: int) -> Outcome:
    return dataclasses.replace(outcome, values={**outcome.values, LOST: num_lost}) if num_lost else outcome
