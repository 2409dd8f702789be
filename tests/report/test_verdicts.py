"""Verdicts as lines and as JSON."""

from __future__ import annotations

import functools
import json
import re

from bench.analysis.claims import judge
from bench.analysis.verdicts import QUICK, Estimate, Verdict
from bench.intervals import Interval, exactly
from bench.report.sections.verdicts import claim_lines, interval_json, interval_text, verdicts_json
from tests.analysis.made_runs import Made, evidence, linear, quadratic
from tests.report.conftest import MakeData

COSTS = {"flops": quadratic, "activation_bytes": linear, "weight_bytes": quadratic}


def faster(n: int) -> float:
    return 0.5 * quadratic(n)


@functools.cache
def judged() -> list[Verdict]:
    return judge(
        evidence(
            Made(model="gmlp", costs=COSTS, latency=faster),
            Made(model="vit", attention="math", costs={**COSTS, "activation_bytes": quadratic}),
            Made(model="vit", attention="flash", costs={**COSTS, "activation_bytes": linear}),
            Made(model="gmlp", costs=COSTS, latency=linear, others={"phase": "train"}),
            seed=1,
        )
    )


def test_every_verdict_has_a_line_that_leads_to_its_cells() -> None:
    verdicts = judged()
    lines = claim_lines(verdicts)
    assert sorted(cell for line in lines for cell in line.cells) == sorted(cell for verdict in verdicts for cell in verdict.cells)
    (line,) = (line for line in lines if line.text == "Attention's time grows faster than n at the longest lengths")
    assert line.answer == "supported"
    assert re.fullmatch(r"local exponent between n = 2049 and 4097: explicit ViT 1\.\d+ \[.*\], flash ViT 1\.\d+ \[.*\]", line.figure)
    lengths = (17, 33, 65, 129, 257, 513, 1025, 2049, 4097)
    assert line.cells == tuple(f"cell-{series}-{n}" for series in (1, 2) for n in lengths)
    assert "Where: inference" in line.more


def test_models_with_one_answer_to_a_claim_share_a_line_by_what_was_measured() -> None:
    claim = judged()[0].claim

    def verdict(model: str, n: int, share: float) -> Verdict:
        estimate = Estimate(name=f"share of n^2 at n = {n}", value=exactly(share), unit="share")
        return Verdict(claim=claim, about=model, answer="supported", reason="", estimates=(estimate,), cells=(model,))

    (line,) = claim_lines([verdict("vit", 257, 0.29), verdict("transformer", 257, 0.3), verdict("deit-s", 1025, 0.305)])
    assert line.figure == "share of n² at n = 257: ViT 29.0 %, Transformer 30.0 %; share of n² at n = 1025: DeiT-S 30.5 %"
    assert line.cells == ("vit", "transformer", "deit-s")


def test_verdicts_without_figures_share_a_line_and_keep_their_reasons() -> None:
    claim = judged()[0].claim
    reasons = ("2 lengths", "2 lengths", "no fit")
    open_ = [
        Verdict(claim=claim, about=f"model{i}", answer="undecided", reason=reason, cells=(f"c{i}",)) for i, reason in enumerate(reasons)
    ]
    (same,) = claim_lines(open_[:2])
    assert (same.text, same.figure) == (claim.statement, "model0 and model1")
    assert (same.more, same.cells) == ("2 lengths", ("c0", "c1"))
    (other,) = claim_lines(open_)
    assert other.more == "model0: 2 lengths. model1: 2 lengths. model2: No fit"


def test_figures_in_words() -> None:
    def text(unit: str, low: float, estimate: float, high: float) -> str:
        return interval_text(Interval(estimate=estimate, low=low, high=high, num=3), unit)

    infinite = float("inf")
    assert text("difference", 0.01, 0.021, 0.032) == "+0.021 [+0.010, +0.032]"
    assert text("difference", 1.0, 1.0, 1.0) == "+1.000 [+1.000, +1.000]"
    assert text("ratio", 1.5, 1.5, 1.5) == "1.50"
    assert "inf" not in text("ratio", 0.0, 1.5, infinite)
    assert text("share", 0.5, 0.976, 0.99) == "97.6 % [50.0 %, 99.0 %]"
    assert interval_json(Interval(estimate=1.5, low=0.0, high=infinite, num=1)) == {"estimate": 1.5, "low": 0.0, "high": None}


def test_json_holds_every_claim_with_its_figures(make_data: MakeData) -> None:
    data = make_data()
    verdicts = judged()
    data.__dict__["verdicts"] = verdicts  # what the study would work out
    found = json.loads(json.dumps(verdicts_json(data), allow_nan=False))
    assert len(found["verdicts"]) == len(verdicts)
    flops = next(v for v in found["verdicts"] if v["claim"]["name"] == "gmlp_flops_quadratic")
    assert flops["answer"] == "supported"
    assert flops["estimates"][0]["name"] == "share of n^2 at n = 4097"
    assert 0.9 < flops["estimates"][0]["estimate"] < 1
    assert set(flops["cells"]) == {"cell-0-4097", "cell-3-4097"}  # both phases


def test_quickness_reaches_the_evidence(make_data: MakeData) -> None:
    for quick in (False, True):
        data = make_data(quick=quick)
        assert (data.evidence.quick, data.caveat) == (quick, QUICK if quick else "")


def test_a_reason_that_begins_with_a_name_keeps_its_spelling() -> None:
    claim = judged()[0].claim
    reasons = [Verdict(claim=claim, about="", answer="undecided", reason=f"{name} is slower", cells=(name,)) for name in ("gMLP", "it")]
    assert [line.more for verdict in reasons for line in claim_lines([verdict])] == ["gMLP is slower", "It is slower"]
