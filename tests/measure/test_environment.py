"""Facts about the machine: none is made up, and what must agree decides the identity."""

from __future__ import annotations

import ast
import io
import os
import shutil
import subprocess
import sys
import tokenize
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench.measure import environment
from bench.measure.hosts import REPORTED, disagreements, host_differences, host_type, machine_differences
from bench.spec import MUST_AGREE, RequestError


def test_facts_are_plain_data_and_name_their_environment() -> None:
    facts = environment.inspect_environment(threads=1, device="cpu")
    assert {*MUST_AGREE, *REPORTED} <= set(facts)
    assert facts["environment_id"] == environment.environment_id(facts)
    assert facts["num_cores"] >= 1
    assert facts["memory_available_bytes"] <= facts["memory_bytes"]


def test_every_installed_package_is_recorded_and_torchs_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    for place, name, version in (("first", "twice", "2"), ("second", "twice", "1"), ("second", "once", "3")):
        (tmp_path / place / f"{name}.dist-info").mkdir(parents=True)
        (tmp_path / place / f"{name}.dist-info" / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (tmp_path / "first" / "torn.dist-info").mkdir()
    for place in ("second", "first"):
        monkeypatch.syspath_prepend(tmp_path / place)
    environment.packages.cache_clear()
    facts = environment.inspect_environment(threads=1, device="cpu")
    environment.packages.cache_clear()
    assert {"twice": "2", "once": "3", "pytest": pytest.__version__}.items() <= facts["packages"].items()
    assert (facts["torch_git_revision"], facts["torch_cuda"]) == (torch.version.git_version, torch.version.cuda)
    assert "GCC" in facts["torch_config"] or "clang" in facts["torch_config"]
    assert "CXX_COMPILER=" not in torch.__config__.show() or "CXX_COMPILER=" in facts["torch_config"]
    assert "=/" not in facts["torch_config"]


def test_other_packages_and_builds_of_torch_are_no_other_environment() -> None:
    facts = environment.inspect_environment(threads=1, device="cpu")
    other = {**facts, "packages": {"another": "1"}, "torch_config": "another", "torch_git_revision": "another", "torch_cuda": "another"}
    assert environment.environment_id(other) == facts["environment_id"]
    assert not disagreements(facts, other, trained=True)
    assert not machine_differences(facts, other)
    assert not host_differences(facts, other)


def test_a_boot_is_told_by_a_hash_and_not_by_its_id(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(environment, "BOOT_ID", tmp_path / "boot_id")
    assert environment.boot() is None
    (tmp_path / "boot_id").write_text("6b0ad3a4-2b1c-4b4e-9e0e-0d5f6f4a7b10\n")
    first = environment.boot()
    assert first is not None
    assert len(first) == 8
    assert first not in "6b0ad3a4-2b1c-4b4e-9e0e-0d5f6f4a7b10"
    (tmp_path / "boot_id").write_text("0d5f6f4a-2b1c-4b4e-9e0e-6b0ad3a47b10\n")
    assert environment.boot() != first


def test_the_version_of_the_timed_code_follows_its_files(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page, timed = checkout / "bench/report/page.py", checkout / "bench/running/worker.py"
    before = environment.work_version()
    for path in (page, timed):
        path.parent.mkdir(parents=True, exist_ok=True)
    page.write_text("1")
    assert environment.work_version() == before
    timed.write_text("1")
    written = environment.work_version()
    timed.write_text('"""A docstring."""\n\n# a comment\n1  # why\n')
    assert environment.work_version() == written
    timed.write_text("2")
    assert len({before, written, environment.work_version()}) == 3
    timed.unlink()
    assert environment.work_version() == before
    monkeypatch.setattr(environment, "_version", lambda _: "another")
    assert environment.work_version() != before


def test_the_timed_code_without_prose_is_the_same_code() -> None:
    folder = Path(environment.__file__).parents[2]
    assert [pattern for pattern in environment.TIMED_CODE if not any(folder.glob(pattern))] == []
    for source in (path.read_text() for pattern in environment.TIMED_CODE for path in folder.glob(pattern)):
        prose = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)]
        num_docstrings = sum(isinstance(node.value, ast.Constant) and isinstance(node.value.value, str) for node in prose)
        before, after = words_of(source), words_of(environment.without_prose(source))
        assert after[tokenize.COMMENT] == []
        assert len(after[tokenize.STRING]) == len(before[tokenize.STRING]) - num_docstrings
        assert all(after[kind] == before[kind] for kind in (tokenize.NAME, tokenize.NUMBER, tokenize.OP))


def words_of(source: str) -> dict[int, list[str]]:
    """The tokens by type."""
    found: dict[int, list[str]] = defaultdict(list)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        found[token.type].append(token.string)
    return found


def fake_nvml(**overrides: Any) -> SimpleNamespace:
    class NVMLError(Exception):
        pass

    found = {
        "NVMLError": NVMLError,
        "NVML_CLOCK_SM": 1,
        "NVML_ERROR_NOT_FOUND": 6,
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetName": lambda _: "Planted GPU",
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetComputeRunningProcesses": lambda _: [SimpleNamespace(pid=os.getpid()), SimpleNamespace(pid=1)],
        "nvmlDeviceGetMemoryInfo": lambda _: SimpleNamespace(total=2**30),
        "nvmlSystemGetDriverVersion": lambda: "555.1",
        "nvmlDeviceGetClockInfo": lambda *_: 1500,
        "nvmlDeviceGetMaxClockInfo": lambda *_: 1980,
        "nvmlDeviceGetCurrentClocksThrottleReasons": lambda _: 4,
        "NVML_CLOCK_MEM": 2,
        "NVML_TEMPERATURE_GPU": 0,
        "nvmlDeviceGetCudaComputeCapability": lambda _: (9, 0),
        "nvmlDeviceGetNumGpuCores": lambda _: 16896,
        "nvmlDeviceGetPowerUsage": lambda _: 71_500,
        "nvmlDeviceGetEnforcedPowerLimit": lambda _: 700_000,
        "nvmlDeviceGetTemperature": lambda *_: 31,
        "nvmlDeviceGetEccMode": lambda _: [1, 1],
        "nvmlDeviceGetPersistenceMode": lambda _: 1,
        "nvmlDeviceGetComputeMode": lambda _: 0,
    }
    return SimpleNamespace(**{**found, **overrides})


def test_a_gpu_is_described_through_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml())
    known = environment.inspect_environment(threads=1, device="cuda")
    assert known["gpu_type"] == host_type(known) == "Planted GPU, 1 GiB"
    described = {"gpu": "Planted GPU", "gpu_count": 2, "gpu_memory_bytes": 2**30, "gpu_driver": "555.1", "gpu_processes": 1}
    described |= {"gpu_clock_mhz": 1500, "gpu_max_clock_mhz": 1980, "gpu_throttle_reasons": 4, "gpu_capability": "9.0", "gpu_cores": 16896}
    described |= {"gpu_temperature_c": 31, "gpu_power_w": 71.5, "gpu_power_limit_w": 700.0}
    described |= {"gpu_ecc": True, "gpu_persistence": True, "gpu_compute_mode": 0}
    facts = environment.gpu_facts()
    assert set(facts) == set(environment.GPU_FACTS)
    assert facts.items() >= described.items()


def test_what_one_gpu_refuses_costs_no_other_fact(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = fake_nvml()
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    everything = environment.gpu_facts()

    def refuse(*_: Any) -> None:
        raise nvml.NVMLError

    for refused in [name for name in vars(nvml) if name.startswith("nvmlDeviceGet") and "Handle" not in name]:
        with monkeypatch.context() as patch:
            patch.setattr(nvml, refused, refuse)
            told = environment.gpu_facts()
        lost = {name for name, value in told.items() if value != everything[name]}
        assert 0 < len(lost) <= 2, refused  # two clocks are one function
        assert {told[name] for name in lost} == {None}


@pytest.mark.parametrize(
    ("visible", "name"),
    [
        (None, "index 0"),
        (" 3 , 1", "index 3"),
        ("MIG-41b35c2e,MIG-7f0e", "uuid MIG-41b35c2e"),
    ],
)
def test_the_first_visible_gpu_is_described(visible: str | None, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = fake_nvml(
        nvmlDeviceGetHandleByIndex=lambda index: f"index {index}",
        nvmlDeviceGetHandleByUUID=lambda uuid: f"uuid {uuid}",
        nvmlDeviceGetName=lambda handle: handle,
    )
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert environment.gpu_facts()["gpu"] == name


@pytest.mark.parametrize("visible", ["", "-1,0", "NoDevFiles"])
def test_a_hidden_gpu_is_not_described(visible: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml())
    monkeypatch.setattr(environment, "_torch_has_cuda", lambda: True)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert environment.resolve_device("cuda") == "cuda"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert set(environment.gpu_facts().values()) == {None}
    assert environment.resolve_device("auto") == "cpu"
    with pytest.raises(RequestError, match="no CUDA GPU"):
        environment.resolve_device("cuda")
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert set(environment.gpu_facts().values()) == {None}
    with pytest.raises(RequestError, match="needs the package nvidia-ml-py"):
        environment.resolve_device("cuda")


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that passes for the one that `bench` lies in; no revision is set outside it."""
    (tmp_path / "bench").mkdir()
    monkeypatch.setattr("bench.__file__", str(tmp_path / "bench" / "__init__.py"))
    monkeypatch.delenv("GMLP_BENCH_REVISION", raising=False)
    return tmp_path


def committed(checkout: Path) -> str:
    """The revision of a first commit in `checkout`."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    git = ("git", "-C", str(checkout), "-c", "user.name=a", "-c", "user.email=a@example.org")
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    return subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()


def test_without_git_the_revision_is_written_beside_the_packages_or_set(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = environment.code_facts()
    assert (facts["git_revision"], facts["git_dirty"], "+" in facts["code_version"]) == (None, None, False)
    (checkout / "REVISION").write_text("0123456789abcdef\n")
    facts = environment.code_facts()
    assert (facts["git_revision"], facts["git_dirty"]) == ("0123456789abcdef", None)
    assert facts["code_version"].endswith("+0123456789")
    (checkout / "bench" / "REVISION").write_text("89abcdef01234567 changed\n")  # as the wheel of a changed clone has it
    facts = environment.code_facts()
    assert (facts["git_revision"], facts["git_dirty"]) == ("89abcdef01234567", True)
    assert facts["code_version"].endswith("+89abcdef01.dirty")
    monkeypatch.setenv("GMLP_BENCH_REVISION", "fedcba9876543210")
    assert environment.code_facts()["git_revision"] == "fedcba9876543210"


def test_a_checkout_of_another_owner_keeps_its_revision(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    revision = committed(checkout)
    (checkout / "REVISION").write_text("0123456789abcdef\n")  # git comes before what was written beside the packages
    facts = environment.code_facts()
    assert (facts["git_revision"], facts["git_dirty"]) == (revision, False)
    with monkeypatch.context() as patch:  # a copy whose history is another's
        patch.setenv("GMLP_BENCH_REVISION", "fedcba9876543210")
        facts = environment.code_facts()
        assert (facts["git_revision"], facts["git_dirty"]) == ("fedcba9876543210", None)
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    refused = subprocess.run(["git", "-C", str(checkout), "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    assert "dubious ownership" in refused.stderr
    version = subprocess.run(["git", "--version"], capture_output=True, text=True, check=True).stdout.split()[2]
    if tuple(map(int, version.split(".")[:2])) < (2, 38):
        pytest.skip("git before 2.38 takes no safe.directory from the command line")
    facts = environment.code_facts()
    assert (facts["git_revision"], facts["git_dirty"]) == (revision, False)


def test_others_work_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("psutil.cpu_percent", lambda _, **__: [100.0, 50.0, 25.0, 0.0])
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3}, raising=False)
    assert environment.busy_cores(seconds=0.0) == 1.75
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 3}, raising=False)
    assert environment.busy_cores(seconds=0.0) == 0.5  # what runs on cores that are not this process's does not compete


def test_a_control_groups_limit_is_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = {"memory.max": "1000", "memory.current": "400"}
    monkeypatch.setattr(environment, "_first_line", lambda path: lines.get(path.name))
    monkeypatch.setattr(environment, "_memory", lambda: SimpleNamespace(available=2000))
    assert environment.available_memory_bytes() == 600
    lines["memory.max"] = "max"
    assert environment.available_memory_bytes() == 2000


@pytest.mark.parametrize(
    ("limit", "cores"), [("max 100000", None), ("150000 100000", 1), ("50000 100000", 1), ("800000 100000", 8), ("", None)]
)
def test_a_quota_of_time_limits_the_cores(limit: str, cores: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "CONTROL_GROUP", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)), raising=False)
    (tmp_path / "cpu.max").write_text(limit)
    assert environment.num_cores() == (cores or 16)
