"""The sentences that answer a question name effects that its report estimates, in the question's own terms."""

from __future__ import annotations

import dataclasses
import string

import pytest

from bench import catalog
from bench.analysis.effects import Contrast, Effect
from bench.analysis.study import Study
from bench.intervals import Interval
from bench.questions import MEASURES, Ablation, Asked, Finding, LeastState, PaysFrom
from bench.report.sections.findings import finding_sentences
from bench.spec import Part
from tests.report.conftest import MakeData

ABLATIONS: dict[str, Ablation] = {name: catalog.load("ablations", name).ABLATION for name in catalog.names("ablations")}


@pytest.mark.parametrize("name", [name for name, ablation in ABLATIONS.items() if ablation.findings])
def test_findings_are_about_arms_whose_effects_are_estimated(name: str) -> None:
    ablation = ABLATIONS[name]
    grids = {grid.name: grid for grid in (ablation.cuda if name == "gpu" else ablation.cpu)}  # its rehearsal answers nothing
    predicted = {(p.part, p.arm, p.against) for p in ablation.predictions}
    for finding in ablation.findings:
        assert sum(field is not None for _, field, _, _ in string.Formatter().parse(finding.text)) == len(finding.about)
        for asked in finding.about:
            arms = [arm.name for arm in grids[asked.part].arms]
            if isinstance(asked, LeastState):
                assert asked.arms
                assert set(asked.arms) <= set(arms)
                continue
            assert asked.arm in arms
            assert asked.against in ("", *arms)
            baseline = grids[asked.part].baseline or arms[0]
            assert asked.against in ("", baseline) or (asked.part, asked.arm, asked.against) in predicted


def with_effects(make_data: MakeData, *effects: Effect) -> Study:
    data = make_data()
    part = Part(name="p", match="params", batching="", cells=(), baseline="base")
    planned = dataclasses.replace(data, plan=dataclasses.replace(data.plan, name="precision", parts=(part,)))
    planned.__dict__["effects"] = list(effects)
    return planned


def effect(low: float, high: float, measure: str, n: int = 64, caveat: str = "") -> Effect:
    contrast = Contrast(part="p", arm="new", against="base", place={"seq_len": n}, seq_len=n, first="a", second="b")
    middle = (low * high) ** 0.5 if MEASURES[measure].is_ratio else (low + high) / 2
    return Effect(
        contrast=contrast, measure=MEASURES[measure], estimate=Interval(estimate=middle, low=low, high=high, num=5), caveat=caveat
    )


def sentence(study: Study, finding: Finding, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    changed = dataclasses.replace(ABLATIONS["precision"], findings=(finding,))
    monkeypatch.setattr(catalog.load("ablations", "precision"), "ABLATION", changed)
    return list(finding_sentences(study))


def test_an_effect_of_several_phases_is_that_of_the_phase_asked_for(make_data: MakeData, monkeypatch: pytest.MonkeyPatch) -> None:
    trained, inferred = (effect(value, value, "params") for value in (2.0, 3.0))
    for phase, one in (("train", trained), ("infer", inferred)):
        one.contrast.place["phase"] = phase  # type: ignore[index]  # a dict in tests
    for phase, expected in (("train", ["2.00\N{MULTIPLICATION SIGN}."]), ("infer", ["3.00\N{MULTIPLICATION SIGN}."]), ("", [])):
        finding = Finding(text="{}.", about=(Asked(part="p", arm="new", measure="params", phase=phase),))
        assert sentence(with_effects(make_data, trained, inferred), finding, monkeypatch) == expected


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (effect(-0.1, -0.06, "accuracy"), "-8.0 points [-10.0, -6.0]"),
        (effect(-0.01, 0.012, "accuracy"), "+0.1 points (not significant)"),
        (effect(-0.1, -0.06, "accuracy", caveat="one seed: other seeds may differ"), "-8.0 points (one seed)"),
        (effect(1.21, 1.21, "params"), "1.21\N{MULTIPLICATION SIGN}"),
    ],
)
def test_an_effect_has_its_interval_or_says_that_it_is_not_significant(
    found: Effect, text: str, make_data: MakeData, monkeypatch: pytest.MonkeyPatch
) -> None:
    finding = Finding(text="It is {}.", about=(Asked(part="p", arm="new", measure=found.measure.name),))
    assert sentence(with_effects(make_data, found), finding, monkeypatch) == [f"It is {text}."]


@pytest.mark.parametrize(
    ("ratios", "text"),
    [
        ({64: (1.2, 1.3), 256: (0.9, 1.1), 1024: (0.5, 0.6)}, "between 64 and 1024"),
        ({64: (1.2, 1.3), 256: (0.5, 0.6), 1024: (0.4, 0.5)}, "between 64 and 256"),
        ({64: (0.9, 1.1), 256: (0.5, 0.6), 1024: (0.4, 0.5)}, "at 256 or less"),
        ({17: (0.5, 0.6), 64: (0.9, 1.1), 256: (0.5, 0.6)}, "at 256 or less"),
        ({64: (1.2, 1.3), 256: (1.1, 1.2)}, "beyond 256"),
    ],
)
def test_a_crossing_is_the_bracket_of_measured_lengths(
    ratios: dict[int, tuple[float, float]], text: str, make_data: MakeData, monkeypatch: pytest.MonkeyPatch
) -> None:
    effects = [effect(*bounds, "latency_ms", n) for n, bounds in ratios.items()]
    finding = Finding(text="It pays {}.", about=(PaysFrom(part="p", arm="new"),))
    assert sentence(with_effects(make_data, *effects), finding, monkeypatch) == [f"It pays {text}."]
    undecided = [*effects[:-1], effect(0.9, 1.1, "latency_ms", list(ratios)[-1])]
    assert sentence(with_effects(make_data, *undecided), finding, monkeypatch) == []


def test_a_sentence_about_what_the_run_lacks_is_left_out(make_data: MakeData, monkeypatch: pytest.MonkeyPatch) -> None:
    finding = Finding(text="{} and {}.", about=(Asked(part="p", arm="new"), Asked(part="other", arm="new")))
    assert sentence(with_effects(make_data, effect(0.1, 0.2, "accuracy")), finding, monkeypatch) == []
