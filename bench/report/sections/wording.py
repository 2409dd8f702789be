"""Words shared by several sections."""

from __future__ import annotations

import re
from collections.abc import Sequence

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


def join_names(names: Sequence[str]) -> str:
    """Join names as `a, b and c`; "" without any."""
    return " and ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)
