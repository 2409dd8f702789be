"""The table of pairs names models of equal cost with very different shapes."""

from __future__ import annotations

import pandas

from bench.report.sections.winners import unequal_shapes

COLUMNS = ["model", "seq_len", "width", "params", "params_seq", "match", "size"]


def said(*rows: tuple[object, ...], match: str = "params") -> str:
    return " ".join(unequal_shapes(pandas.DataFrame([(*row, match, "budget 1.6 M") for row in rows], columns=COLUMNS)))


def test_a_width_under_half_of_the_others_and_weights_of_the_length_are_named() -> None:
    assert said(("gmlp", 513, 16, 1_600_662, 1_579_014), ("vit", 513, 144, 1_607_770, 73_872)) == (
        "Models of equal cost have very different shapes: at n = 513, gmlp has width 16 and vit 144, and 98.6 % of gmlp's parameters depend on n "
        "(for one width: --width 144)."
    )


def test_a_model_whose_parameters_of_the_length_are_not_known_hides_no_others() -> None:
    assert "of gmlp's parameters" in said(("outside", 513, 144, 1000, None), ("gmlp", 513, 144, 1000, 900))


def test_half_as_wide_and_half_of_the_parameters_is_not_said() -> None:
    assert said(("gmlp", 65, 72, 1000, 500), ("vit", 65, 144, 1000, 10)) == ""


def test_one_model_alone_and_sizes_that_are_not_matched_are_not_said() -> None:
    assert said(("gmlp", 513, 16, 1000, 900)) == ""
    assert said(("gmlp", 513, 16, 1000, 900), ("vit", 513, 144, 1000, 10), match="shape") == ""
