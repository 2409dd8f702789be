"""The tables on growth: what was worked out, or why there is nothing."""

from __future__ import annotations

from bench.analysis.crossover import closed_forms, closed_pairs, measured_pairs
from bench.analysis.growth import Growth, growth_of
from bench.planning.build import build_plan
from bench.report.sections.growth import (
    closed_crossing_table,
    equal_terms_table,
    exponent_table,
    measured_crossing_table,
    polynomial_table,
    refused_exponents,
    twin_table,
)
from bench.report.tables import Table
from bench.spec import Recipe, Settings
from tests.analysis.made_runs import Made, evidence, linear, quadratic
from tests.requested import parse_request


def grown(*made: Made) -> list[Growth]:
    found = evidence(*made)
    return growth_of(found.shaped, found.timings)


def as_dicts(table: Table) -> list[dict[str, str]]:
    return [dict(zip(table.headers, row, strict=True)) for row in table.rows]


def test_a_polynomial_has_its_terms_and_its_share() -> None:
    (flops,) = as_dicts(polynomial_table(grown(Made(model="gmlp", costs={"flops": quadratic}))))
    assert (flops["quantity"], flops["series"], flops["n from"], flops["to"]) == ("FLOPs per sample", "gmlp", "17", "4097")
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


def test_twins_have_their_ratio() -> None:
    (row,) = as_dicts(twin_table(grown(Made(model="gmlp", lengths=(17, 65, 256, 257, 1025)))))
    assert row["n"] == "257"
    assert "[" in row["per token, n over n - 1"]


def test_measured_and_closed_crossings_are_listed_with_who_is_cheaper() -> None:
    gmlp = Made(model="gmlp", latency=lambda n: 0.01 * n)
    found = evidence(gmlp, Made(model="vit", attention="auto", latency=lambda _: 2.57))
    (row,) = as_dicts(measured_crossing_table(measured_pairs(found.shaped, found.timings)))
    assert row["which is cheaper"] == "gmlp below, vit (auto) above"
    assert row["equal at n"].startswith("between 129 and 513 (interpolated: 25")
    plan = build_plan(
        parse_request(models="gmlp-s,deit-s", seq="1025,4097", metrics="params"), settings=Settings(), recipe=Recipe(), device="cpu"
    )
    closed = as_dicts(closed_crossing_table(closed_pairs(plan)))
    blocks = next(row for row in closed if row["quantity"] == "FLOPs" and row["of"] == "blocks")
    assert (blocks["equal at n"], blocks["first / second at n = 1025"], blocks["first / second at n = 4097"]) == ("256", "1.35", "1.90")
    assert [row["quadratic equals linear, blocks"] for row in as_dicts(equal_terms_table(closed_forms(plan)))] == ["768", "2,304"]
