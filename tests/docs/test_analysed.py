"""A finding stands in a place with its own sign and interval, and an unclear one is an error."""

from __future__ import annotations

import pytest

from tests.docs.analysed import Fillable, effect, lead, lead_over_variant
from tests.docs.fill import CIFAR_4M, COST, MODES


def test_a_lead_changes_its_sign_with_its_models() -> None:
    ahead, behind = lead(CIFAR_4M, "gmlp", "vit").filled(), lead(CIFAR_4M, "vit", "gmlp").filled()
    value, low, high = (float(part.strip("[],")) for part in ahead.replace("points ", "").split())
    assert behind == f"-{value} points [-{high}, -{low}]"


@pytest.mark.parametrize(
    "place",
    [
        effect(MODES, COST, "encoder", measure="latency_ms"),
        effect(MODES, COST, "no such variant", measure="latency_ms"),
        lead(CIFAR_4M, "gmlp", "no such model"),
        lead_over_variant(MODES, "copy", "encoder", seq_len=1),
    ],
)
def test_a_finding_that_is_not_one_is_an_error(place: Fillable) -> None:
    with pytest.raises(LookupError, match=r"findings on .*, not one"):
        place.filled()
