"""Verdicts as a sentence, a table and JSON."""

from __future__ import annotations

import json
from typing import Any

from bench.analysis.verdicts import Verdict, judge
from bench.report.sections.verdicts import other_scopes_table, sentence, verdict_table, verdicts_json
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
        "gMLP does not escape n^2, both are quadratic: n^2 holds 97.6 % (at n = 4097) of attention's FLOPs and 97.6 % (at n = 4097) of gMLP's FLOPs"
    )
    assert "gMLP keeps its n^2 in weights, explicit attention in activations, fused attention stores next to none" in text
    assert "the time of vit (math) and vit (flash) and gmlp is quadratic as well" in text
    assert "gmlp is faster at n = 17" in text
    assert "accuracy" not in text
    assert text.endswith(".")


def test_a_quick_run_says_that_it_decides_nothing() -> None:
    text = sentence(judged(quick=True, doubt="A quick run."), "A quick run.")
    assert text == "This run decides none of the claims about quadratic cost; the table says what each of them needs."


def test_subjects_with_equal_answers_share_a_row_that_leads_to_their_cells() -> None:
    verdicts = judged()
    table = verdict_table(verdicts)
    rows = {row[0]: dict(zip(table.headers, row, strict=True)) for row in table.rows}
    shared = rows["Is attention's time quadratic in n, as far as this grid reaches?"]
    assert shared["answer"] == "supported"
    assert [about.partition(":")[0] for about in shared["about"].split("; ")] == ["vit (math)", "vit (flash)"]
    assert shared["rows"] == "18 rows"
    place = [row[0] for row in table.rows].index("Is attention's time quadratic in n, as far as this grid reaches?")
    assert table.row_ids[place].split("|") == [
        f"cell-{series}-{n}" for series in (1, 2) for n in (17, 33, 65, 129, 257, 513, 1025, 2049, 4097)
    ]
    assert [header for header, badge in zip(table.headers, table.badges, strict=True) if badge] == ["answer"]


def test_the_other_scopes_stand_beside() -> None:
    table = other_scopes_table(judged())
    assert [(row[1], row[2], row[4].split(",")[0]) for row in table.rows if "gMLP's time" in row[0]] == [("refuted", "gmlp", "train")]


def test_json_holds_every_claim_with_its_figures(make_data: MakeData) -> None:
    data = make_data()
    verdicts = judged()
    data.__dict__["verdicts"] = verdicts  # what the study would work out
    found = json.loads(json.dumps(verdicts_json(data), allow_nan=False))
    assert found["run"] == data.name
    assert len(found["verdicts"]) == len(verdicts)
    flops = next(v for v in found["verdicts"] if v["claim"]["name"] == "gmlp_flops_quadratic")
    assert flops["answer"] == "supported"
    assert flops["effect"]["name"] == "share of n^2 at n = 4097"
    assert 0.9 < flops["effect"]["estimate"] < 1
    assert len(flops["cells"]) == 9
    assert flops["claim"]["refuted_by"]


def test_noise_and_quickness_reach_the_evidence(make_data: MakeData) -> None:
    noisy = {"cell": "x", "ratio": 1.2, "low": 1.1, "high": 1.3, "contains_one": False, "level": 0.99}
    for data, quick, doubt in (
        (make_data(), False, ""),
        (make_data(quick=True), True, "A quick run decides nothing"),
        (make_data(control=noisy), False, "The A/A control leaves out 1"),
    ):
        found = data.evidence
        assert found.quick is quick
        assert found.doubt.startswith(doubt)
        assert bool(found.doubt) is bool(doubt)
