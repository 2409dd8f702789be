"""What a report works out of a run before it is written: verdicts, growth, crossovers. Each is computed once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas

from bench.analysis.crossing import ClosedCrossing, EqualTerms, PairCrossing, closed_pairs, equal_terms, measured_pairs
from bench.analysis.effects import Effect, contrasts_of, effects_of, with_baselines
from bench.analysis.growth import Growth, growth_of
from bench.analysis.predictions import Outcome, judge_predictions
from bench.analysis.verdicts import Verdict, judge
from bench.render.judged import evidence_of
from bench.render.observed import observations_of
from bench.render.report_data import ReportData


@dataclass(frozen=True, kw_only=True)
class Study:
    """`verdicts` on the claims; `growth` of every series; where two cost the same, `measured` and by `closed` form; where a model's own terms are
    `equal`; `effects` of an ablation's arms and the `outcomes` of its predictions; `doubt`: why nothing timed may be decided."""

    verdicts: Sequence[Verdict]
    growth: Sequence[Growth]
    measured: Sequence[PairCrossing]
    closed: Sequence[ClosedCrossing]
    equal: Sequence[EqualTerms]
    effects: Sequence[Effect] = ()
    outcomes: Sequence[Outcome] = ()
    doubt: str = ""


def study_of(frame: pandas.DataFrame, data: ReportData) -> Study:
    """`frame` is prepared."""
    evidence = evidence_of(frame, data)
    observed = observations_of(frame, data, evidence.timings)
    predictions = with_baselines(data.plan.question.predictions if data.plan.question else (), data.plan.parts)
    contrasts = contrasts_of(data.plan.parts, predictions, observed.rows)
    effects = effects_of(contrasts, observed)
    return Study(
        verdicts=judge(evidence),
        growth=growth_of(frame, evidence.timings, evidence.usable),
        measured=measured_pairs(frame, evidence.timings),
        closed=closed_pairs(data.plan),
        equal=equal_terms(data.plan),
        effects=effects,
        outcomes=judge_predictions(predictions, contrasts, effects, doubt=evidence.doubt, quick=evidence.quick),
        doubt=evidence.doubt,
    )
