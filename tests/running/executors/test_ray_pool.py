"""Which slots a pool asks for: as many as nodes have room for, and none where that was in vain. Without a cluster."""

from __future__ import annotations

import dataclasses
import itertools
from collections import deque
from collections.abc import Mapping
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from bench.measure.environment import environment_id
from bench.progress import listening, speaker
from bench.running.executors import SLOTS_VARIABLE, _cluster
from bench.running.executors import ray as executor
from bench.running.executors._cluster import Slot, SlotSettings
from bench.serialize import to_json
from bench.spec import MUST_AGREE, Job, Outcome, RequestError
from tests.made_jobs import small_job

SETTINGS, NEEDS = SlotSettings(1, "cpu"), {"num_cpus": 1}
FACTS = dict.fromkeys((*MUST_AGREE, "code_version"), "same")


class Facts:
    """An actor's method, whose answer is its own reference."""

    def remote(self) -> object:
        return object()


class Actor:
    facts = Facts()


class Asked:
    """The slots that were asked for, and the cluster that says of each what `facts` holds for its node; None where it cannot be started."""

    def __init__(self, facts: Mapping[str, Any]) -> None:
        self.facts = facts
        self.nodes: list[str] = []

    def start_slot(self, node: str, needs: Mapping[str, Any], _: SlotSettings) -> Slot:
        self.nodes.append(node)
        return Slot(Actor(), node, needs, {})

    def answer(self, pool: executor._Pool) -> None:
        for reference, (slot, _) in list(pool._joining.items()):
            self._node = slot.node
            pool._admit(reference)

    def facts_of(self, _: object) -> Any:
        return self.facts.get(self._node)

    def kill(self, _: object) -> None:
        pass


def pool_of(asked: Asked, monkeypatch: pytest.MonkeyPatch, *, differing: frozenset[str] = frozenset()) -> executor._Pool:
    monkeypatch.setattr(executor, "slots_of", lambda _: ((Slot(Actor(), "a", NEEDS, FACTS),), differing))
    monkeypatch.setattr(executor, "start_slot", asked.start_slot)
    monkeypatch.setattr(executor, "facts_of", asked.facts_of)
    monkeypatch.setattr("bench.running.executors._cluster.ray", lambda: asked)
    return executor._Pool(SETTINGS)


@pytest.mark.parametrize(
    ("device", "threads", "slots", "expected"),
    [
        ("cuda", 1, 1, [{"num_gpus": 1, "num_cpus": 1}] * 8),
        ("cuda", 3, 1, [{"num_gpus": 1, "num_cpus": 3}] * 5),
        ("cpu", 3, 1, [{"num_cpus": 16}]),
        ("cpu", 17, 1, []),
        ("cpu", 1, 3, [{"num_cpus": 5}] * 3),
        ("cpu", 6, 3, []),
    ],
)
def test_slots_take_no_more_cpus_than_a_node_has(
    device: str, threads: int, slots: int, expected: list[dict[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = [
        {"NodeID": "a", "Alive": True, "Resources": {"CPU": 16.0, "GPU": 8.0}},
        {"NodeID": "b", "Alive": False, "Resources": {"CPU": 16.0, "GPU": 8.0}},
    ]
    monkeypatch.setattr(_cluster, "ray", lambda: SimpleNamespace(nodes=lambda: nodes))
    assert _cluster.possible_slots(SlotSettings(threads, device, slots)) == [("a", needs) for needs in expected]


def test_slots_beside_gpus_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SLOTS_VARIABLE, "3")
    assert executor.settings_of(2, "cpu") == SlotSettings(2, "cpu", 3)
    with pytest.raises(RequestError, match=r"--slots share .* with --device cuda each GPU is one slot"):
        executor.settings_of(2, "cuda")


@pytest.mark.parametrize(
    ("silent_s", "answers", "reason"),
    [(0.0, False, ""), (100.0, True, ""), (100.0, False, "the head of the Ray cluster is lost")],
)
def test_a_head_is_lost_once_it_is_silent_and_cannot_be_reached(
    silent_s: float, answers: bool, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = pool_of(Asked({}), monkeypatch)
    pool._answered_s -= silent_s
    monkeypatch.setattr(executor, "head_answers", lambda: answers)
    assert pool.why_lost() == reason


def test_a_run_that_has_lost_its_cluster_names_the_command_that_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = pool_of(Asked({}), monkeypatch)
    monkeypatch.setattr(pool, "why_lost", lambda: "no node of the Ray cluster is left")
    monkeypatch.setattr(pool, "start", lambda batch: pool.working.update({object(): (pool.free.popleft(), batch)}))
    monkeypatch.setenv("RAY_ADDRESS", "here:6379")
    monkeypatch.setenv(SLOTS_VARIABLE, "3")
    runner = executor.Executor()
    runner._pool = pool
    job = dataclasses.replace(small_job("latency"), run_folder="/a b/mine")
    with pytest.raises(ConnectionError, match="bench run --resume '/a b/mine' --on ray --slots 3 --address HOST:6379"):
        next(runner.run_many(iter([(job,)])))


def test_what_a_slot_tells_is_of_its_own_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs of several slots run at once, and the messages of each come with its outcomes."""
    pool = pool_of(Asked({}), monkeypatch)
    jobs = [small_job("accuracy", repeat=repeat) for repeat in range(2)]
    pool.working = {str(job.repeat): (Slot(Actor(), "a", NEEDS, FACTS), (job,)) for job in jobs}
    answer = {"progress": ["epoch 1 of 2"], "outcomes": [to_json(Outcome(status="measured"))]}
    cluster = SimpleNamespace(
        wait=lambda references, **_: (list(references), []), get=lambda _: answer, exceptions=SimpleNamespace(RayError=OSError)
    )
    monkeypatch.setattr(executor, "ray", lambda: cluster)
    monkeypatch.setattr(_cluster, "ray", lambda: cluster)
    heard: list[Job | None] = []
    with listening(lambda _: heard.append(speaker())):
        assert [batch for batch, _ in itertools.islice(pool.ended(), 2)] == [(job,) for job in jobs]
    assert heard == jobs


@dataclasses.dataclass(frozen=True, eq=False)
class Reference:
    """Of an answer that a node would give."""

    node: str


@pytest.mark.filterwarnings("ignore:a worker or node", "ignore:no slot could be started")
def test_idle_slots_of_a_lost_node_lose_no_job_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def slot_on(node: str, *_: Any) -> Slot:
        method = SimpleNamespace(remote=lambda *_: Reference(node))
        return Slot(SimpleNamespace(facts=method, run=method), node, NEEDS, FACTS)

    pool = pool_of(Asked({}), monkeypatch)
    pool.free = deque([*map(slot_on, ["lost"] * executor.MAX_LOSSES), slot_on("a")])
    monkeypatch.setattr(executor, "start_slot", slot_on)
    monkeypatch.setattr(executor, "ray", lambda: SimpleNamespace(wait=lambda asked, **_: (asked[:1], asked[1:])))
    monkeypatch.setattr(executor, "facts_of", lambda asked: None if asked.node == "lost" else FACTS)
    monkeypatch.setattr(executor, "outcomes_of", lambda asked: None if asked.node == "lost" else [Outcome(status="measured")])
    runner = executor.Executor()
    runner._pool = pool
    assert runner.run(small_job("latency")) == Outcome(status="measured", values={executor.LOST: 1})


@pytest.mark.parametrize(
    ("error", "cause", "hint"),
    [
        (
            "Failed to connect to Ray cluster at here:6379",
            "ray.exceptions.AuthenticationError: RPC error: InvalidAuthToken",
            "RAY_AUTH_TOKEN",
        ),
        ("Token authentication is enabled but no authentication token was found", "", "RAY_AUTH_TOKEN"),
        ("Version mismatch: The cluster was started with:\n    Ray: 2.59.0", "", "versions of Ray and Python"),
        ("Failed to connect to Ray cluster at here:6379", "TimedOut", "ray start --head"),
    ],
)
def test_the_hint_at_a_cluster_that_cannot_be_joined_is_at_its_cause(error: str, cause: str, hint: str) -> None:
    failed = RuntimeError(error)
    failed.__cause__ = RuntimeError(cause)
    told = _cluster._not_joined("here:6379", failed)
    assert hint in told.hint
    assert ("RAY_AUTH" in told.hint) == (hint == "RAY_AUTH_TOKEN")
    assert "\n" not in told.message


@pytest.mark.parametrize("per_node", [1, 3])
def test_jobs_that_need_a_quiet_machine_run_alone_where_slots_share_it(per_node: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """On three slots of one node, or on three nodes."""
    pool = pool_of(Asked({}), monkeypatch)
    pool._settings = SlotSettings(1, "cpu", per_node)
    pool.free.extend(Slot(Actor(), "a", NEEDS, FACTS) for _ in range(2))
    batches = [(small_job(metric),) for metric in ("accuracy", "latency", "memory", "accuracy", "accuracy", "tuning", "flops")]
    seen: list[list[str]] = []

    def start(batch: Any) -> None:
        pool.working[object()] = (pool.free.popleft(), batch)

    def ended() -> Any:
        seen.append([batch[0].metric for _, batch in pool.working.values()])
        slot, batch = pool.working.pop(next(iter(pool.working)))
        pool.free.append(slot)
        yield batch, [Outcome(status="measured")]

    monkeypatch.setattr(pool, "start", start)
    monkeypatch.setattr(pool, "ended", ended)
    runner = executor.Executor()
    runner._pool = pool
    assert [batch for batch, _ in runner.run_many(iter(batches))] == batches
    alone = [metrics for metrics in seen if {"latency", "memory"} & set(metrics)]
    assert max(map(len, seen)) == 3
    assert {len(metrics) for metrics in alone} == ({1} if per_node > 1 else {3})


def test_how_busy_a_node_is_is_asked_when_all_its_slots_are_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """While they start, they keep one another's node busy."""
    busy = iter([4.0, 3.0, 0.0])
    monkeypatch.setattr(_cluster, "_connect", lambda: None)
    monkeypatch.setattr(_cluster, "ray", lambda: SimpleNamespace(nodes=list, wait=lambda asked, **_: (asked, [])))
    monkeypatch.setattr(_cluster, "possible_slots", lambda _: [("a", NEEDS), ("a", NEEDS)])
    monkeypatch.setattr(_cluster, "start_slot", lambda node, needs, _: Slot(Actor(), node, needs, {}))
    monkeypatch.setattr(_cluster, "facts_of", lambda _: {**FACTS, "environment_id": "same", "gpu": None, "busy_cores": next(busy)})
    found, _ = _cluster.slots_of.__wrapped__(SETTINGS)
    assert [slot.facts["busy_cores"] for slot in found] == [0.0, 3.0]


@pytest.mark.parametrize(("answers", "expected"), [([2], 2), ([1], 1), ([0, 1], 1), ([0, 0], 0)])
@pytest.mark.filterwarnings("ignore:node . of the Ray cluster is left out")
def test_a_run_waits_longer_for_its_first_slot_than_for_the_others(
    monkeypatch: pytest.MonkeyPatch, answers: list[int], expected: int
) -> None:
    """`answers`: slots that answer within each wait."""
    limits: list[float] = []
    killed: list[object] = []

    def wait(asked: list[object], *, num_returns: int, timeout: float) -> tuple[list[object], list[object]]:
        limits.append(timeout)
        assert num_returns == (2 if len(limits) == 1 else 1)
        return asked[: answers[len(limits) - 1]], asked[answers[len(limits) - 1] :]

    monkeypatch.setattr(_cluster, "_connect", lambda: None)
    monkeypatch.setattr(_cluster, "ray", lambda: SimpleNamespace(nodes=list, wait=wait, kill=killed.append))
    monkeypatch.setattr(_cluster, "possible_slots", lambda _: [("a", NEEDS), ("b", NEEDS)])
    monkeypatch.setattr(_cluster, "start_slot", lambda node, needs, _: Slot(Actor(), node, needs, {}))
    monkeypatch.setattr(_cluster, "facts_of", lambda _: {**FACTS, "environment_id": "same", "gpu": None})
    with nullcontext() if expected else pytest.raises(RequestError, match="none of the 2 slots of the Ray cluster answered within 600 s"):
        found, _ = _cluster.slots_of.__wrapped__(SETTINGS)
        assert len(found) == expected
    assert sum(limits) == (_cluster.START_LIMIT_S if len(answers) == 1 else _cluster.FIRST_LIMIT_S)
    assert len(limits) == len(answers)
    assert len(killed) == 2 - expected


def test_a_node_that_came_while_the_run_started_is_asked_once_and_joins(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked({"b": FACTS})
    pool = pool_of(asked, monkeypatch)
    for _ in range(2):
        pool._start_missing([("a", NEEDS), ("b", NEEDS)])
    assert asked.nodes == ["b"]
    with pytest.warns(UserWarning, match="new node b of the Ray cluster joins the run"):
        asked.answer(pool)
    assert [slot.node for slot in pool.free] == ["a", "b"]
    pool._start_missing([("a", NEEDS), ("b", NEEDS)])
    assert asked.nodes == ["b"]


def test_a_node_with_room_for_several_is_asked_for_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked({})
    pool = pool_of(asked, monkeypatch)
    pool._start_missing([("a", NEEDS), ("a", NEEDS), ("a", NEEDS)])
    assert asked.nodes == ["a", "a"]


@pytest.mark.filterwarnings("ignore:no slot could be started")
def test_a_node_on_which_nothing_starts_is_tried_so_often_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked({"b": None})
    pool = pool_of(asked, monkeypatch)
    for _ in range(2 * executor.MAX_LOSSES):
        pool._start_missing([("a", NEEDS), ("b", NEEDS)])
        asked.answer(pool)
    assert asked.nodes == ["b"] * executor.MAX_LOSSES


@pytest.mark.filterwarnings("ignore:node . of the Ray cluster is left out")
def test_a_node_that_differs_is_asked_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked({"b": {**FACTS, "num_cores": 64}})
    pool = pool_of(asked, monkeypatch, differing=frozenset({"c"}))
    for _ in range(2):
        pool._start_missing([("a", NEEDS), ("b", NEEDS), ("c", NEEDS)])
        asked.answer(pool)
    assert asked.nodes == ["b"]
    assert [slot.node for slot in pool.free] == ["a"]


@pytest.mark.filterwarnings("ignore:node . of the Ray cluster is left out")
def test_a_slot_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked({})
    pool = pool_of(asked, monkeypatch)
    pool._start_missing([("b", NEEDS)])
    monkeypatch.setattr(executor, "START_LIMIT_S", -1.0)
    pool._start_missing([])
    assert not pool._joining
    assert pool._failures == {"b": 1}


def test_the_cluster_is_asked_for_room_once_in_a_while_or_at_once_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer to an earlier question does not count where the pool waits for one: its last slot may have gone since."""
    rooms = iter([[("b", NEEDS)], [("c", NEEDS)], [("d", NEEDS)]])
    pool = pool_of(Asked({}), monkeypatch)
    monkeypatch.setattr(executor, "possible_slots", lambda _: next(rooms))
    assert pool._poll_possible_slots() == []
    assert pool._poll_possible_slots(wait_s=10.0) == [("b", NEEDS)]
    monkeypatch.setattr(executor, "POLL_S", -1.0)
    found = pool._poll_possible_slots()
    assert pool._query
    pool._query.join()
    assert found or pool._answers == [[("c", NEEDS)]]
    assert pool._poll_possible_slots(wait_s=10.0) == [("d", NEEDS)]
    assert pool._poll_possible_slots(wait_s=10.0) == []  # the cluster is gone


KNOWN: dict[str, Any] = {**FACTS, "cpu_type": "AMD EPYC family 26", "gpu_type": None, "work_version": "w"}


def slot_of(node: str, facts: Mapping[str, Any]) -> Slot:
    return Slot(Actor(), node, NEEDS, {**facts, "environment_id": environment_id(facts)})


@pytest.mark.parametrize(("key", "other"), [("cpu_type", None), ("work_version", "other"), ("code_version", "other")])
def test_nodes_of_another_type_or_code_are_left_out(key: str, other: str | None) -> None:
    alike, unlike = [slot_of(node, KNOWN) for node in "ac"], slot_of("b", {**KNOWN, key: other})
    assert _cluster._largest_group([alike[0], unlike, alike[1]]) == alike
    assert _cluster.difference(alike[0], alike[1]) == ""
    assert f"{key} is {other!r} there and {KNOWN[key]!r} on the nodes that are used" in _cluster.difference(alike[0], unlike)
