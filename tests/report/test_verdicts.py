"""Verdicts as a sentence, a table and JSON."""

from __future__ import annotations

import json
from typing import Any

from bench.analysis.claims import Verdict
from bench.analysis.verdicts import judge
from bench.intervals import Interval
from bench.report.sections.verdicts import interval_json, interval_text, sentence, verdict_table, verdicts_json
from tests.analysis.made_runs import Made, evidence, linear, quadratic
from tests.report.conftest import MakeData

COSTS = {"flops": quadratic, "activation_bytes": linear, "weight_bytes": quadratic}


def faster(n: int) -> float:
    return 0.5 * quadratic(n)


def judged(**fields: Any) -> list[Verdict]:
    return judge(
        evidence(
            Made(model="gmlp", costs=COSTS, latency=faster),
            Made(model="vit", attention="math", costs={**COSTS, "activation_bytes": quadratic}),
            Made(model="vit", attention="flash", costs={**COSTS, "activation_bytes": linear}),
            Made(model="gmlp", costs=COSTS, latency=linear, others={"phase": "train"}),
            **{"seed": 1, **fields},
        )
    )


def test_the_sentence_says_what_was_decided_and_no_more() -> None:
    text = sentence(judged())
    assert text.startswith(
        "gMLP does not escape n^2: its FLOPs are quadratic in n like attention's. "
        "The n^2 terms hold 97.6 % of attention's FLOPs at n = 4097 and 97.6 % of gMLP's FLOPs at n = 4097."
    )
    assert (
        "gMLP stores n^2 weights, explicit attention stores n^2 activations and fused attention stores almost no n^2 activations." in text
    )
    assert "The time of vit (math), vit (flash) and gmlp is quadratic in n." in text
    assert "gmlp is faster at n = 17" in text
    assert "accuracy" not in text
    assert text.endswith(".")


def test_a_quick_run_says_that_it_decides_nothing() -> None:
    text = sentence(judged(quick=True, caveat="A quick run."), "A quick run.")
    assert text == "This run decides none of the claims about quadratic cost; the table lists the data that each claim needs."


def test_every_verdict_has_a_row_that_leads_to_its_cells() -> None:
    verdicts = judged()
    table = verdict_table(verdicts)
    assert len(table.rows) == len(verdicts)
    found = [
        (dict(zip(table.headers, row, strict=True)), cells)
        for row, cells in zip(table.rows, table.row_ids, strict=True)
        if "Is attention's time quadratic in n over the measured lengths?" in row
    ]
    assert [(row["answer"], row["about"], row["rows"]) for row, _ in found] == [
        ("supported", "vit (math)", "9 rows"),
        ("supported", "vit (flash)", "9 rows"),
    ]
    lengths = (17, 33, 65, 129, 257, 513, 1025, 2049, 4097)
    assert [cells.split("|") for _, cells in found] == [[f"cell-{series}-{n}" for n in lengths] for series in (1, 2)]
    assert all(row["measured"].startswith("share of n^2 at n = 4097: 9") for row, _ in found)
    assert all(row["where"].startswith("infer") for row, _ in found)
    assert [header for header, badge in zip(table.headers, table.badges, strict=True) if badge] == ["answer"]
    assert "predicted because" not in table.headers


def test_decided_verdicts_come_first_each_answer_in_order() -> None:
    claim = judged()[0].claim
    answers = ("undecided", "supported", "undecided", "refuted", "supported")
    table = verdict_table([Verdict(claim=claim, about=f"model {i}", answer=answer, reason="") for i, answer in enumerate(answers)])
    found = [(row[0], row[table.headers.index("about")]) for row in table.rows]
    assert found == [
        ("refuted", "model 3"),
        ("supported", "model 1"),
        ("supported", "model 4"),
        ("undecided", "model 0"),
        ("undecided", "model 2"),
    ]


def test_the_other_scopes_stand_beside() -> None:
    table = verdict_table([other for verdict in judged() for other in verdict.others])
    rows = [dict(zip(table.headers, row, strict=True)) for row in table.rows]
    found = [(row["answer"], row["about"], row["where"].split(",")[0]) for row in rows if "gMLP's time" in row["claim"]]
    assert found == [("refuted", "gmlp", "train")]


def test_figures_in_words() -> None:
    def text(unit: str, low: float, estimate: float, high: float) -> str:
        return interval_text(Interval(estimate=estimate, low=low, high=high, num=3), unit)

    infinite = float("inf")
    assert text("difference", 0.01, 0.021, 0.032) == "+0.021 [+0.010, +0.032]"
    assert text("difference", -infinite, 0.021, infinite) == "+0.021"
    assert text("difference", 1.0, 1.0, 1.0) == "+1.000 [+1.000, +1.000]"
    assert text("ratio", 1.5, 1.5, 1.5) == "1.50"
    assert text("ratio", 1.38, 1.42, 1.46).startswith("1.42")
    assert "inf" not in text("ratio", 0.0, 1.5, infinite)
    assert text("share", 0.5, 0.976, 0.99) == "97.6 % [50.0 %, 99.0 %]"
    assert text("exponent", 1.9, 1.95, 2.0) == "1.95 [1.90, 2.00]"
    assert text("length", 65, 1100.4, 1200) == "1,100 [65, 1,200]"
    assert text("error", 2e-6, 2e-6, 2e-6) == "2.0e-06"
    assert interval_json(Interval(estimate=1.5, low=0.0, high=infinite, num=1)) == {"estimate": 1.5, "low": 0.0, "high": None}


def test_json_holds_every_claim_with_its_figures(make_data: MakeData) -> None:
    data = make_data()
    verdicts = judged()
    data.__dict__["verdicts"] = verdicts  # what the study would work out
    found = json.loads(json.dumps(verdicts_json(data), allow_nan=False))
    assert found["run"] == data.name
    assert len(found["verdicts"]) == len(verdicts)
    flops = next(v for v in found["verdicts"] if v["claim"]["name"] == "gmlp_flops_quadratic")
    assert flops["answer"] == "supported"
    assert flops["estimates"][0]["name"] == "share of n^2 at n = 4097"
    assert 0.9 < flops["estimates"][0]["estimate"] < 1
    assert len(flops["cells"]) == 9
    assert flops["claim"]["refuted_by"]


def test_noise_and_quickness_reach_the_evidence(make_data: MakeData) -> None:
    noisy = {"cell": "x", "ratio": 1.2, "low": 1.1, "high": 1.3, "contains_one": False, "level": 0.99}
    for data, quick, caveat in (
        (make_data(), False, ""),
        (make_data(quick=True), True, "A quick run decides nothing"),
        (make_data(control=noisy), False, "The A/A control excludes 1"),
    ):
        found = data.evidence
        assert found.quick is quick
        assert found.caveat.startswith(caveat)
        assert bool(found.caveat) is bool(caveat)
