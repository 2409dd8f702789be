"""How the sizes of compared models were matched, and whether equal cost made their shapes very unequal. Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence

MATCHED = ("params", "flops")
"""Policies that match cost."""
UNEQUAL_BOUND = 0.5
"""Bound of `are_unequal`, for widths and for shares of parameters."""


def policy_of(width: int) -> str:
    """Return the policy name of a given width, such as `width 288`."""
    return f"width {width}"


def is_one_width(policy: str) -> bool:
    """Return whether a policy name comes from `policy_of`."""
    return policy.startswith("width ")


def are_unequal(widths: Sequence[float], shares: Sequence[float]) -> bool:
    """Return whether the shapes of models are very unequal.

    They are if one model is less than half as wide as another, or most parameters of one depend on the length.
    `shares`: length-dependent share of the parameters, per model.
    """
    return min(widths) < UNEQUAL_BOUND * max(widths) or max(shares, default=0.0) > UNEQUAL_BOUND
