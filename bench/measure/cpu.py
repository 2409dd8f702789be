"""Describe the CPU: model, microcode, vector flags, caches and type.

The CPU type is one string; hosts with equal strings count as one type.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

CPUINFO = Path("/proc/cpuinfo")
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
VECTOR_FLAGS = frozenset(
    {
        *("avx2", "avx512f", "avx512_bf16", "avx512_vnni", "amx_tile", "amx_bf16", "amx_int8"),
        *("asimd", "asimddp", "sve", "sve2", "sme", "bf16", "svebf16", "i8mm"),
    }
)
"""Flags that decide which matrix kernels a library picks.

The first line holds x86 flags (`flags` of /proc/cpuinfo), the second ARM flags (`Features`).
"""
CAPS = ("_MAX_CPU_ISA", "_ENABLE_INSTRUCTIONS", "_CPU_CAPABILITY")
"""Ends of the names of environment variables that deny libraries some vector instructions, such as ATEN_CPU_CAPABILITY.

A CPU with such a cap counts as another CPU type.
"""
UNKNOWN = ("", "unknown")
BYTES = {"K": 2**10, "M": 2**20, "G": 2**30}


def cpu_facts() -> dict[str, Any]:
    """Describe the first processor; hidden facts are None."""
    found = facts_in(CPUINFO.read_text(errors="replace") if CPUINFO.exists() else "")
    caps = [f"{name}={value}" for end in CAPS for name, value in sorted(os.environ.items()) if name.endswith(end) and value]
    if found["cpu_type"] and caps:
        found["cpu_type"] += f", {', '.join(caps)}"
    return {**found, "cpu_caches": cache_bytes(CACHES)}


def facts_in(cpuinfo: str) -> dict[str, Any]:
    """Parse the first processor's facts from the text of /proc/cpuinfo.

    On ARM, implementer, part and revision stand for family, model and stepping. The type is None if any part is hidden. Example: `AMD EPYC family 26
    model 2 stepping 1 (avx2, avx512f)`.
    """
    fields: dict[str, str] = {}
    for line in cpuinfo.splitlines():
        field, _, value = (part.strip() for part in line.partition(":"))
        if value.lower() not in UNKNOWN:
            fields.setdefault(field, value)  # the first processor's: after the last one, some ARM kernels append fields that all share
    name = fields.get("model name") or platform.processor() or platform.machine()
    family: int | str | None
    model: int | str | None
    stepping: int | str | None
    family, model, stepping = (_number(fields.get(field)) for field in ("cpu family", "model", "stepping"))
    if "cpu family" not in fields:
        family, model, stepping = fields.get("CPU implementer"), fields.get("CPU part"), _arm_revision(fields)
    flags = fields.get("flags") or fields.get("Features")
    vectors = sorted(VECTOR_FLAGS.intersection(flags.split())) if flags else None
    listed = f" ({', '.join(vectors)})" if vectors else ""
    return {
        "cpu_model": name,
        "cpu_family": family,
        "cpu_model_number": model,
        "cpu_stepping": stepping,
        "cpu_microcode": fields.get("microcode"),
        "cpu_flags": vectors,
        "cpu_type": None
        if None in (family, model, stepping, vectors)
        else f"{name} family {family} model {model} stepping {stepping}{listed}",
    }


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() else None


def _arm_revision(fields: Mapping[str, str]) -> str | None:
    """Write variant 0x3 and revision 1 as Arm does: `r3p1`."""
    try:
        return f"r{int(fields['CPU variant'], 16)}p{int(fields['CPU revision'])}"
    except (KeyError, ValueError):
        return None


def cache_bytes(folder: Path) -> dict[str, int] | None:
    """Return the size in bytes of each data or unified cache.

    `folder` is the kernel's description of one processor's caches. Keys are L1d, L2 and so on. None if the folder is missing or
    unreadable.
    """
    found = {}
    for index in sorted(folder.glob("index*")):
        try:
            level, kind, size = ((index / name).read_text().strip() for name in ("level", "type", "size"))
            if kind != "Instruction":
                found[f"L{level}{'d' if kind == 'Data' else ''}"] = int(size.rstrip("KMG")) * BYTES.get(size[-1:], 1)
        except (OSError, ValueError):
            continue
    return found or None
