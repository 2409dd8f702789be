"""A CPU's type is read from /proc/cpuinfo as AMD, Intel, ARM and virtual machines write it; where a part is hidden, the type is unknown."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bench.measure import cpu

AMD = """\
processor\t: 0
vendor_id\t: AuthenticAMD
cpu family\t: 26
model\t\t: 2
model name\t: AMD EPYC
stepping\t: 1
microcode\t: 0x1000065
flags\t\t: fpu vme sse2 avx avx2 avx512f avx512dq avx512_bf16 avx512_vnni

processor\t: 1
vendor_id\t: AuthenticAMD
cpu family\t: 99
flags\t\t: fpu
"""
AMD_BEFORE = """\
processor\t: 0
vendor_id\t: AuthenticAMD
cpu family\t: 25
model\t\t: 1
model name\t: AMD EPYC
stepping\t: 1
microcode\t: 0xa0011d5
flags\t\t: fpu vme sse2 avx avx2
"""
ARM = """\
processor\t: 0
BogoMIPS\t: 243.75
Features\t: fp asimd evtstrm aes sve asimddp bf16 i8mm
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x1
CPU part\t: 0xd40
CPU revision\t: 1
"""


def test_amd_is_named_by_family_model_stepping_and_vector_flags() -> None:
    found = cpu.facts_in(AMD)
    assert found == {
        "cpu_model": "AMD EPYC",
        "cpu_family": 26,
        "cpu_model_number": 2,
        "cpu_stepping": 1,
        "cpu_microcode": "0x1000065",
        "cpu_flags": ["avx2", "avx512_bf16", "avx512_vnni", "avx512f"],
        "cpu_type": "AMD EPYC family 26 model 2 stepping 1 (avx2, avx512_bf16, avx512_vnni, avx512f)",
    }


def test_hosts_that_call_themselves_the_same_are_told_apart() -> None:
    one, other = cpu.facts_in(AMD), cpu.facts_in(AMD_BEFORE)
    assert one["cpu_model"] == other["cpu_model"]
    assert other["cpu_type"] == "AMD EPYC family 25 model 1 stepping 1 (avx2)"
    masked = cpu.facts_in(AMD.replace("avx512f", ""))
    assert masked["cpu_type"] not in (one["cpu_type"], other["cpu_type"])
    updated = cpu.facts_in(AMD.replace("0x1000065", "0x1000099"))  # microcode is no part of the type
    assert (updated["cpu_type"], updated["cpu_microcode"]) == (one["cpu_type"], "0x1000099")


def test_arm_is_named_by_implementer_part_and_revision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.processor", lambda: "")
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    found = cpu.facts_in(ARM)
    assert found["cpu_type"] == "aarch64 family 0x41 model 0xd40 stepping r1p1 (asimd, asimddp, bf16, i8mm, sve)"
    assert found["cpu_microcode"] is None


@pytest.mark.parametrize("hidden", ["cpu family", "model\t", "stepping", "flags", "CPU variant", "CPU revision"])
def test_a_virtual_machine_that_hides_a_part_or_says_unknown_has_no_type(hidden: str) -> None:
    lines = (ARM if hidden.startswith("CPU") else AMD_BEFORE).splitlines()
    for said in ((), (f"{hidden}: unknown",)):
        assert cpu.facts_in("\n".join([*(line for line in lines if not line.startswith(hidden)), *said]))["cpu_type"] is None
    assert cpu.facts_in("\n".join(lines))["cpu_type"] is not None


def test_a_cap_on_vector_instructions_makes_another_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cpuinfo").write_text(AMD)
    monkeypatch.setattr(cpu, "CPUINFO", tmp_path / "cpuinfo")
    for name in list(os.environ):
        if name.endswith(cpu.CAPS):
            monkeypatch.delenv(name)
    whole = cpu.cpu_facts()["cpu_type"]
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "avx2")
    assert cpu.cpu_facts()["cpu_type"] == f"{whole}, ATEN_CPU_CAPABILITY=avx2"


def test_caches_are_in_bytes_without_that_of_instructions(tmp_path: Path) -> None:
    described = [("1", "Data", "48K"), ("1", "Instruction", "32K"), ("2", "Unified", "1024K"), ("3", "Unified", "32M")]
    for number, facts in enumerate(described):
        (folder := tmp_path / f"index{number}").mkdir()
        for name, value in zip(("level", "type", "size"), facts, strict=True):
            (folder / name).write_text(f"{value}\n")
    assert cpu.cache_bytes(tmp_path) == {"L1d": 48 * 2**10, "L2": 2**20, "L3": 32 * 2**20}
    (tmp_path / "index3" / "size").unlink()
    assert cpu.cache_bytes(tmp_path) == {"L1d": 48 * 2**10, "L2": 2**20}
    assert cpu.cache_bytes(tmp_path / "none") is None


def test_without_cpuinfo_there_is_no_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "CPUINFO", tmp_path / "none")
    assert (bool(cpu.cpu_facts()["cpu_model"]), cpu.cpu_facts()["cpu_type"]) == (True, None)
