"""A finding stands in a place with its own sign, its interval and its seeds, and an unclear one is an error."""

from __future__ import annotations

import pytest

from tests.docs.analysed import Fillable, cells, effect, lead, lead_over_variant, pays_from, score, together
from tests.docs.fill import CONTROL, COST, ESCAPE_COST, MODES

GATED, MIXED_BY_NOTHING = "gmlp+pool=mean", "gmlp+gating=identity+pool=mean"
COSTS = "2026-11-26_cpu_architecture_mode_cost"


def test_a_lead_changes_its_sign_with_its_models() -> None:
    ahead, behind = lead(CONTROL, GATED, MIXED_BY_NOTHING).filled(), lead(CONTROL, MIXED_BY_NOTHING, GATED).filled()
    value, low, high = (float(part.strip("[],")) for part in ahead.replace("points ", "").split())
    assert behind == f"-{value} points [-{high}, -{low}]"


def test_runs_that_are_reported_as_one_are_read_as_one() -> None:
    assert together(MODES) == ("2026-11-26_cpu_architecture_mode_accuracy", COSTS)
    assert together(COSTS) == (COSTS,)


def test_seeds_that_solve_a_task_stand_beside_the_mean() -> None:
    assert score(MODES, "copy", "encoder", 32).filled() == "1.000 (3 of 3)"


def test_neighbouring_cells_are_one_row() -> None:
    of_time = [effect(MODES, COST, arm, measure="latency_ms", seq_len=512) for arm in ("encoder", "decoder")]
    assert cells(*of_time).filled() == " | ".join(place.filled() for place in of_time)


def test_a_mixer_pays_between_two_lengths_or_it_is_undecided() -> None:
    assert pays_from(ESCAPE_COST, COST, "gated delta rule").filled() == "between 1024 and 4096"
    assert pays_from(MODES, COST, "recurrent, Bahdanau").filled().startswith("beyond")


@pytest.mark.parametrize(
    "place",
    [
        effect(MODES, COST, "encoder", measure="latency_ms"),
        effect(MODES, COST, "no such variant", measure="latency_ms"),
        lead(CONTROL, GATED, "vit"),
        lead_over_variant(MODES, "copy", "encoder", seq_len=1),
    ],
)
def test_a_finding_that_is_not_one_is_an_error(place: Fillable) -> None:
    with pytest.raises(LookupError, match=r"findings on .*, not one"):
        place.filled()
