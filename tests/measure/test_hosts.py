"""Hosts are told apart by type of processor and version of the timed code."""

from __future__ import annotations

from typing import Any

import pytest

from bench.measure import hosts
from bench.measure.environment import environment_id
from bench.spec import MUST_AGREE

UNKNOWN: dict[str, Any] = {**dict.fromkeys(MUST_AGREE, "same"), "code_version": "same", "device": "cpu", "cpu_type": None}
KNOWN: dict[str, Any] = {**UNKNOWN, "cpu_type": "AMD EPYC family 26 model 2 stepping 1 (avx2)", "gpu_type": None, "work_version": "w"}
GPU: dict[str, Any] = {**KNOWN, "device": "cuda", "cpu_type": None, "gpu": "Example", "gpu_memory_bytes": 80 * 2**30}
GPU["gpu_type"] = hosts.gpu_type(GPU)


def test_the_type_of_a_host_is_that_of_the_device() -> None:
    assert hosts.host_type(KNOWN) == KNOWN["cpu_type"]
    assert hosts.host_type(GPU) == "Example, 80 GiB"
    slice_ = {**GPU, "gpu": "Example MIG 1g.10gb", "gpu_memory_bytes": int(9.75 * 2**30)}
    assert hosts.host_type(slice_) == "Example MIG 1g.10gb, 10 GiB"
    assert hosts.host_type({**GPU, "gpu_memory_bytes": None}) is None
    assert hosts.host_type(UNKNOWN) is None


TRAINED: dict[str, Any] = {**KNOWN, "training_versions": {"gmlp": "t"}}


def test_trainings_need_the_code_that_they_learn_by_and_not_all_code() -> None:
    assert hosts.disagreements(TRAINED, {**TRAINED, "code_version": "other"}, trained=True) == {}
    other = {**TRAINED, "training_versions": {"gmlp": "other"}}
    assert list(hosts.disagreements(TRAINED, other, trained=True)) == ["training_versions"]
    assert list(hosts.disagreements(TRAINED, {**KNOWN, "code_version": "other"}, trained=True)) == ["code_version"]


def test_trainings_of_unlike_families_mix_if_one_that_they_share_is_unchanged_or_all_code_is_one() -> None:
    more = {**TRAINED, "training_versions": {"gmlp": "t", "vit": "v"}}
    assert not hosts.disagreements(TRAINED, {**more, "code_version": "newer"}, trained=True)
    changed = {**TRAINED, "training_versions": {"gmlp": "u", "vit": "v"}}
    assert list(hosts.disagreements(TRAINED, changed, trained=True)) == ["training_versions"]
    others = {**TRAINED, "training_versions": {"vit": "v"}}
    assert not hosts.disagreements(TRAINED, others, trained=True)
    assert list(hosts.disagreements(TRAINED, {**others, "code_version": "newer"}, trained=True)) == ["code_version"]


def test_trainings_alone_may_move_to_another_machine_with_the_same_torch() -> None:
    elsewhere = {**TRAINED, "cpu_type": "another", "work_version": "other", "code_version": "other", "operating_system": "other"}
    assert hosts.disagreements(TRAINED, elsewhere, trained=True, timed=False) == {}
    assert hosts.disagreements(TRAINED, {**elsewhere, "cpu_type": None}, trained=True, timed=False) == {}
    assert "cpu_type" in hosts.disagreements(TRAINED, elsewhere, trained=True)
    assert "torch_version" in hosts.disagreements(TRAINED, {**elsewhere, "torch_version": "other"}, trained=True, timed=False)
    assert "cpu_type" in hosts.disagreements(KNOWN, {**KNOWN, "cpu_type": "another"}, trained=True, timed=False)


@pytest.mark.parametrize("key", MUST_AGREE)
def test_every_key_keeps_hosts_apart_and_makes_their_identity(key: str) -> None:
    for facts in (KNOWN, GPU):
        assert key in hosts.disagreements(facts, {**facts, key: "other"}, trained=False)
        assert environment_id({**facts, key: "other"}) != environment_id(facts)
        assert environment_id({**facts, "code_version": "other", "boot": "other"}) == environment_id(facts)


def test_times_of_hosts_of_no_known_type_are_told_apart_by_what_they_call_themselves() -> None:
    assert hosts.machine_differences(UNKNOWN, UNKNOWN) == {}
    assert hosts.machine_differences(UNKNOWN, {**UNKNOWN, "cpu_model": "other"}) == {"cpu_model": ("same", "other")}


@pytest.mark.parametrize("noted", [None, "fast", {"copy_bytes_per_s": "fast"}, {"copy_bytes_per_s": 0}])
def test_ceilings_that_were_not_measured_or_are_damaged_are_none(noted: object) -> None:
    assert hosts.ceilings({"ceilings_at_start": noted}, hosts.AT_START) == {}


def test_long_facts_are_named_by_their_place_and_kept_in_it() -> None:
    facts = {
        "packages": {str(number): "1" for number in range(100)},
        "torch_config": "x" * 3000,
        "cpu_caches": {"L2": 1},
        "load": 2.5,
        "gpu": None,
    }
    short = {"packages": "100, in environment.json", "torch_config": "in environment.json"}
    assert hosts.shown(facts, "environment.json") == {**facts, **short}
