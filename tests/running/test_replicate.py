"""`bench replicate`: the name of a host's folder, one per boot of a machine, and runs that `bench pool` takes."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench import cli
from bench.measure import environment
from bench.planning.ablation import ablation_of
from bench.planning.check import SAFE_NAME
from bench.planning.jobs import estimated_seconds
from bench.running.replicate import run_name
from bench.running.store import RECORDS
from bench.spec import Grid, Plan
from tests.planted_runs import ENVIRONMENT, planned, stored

BOOT = "0123456789abcdef"
PLAN = planned(seq="17")
Answer = Callable[..., tuple[int, str, str]]


@pytest.fixture
def answer(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Answer:
    """Runs `bench replicate` on a planted host, in a folder of its own; keyword arguments are its facts."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, **facts: Any) -> tuple[int, str, str]:
        told = {**ENVIRONMENT, "environment_id": "e", "cpu_model": "AMD EPYC", "cpu_type": "zen 4", "boot": BOOT, **facts}
        monkeypatch.setattr(environment, "inspect_environment", lambda **_: told)
        with pytest.raises(SystemExit) as ended:
            cli.main(["replicate", *arguments])
        assert isinstance(ended.value.code, int)
        return ended.value.code, *capsys.readouterr()

    return run


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """The plans that would be measured."""
    found: list[Plan] = []
    monkeypatch.setattr("bench.commands.run.measure", lambda plan, *_: found.append(plan))
    return found


@pytest.mark.parametrize(
    ("host", "boot", "quick", "name"),
    [
        ("zen 4", BOOT, False, "replicate-zen-4-012345"),
        ("zen 4", BOOT, True, "replicate-zen-4-012345-quick"),
        ("zen 4", "", False, "replicate-zen-4"),
        ("AMD EPYC family 26 model 2 stepping 1 (avx2, avx512_bf16)", BOOT, False, "replicate-amd-epyc-26-2-1-avx2-avx512-bf16-012345"),
        ("Intel(R) Xeon(R) family 6 model 167 stepping 1 (amx_bf16)", BOOT, False, "replicate-intel-xeon-6-167-1-amx-bf16-012345"),
        ("NVIDIA H100 80GB HBM3", BOOT, False, "replicate-nvidia-h100-80gb-hbm3-012345"),
        ("x" * 50, BOOT, False, f"replicate-{'x' * 32}-012345"),
        ("--", BOOT, False, "replicate-012345"),
    ],
)
def test_the_name_of_a_host(host: str, boot: str, quick: bool, name: str) -> None:
    assert run_name(host, boot, quick=quick) == name
    assert re.fullmatch(SAFE_NAME, name)


def test_the_headline_is_measured_on_one_thread_under_the_name_of_the_host(answer: Answer, measured: list[Plan]) -> None:
    assert answer()[0] == 0
    (plan,) = measured
    assert plan.name == "replicate-zen-4-012345"
    assert (plan.settings.threads, plan.settings.quick) == (1, False)
    assert [part.name for part in plan.parts] == [grid.name for grid in ablation_of("headline").cpu]
    assert {cell.cell.model.shape.seq_len for cell in plan.cells} == {17, 257, 1025, 4097, 196, 197}


def test_it_is_planned_within_six_minutes_of_a_slow_host(answer: Answer, measured: list[Plan]) -> None:
    answer()
    assert estimated_seconds(measured[0]) < 360


def test_a_finished_replicate_of_this_boot_is_refused(answer: Answer, measured: list[Plan]) -> None:
    folder = stored(Path("results/2026-11-23_cpu_replicate-zen-4-012345"), PLAN, 1, boot=BOOT)
    code, out, err = answer()
    assert (code, out, measured) == (2, "", [])
    assert f"{folder} already holds a replicate of this boot" in err
    assert f"bench pool {folder} RUN..." in err


def test_an_unfinished_replicate_of_this_boot_is_to_be_finished(answer: Answer, measured: list[Plan]) -> None:
    folder = stored(Path("results/2026-11-23_cpu_replicate-zen-4-012345"), PLAN, 1, boot=BOOT)
    (folder / RECORDS).write_bytes(b"")
    code, _, err = answer()
    assert (code, measured) == (2, [])
    assert f"bench run --resume {folder}" in err


@pytest.mark.parametrize(
    "name", ["2026-11-23_cpu_replicate-zen-4-fedcba", "2026-11-23_cpu_replicate-zen-4-012345-quick", "2026-11-23_cpu_other"]
)
def test_other_runs_are_no_duplicates(answer: Answer, measured: list[Plan], name: str) -> None:
    """Another boot of the same type, a quick run, and a run that is no replicate."""
    stored(Path("results") / name, PLAN, 1, boot="fedcba" if "fedcba" in name else BOOT)
    assert answer()[0] == 0
    assert len(measured) == 1


def test_a_quick_one_may_be_repeated(answer: Answer, measured: list[Plan]) -> None:
    stored(Path("results/2026-11-23_cpu_replicate-zen-4-012345"), PLAN, 1, boot=BOOT)
    assert answer("--quick")[0] == 0
    assert measured[0].settings.quick


def test_a_host_without_a_type_is_measured_with_a_warning(answer: Answer, measured: list[Plan]) -> None:
    code, _, err = answer(cpu_type=None)
    assert code == 0
    assert measured[0].name == "replicate-amd-epyc"
    assert "bench pool will reject its run" in err


def test_a_dry_run_measures_nothing(answer: Answer, measured: list[Plan]) -> None:
    code, out, _ = answer("--dry-run")
    assert (code, measured) == (0, [])
    assert "gMLP-S; DeiT-S" in out


def test_a_small_replicate_is_measured_into_its_folder(answer: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole way, with a planted small grid: folder, plan, records and report."""
    whole = ablation_of("headline")
    flags = {"models": "gmlp,vit", "width": "32", "depth": "1", "seq": "17", "batch": "1", "metrics": "params,latency"}
    small = dataclasses.replace(whole, cpu=(Grid(name="small", flags=flags),), predictions=(), rounds=2, sample_s=0.01)
    monkeypatch.setattr("bench.planning.ablation.ablation_of", lambda _: small)
    monkeypatch.setattr("bench.planning.ablation._require_known", lambda *_: None)
    answer()
    (folder,) = Path("results").iterdir()
    assert folder.name.endswith("_cpu_replicate-zen-4-012345")
    assert (Path("reports") / folder.name / "report.md").exists()
    code, _, err = answer()
    assert code == 2
    assert "bench pool" in err
