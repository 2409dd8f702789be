"""Words shared by several sections."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from bench.report.charts.style import display_name

POLICIES = {
    "shape": "same width at every n",
    "params": "equal parameters at every n",
    "flops": "equal FLOPs at every n",
    "none": "sizes as given",
}
"""Matching policies (`--match`) in words."""
POLICY_VALUE = re.compile(rf"\bmatch ({'|'.join(POLICIES)})\b")


def spell_out_policy(text: str) -> str:
    """Replace codes such as `match shape` by words."""
    return POLICY_VALUE.sub(lambda found: POLICIES[found[1]], text)


def spell_out_model(label: str) -> str:
    """Write a series as in prose: `fused ViT`, `depthwise convolution`, `DeiT-S at n = 197`."""
    series, _, n = label.partition(" (n = ")
    return display_name(series) + (f" at n = {n.removesuffix(')')}" if n else "")


def join_names(names: Sequence[str], word: str = "and") -> str:
    """Join names as `a, b and c`; "" without any."""
    return f" {word} ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)


def configurations_text(counts: Mapping[str, tuple[int, int]]) -> str:
    """Write `60 of 60 configurations in fp32 and 0 of 6 in bf16`.

    `counts`: by dtype, the configurations meant and all of them.
    """
    texts = [f"{found} of {num}{'' if i else ' configurations'} in {dtype}" for i, (dtype, (found, num)) in enumerate(counts.items())]
    return join_names(texts) or "no configuration"
