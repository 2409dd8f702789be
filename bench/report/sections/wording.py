"""Words shared by the sentences and tables of several sections."""

from __future__ import annotations

import re
from collections.abc import Sequence

POLICIES = {
    "shape": "same width at every n",
    "params": "equal parameters at every n",
    "flops": "equal FLOPs at every n",
    "none": "sizes as given",
}
"""Policies of matching (`--match`) as a reader sees them."""
POLICY_VALUE = re.compile(rf"\bmatch ({'|'.join(POLICIES)})\b")


def spell_out_policy(text: str) -> str:
    """Replace `match shape` and its like by plain words."""
    return POLICY_VALUE.sub(lambda found: POLICIES[found[1]], text)


def join_names(names: Sequence[str]) -> str:
    """Join names as `a, b and c`."""
    return " and ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)
