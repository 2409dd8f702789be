"""The tables on growth: what was worked out, or why there is nothing."""

from __future__ import annotations

from bench.analysis.crossings import measured_pairs
from bench.report.sections.growth import (
    exponent_table,
    measured_crossing_table,
    polynomial_table,
    refused_exponents,
)
from tests.analysis.made_runs import Made, evidence, grown, linear, quadratic
from tests.report.conftest import as_dicts


def test_a_polynomial_has_its_terms_and_its_share() -> None:
    (flops,) = as_dicts(polynomial_table(grown(Made(model="gmlp", costs={"flops": quadratic}))))
    assert flops["c (per n^2)"] == "0.1 FLOPs"
    assert flops["share of c n^2"] == f"{100 * 0.1 * 4097**2 / quadratic(4097):.1f} %"


def test_the_scope_is_shown_where_it_varies() -> None:
    alone = exponent_table(grown(Made(model="gmlp")))
    both = exponent_table(grown(Made(model="gmlp"), Made(model="gmlp", others={"phase": "train"})))
    assert "phase" not in alone.headers
    assert {row["phase"] for row in as_dicts(both)} == {"inference", "training"}


def test_exponents_have_a_row_per_step() -> None:
    steps = as_dicts(exponent_table(grown(Made(model="gmlp", latency=linear))))
    assert (steps[0]["from n"], steps[-1]["to n"]) == ("17", "4097")
    assert steps[-1]["exponent"].startswith(("0.9", "1.0"))


def test_the_short_grid_has_a_sentence_and_no_exponent() -> None:
    found = grown(Made(model="gmlp", lengths=(17, 65, 257)))
    assert exponent_table(found).rows == ()
    (reason,) = refused_exponents(found)
    assert "1 series (gmlp, time per sample)" in reason


def test_measured_crossings_are_listed_with_who_is_cheaper() -> None:
    gmlp = Made(model="gmlp", latency=lambda n: 0.01 * n)
    found = evidence(gmlp, Made(model="vit", attention="auto", latency=lambda _: 2.57))
    (row,) = as_dicts(measured_crossing_table(measured_pairs(found.shaped, found.timings)))
    assert row["which is cheaper"] == "gmlp below, vit (auto) above"
    assert row["equal at n"].startswith("between 129 and 513 (interpolated: 25")
