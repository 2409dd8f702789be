"""The question, the answer in at most three sentences, and the strip of winners."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pandas
import pytest

from bench import numbers
from bench.analysis.crossings import gating_pairs
from bench.analysis.ratios import RankedModel, Ranking
from bench.analysis.study import Study
from bench.intervals import Interval
from bench.questions import Question
from bench.reading.timings import Timings
from bench.report.document import Strip
from bench.report.sections import winners
from bench.report.sections.answer import answer_sentences, question_of
from bench.report.sections.wording import spell_out_model
from bench.spec import Part
from tests.report.conftest import MakeData

FACTORS = {"metaformer+mixer=mean_pooling": 0.8, "metaformer+mixer=linear_attention": 0.8, "gmlp": 1.0, "vit": 1.2, "transformer": 1.5}


def time_apart(rows: pandas.DataFrame) -> None:
    """Each model takes its factor times as long as gMLP; intervals do not overlap."""
    rows["latency_ms"] = [FACTORS[model] * n for model, n in zip(rows["model"], rows["seq_len"], strict=True)]
    rows["latency_low_ms"], rows["latency_high_ms"] = 0.99 * rows["latency_ms"], 1.01 * rows["latency_ms"]
    rows["family"] = [model.partition("+")[0] for model in rows["model"]]


def strip_of(found: Study) -> Strip:
    (block,) = winners.strip_blocks(found)
    assert isinstance(block, Strip)
    return block


def texts(strip: Strip) -> dict[str, list[str]]:
    return {name: [field.text for field in fields] for name, fields in strip.rows}


def test_a_run_without_a_question_has_one_made_from_its_request(make_data: MakeData) -> None:
    """Those of stored runs are in results/README.md."""
    memory = {"models": ("gmlp", "vit"), "metrics": ("params", "memory")}
    assert question_of(make_data(**memory).plan) == "How does the memory of gMLP and ViT grow with n?"
    assert question_of(make_data(models=("gmlp",), lengths=(17,)).plan) == "What is the cost of gMLP?"
    trained = make_data(models=("gmlp",), lengths=(17,), metrics=("params", "flops", "accuracy"))
    assert question_of(trained.plan) == "How accurate is gMLP?"
    assert question_of(make_data(models=()).plan) == "test"


def test_a_model_trained_alone_has_its_accuracy_said(make_data: MakeData) -> None:
    data = make_data(models=("vit",), lengths=(17,), works=({"task": "digits"},), metrics=("params", "accuracy"))
    (row,) = data.rows.to_dict("records")
    (sentence,) = answer_sentences(data)
    assert sentence.startswith(f"Accuracy on test data: {row['accuracy']:.3f} [")
    assert sentence.endswith("for ViT on digits at n = 17.")


def test_models_of_values_have_their_r2_said(make_data: MakeData) -> None:
    def scored(rows: pandas.DataFrame) -> None:
        rows[["score", "score_low", "score_high"]] = (0.5, 0.4, 0.6)
        rows["accuracy"] = None

    data = make_data(models=("vit",), lengths=(64,), works=({"task": "curve_fitting"},), metrics=("params", "accuracy"), change=scored)
    assert answer_sentences(data) == ("R² on test data: 0.500 [0.400, 0.600] for ViT on curve_fitting at n = 64.",)


def test_the_answer_says_how_flops_grow_and_where_the_n_squared_is(make_data: MakeData) -> None:
    """In a quick run too: closed forms are exact."""
    data = make_data(models=("gmlp", "vit"), metrics=("params", "flops", "latency"), quick=True)
    data.frame["attention_effective"] = ["flash" if model == "vit" else "none" for model in data.frame["model"]]
    flops = data.rows.pivot_table(index="seq_len", columns="model", values="flops").loc[[17, 257]]
    shares = data.rows[data.rows["seq_len"] == 257].set_index("model")["flops_quadratic_share"]
    grown = {model: numbers.significant(flops[model].iloc[1] / flops[model].iloc[0]) for model in ("gmlp", "vit")}
    _, grew, share = answer_sentences(data)
    assert grew == f"From n = 17 to 257 (15×), FLOPs per sample grow {grown['gmlp']}× in gMLP and {grown['vit']}× in ViT."
    assert share == (
        f"At n = 257 n² is {numbers.percent(shares['gmlp'])} of gMLP's FLOPs (n² weights) and {numbers.percent(shares['vit'])} of ViT's "
        "(n² scores per sample, which fused attention never stores)."
    )
    data.frame["attention_effective"] = ["math" if model == "vit" else "none" for model in data.frame["model"]]
    del data.__dict__["flops_growth"], data.__dict__["growth_rows"]
    assert answer_sentences(data)[2].endswith("of ViT's (n² scores per sample).")


def test_a_run_that_decides_nothing_says_so_first(make_data: MakeData) -> None:
    assert answer_sentences(make_data(quick=True))[0].startswith("A first look: at equal")


def test_a_field_leads_to_its_cells_and_tells_the_interval_on_request(make_data: MakeData) -> None:
    found = make_data(models=("gmlp", "vit"), lengths=(17,), metrics=("params", "latency"), change=time_apart)
    ((_, (field,)),) = strip_of(found).rows
    assert set(field.cells) == set(found.rows["cell_id"])
    assert field.detail.startswith("n = 17: ViT takes 1.")
    assert not field.muted


def test_budgets_are_the_columns_where_there_is_one_length(make_data: MakeData) -> None:
    found = make_data(models=("gmlp", "vit"), lengths=(17,), budgets=(250_000, 1_000_000), metrics=("params", "latency"))
    assert strip_of(found).headers == ("budget", "250 k", "1 M")
    assert "at a budget of 250 k and 1 M" in answer_sentences(found)[0]


@pytest.mark.parametrize(("mixer", "first"), [("mean_pooling", "gMLP 1.20×"), ("linear_attention", "linear attention 1.25×")])
def test_references_of_an_ablation_take_no_part_and_are_named(make_data: MakeData, mixer: str, first: str) -> None:
    plain = make_data(models=(f"metaformer+mixer={mixer}", "gmlp", "vit"), lengths=(17,), metrics=("params", "latency"), change=time_apart)
    name = mixer.replace("_", " ")
    assert texts(strip_of(plain))["Equal parameters, 250 k"] == [f"{name} 1.25×"]
    part = Part(name="p", match="params", batching="", cells=tuple(plain.rows["cell_id"]))
    question = Question(text="Which?", statement="", predictions=())
    asked = dataclasses.replace(plain, plan=dataclasses.replace(plain.plan, parts=(part,), question=question))
    assert texts(strip_of(asked))["Equal parameters, 250 k"] == [first]
    assert (f"References that do not mix all tokens are left out: {name}." in strip_of(asked).caption) == (mixer == "mean_pooling")


EQUAL, OPEN, NOISY, SLOWER = (0.99, 1.01, 1.02), (0.9, 1.01, 1.1), (0.9, 1.3, 1.8), (1.1, 1.2, 1.3)
"""Ratios between their bounds; the margin is 3 %."""


@pytest.mark.parametrize(
    ("others", "sentence"),
    [
        # noise puts no model among the fastest that a slower one precedes
        (
            {"vit": SLOWER, "transformer": NOISY},
            "At equal parameters, gMLP is fastest at n = 17 (1.20×; Transformer undecided).",
        ),
        # vit is not tested against the Transformer, so no lead of vit over it is claimed
        ({"vit": OPEN, "transformer": SLOWER}, "At equal parameters, gMLP or ViT is fastest at n = 17 (1.20×)."),
        ({"vit": OPEN}, "At equal parameters, no difference is significant."),
        ({"vit": EQUAL, "transformer": EQUAL}, "At equal parameters, all are equal within 3 % at n = 17."),
        ({"vit (auto)": EQUAL, "vit (math)": SLOWER}, "At equal parameters, the fastest are equal within 3 % at n = 17."),
        (
            {"a": OPEN, "b": OPEN, "c": OPEN, "transformer": SLOWER},
            "At equal parameters, Transformer is slower than the fastest at n = 17.",
        ),
    ],
)
def test_a_sentence_claims_only_what_was_tested(
    others: dict[str, tuple[float, float, float]], sentence: str, make_data: MakeData, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = make_data(metrics=("params", "latency"))
    ranking = Ranking(
        group={"size": found.frame["size"].iloc[0], "seq_len": 17},
        best="gmlp",
        others=tuple(
            RankedModel(other=name, ratio=Interval(estimate=estimate, low=low, high=high, num=7), margin=0.03)
            for name, (low, estimate, high) in others.items()
        ),
    )
    monkeypatch.setattr(Study, "winners", [ranking])
    assert winners.sentences(found) == [sentence]


def test_a_tie_in_accuracy_names_both_models(make_data: MakeData) -> None:
    def take_turns(rows: pandas.DataFrame) -> None:
        rows["accuracy"] = [0.9 if (model == "gmlp") == (n == 17) else 0.8 for model, n in zip(rows["model"], rows["seq_len"], strict=True)]

    found = make_data(models=("gmlp", "vit"), lengths=(17, 65), works=({"task": "digits"},), change=take_turns)
    assert (
        "Of 2 comparisons of mean accuracy on digits, gMLP in 1 (0 significant) and ViT in 1 (0 significant) is highest."
        in answer_sentences(found)
    )


def test_equal_accuracies_share_the_first_place(make_data: MakeData) -> None:
    def tie(rows: pandas.DataFrame) -> None:
        rows["accuracy"] = [
            0.8 if (model == "vit") or (model == "transformer" and n > 17) else 0.9 for model, n in rows[["model", "seq_len"]].values
        ]

    models = ("gmlp", "vit", "transformer")
    found = make_data(models=models, lengths=(17, 65), works=({"task": "digits"},), change=tie)
    (sentence,) = (text for text in answer_sentences(found) if "accuracy" in text)
    assert sentence.startswith("gMLP has the highest mean accuracy on digits in 2 of 2 comparisons (1 shared);")
    alone = make_data(models=models, lengths=(17,), works=({"task": "digits"},), change=tie)
    (sentence,) = (text for text in answer_sentences(alone) if "accuracy" in text)
    assert sentence == "gMLP and Transformer have the same, highest mean accuracy on digits (0.900)."


def test_answer_and_figure_set_gmlp_beside_the_same_attention(make_data: MakeData) -> None:
    found = make_data(metrics=("params", "flops"))
    partner = gating_pairs(found.closed_crossovers)[0].attention.model
    assert answer_sentences(found)[0].startswith(f"gMLP needs fewer FLOPs than {spell_out_model(partner)} up to n = ")


def test_budgets_that_share_no_length_share_a_row(make_data: MakeData) -> None:
    def split(rows: pandas.DataFrame) -> None:
        time_apart(rows)
        rows.loc[(rows["budget"] == 250_000) != (rows["seq_len"] < 257), "latency_ms"] = math.nan

    found = make_data(models=("gmlp", "vit"), budgets=(250_000, 1_000_000), metrics=("params", "latency"), change=split)
    assert texts(strip_of(found)) == {"Equal parameters, 250 k (1 M at n = 257)": ["gMLP 1.20×"] * 3}
    assert answer_sentences(found)[0] == "At equal parameters, gMLP is fastest at n = 17 to 257 (1.20×)."


def test_of_many_lengths_the_strip_shows_the_ends_and_powers_of_two() -> None:
    assert winners.columns_of([16, 17, 65, 256, 257]) == [17, 65, 257]
    assert winners.columns_of(range(100, 400, 3)) == [100, 256, 397]
    assert winners.columns_of(range(17, 301)) == [17, 33, 65, 129, 257, 300]
    assert len(winners.columns_of([105_000 * i for i in range(1, 30)])) <= winners.MAX_COLUMNS


def test_strip_and_figure_decide_by_the_same_intervals(make_data: MakeData) -> None:
    """ViT is the fastest, so both divide by its times."""
    data, noise = make_data(), np.random.default_rng(0)
    factor = {"gmlp": 1.02, "vit": 1.0, "transformer": 1.1}
    rounds = {
        row["cell_id"]: dict(enumerate((factor[row["model"]] * noise.normal(1.0, 0.01, 20)).tolist()))
        for row in data.rows.to_dict("records")
    }
    found = dataclasses.replace(data, timings=Timings(rounds))
    assert {ranking.best for ranking in found.winners} == {"vit"}
    strip = {(pair.other, ranking.group["seq_len"]): pair for ranking in found.winners for pair in ranking.others}
    (times,) = found.relative_times
    figure = {(line.label, point.n): point for line in times.lines for point in line.points}
    assert len(strip) == 6
    assert {place: pair.ratio for place, pair in strip.items()} == {place: point.ratio for place, point in figure.items()}
    assert {pair.slower for pair in strip.values()} == {True, False}
