"""What a report works out of a run before it is written: verdicts, growth, crossovers. Each is computed once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas

from bench.analysis.crossing import ClosedCrossing, EqualTerms, PairCrossing, closed_pairs, equal_terms, measured_pairs
from bench.analysis.growth import Growth, growth_of
from bench.analysis.verdicts import Verdict, judge
from bench.render.judged import evidence_of
from bench.render.report_data import ReportData


@dataclass(frozen=True, kw_only=True)
class Study:
    """`verdicts` on the claims; `growth` of every series; where two cost the same, `measured` and by `closed` form; where a model's own terms are
    `equal`; `doubt`: why nothing timed may be decided."""

    verdicts: Sequence[Verdict]
    growth: Sequence[Growth]
    measured: Sequence[PairCrossing]
    closed: Sequence[ClosedCrossing]
    equal: Sequence[EqualTerms]
    doubt: str = ""


def study_of(frame: pandas.DataFrame, data: ReportData) -> Study:
    """`frame` is prepared."""
    evidence = evidence_of(frame, data)
    return Study(
        verdicts=judge(evidence),
        growth=growth_of(frame, evidence.timings, evidence.usable),
        measured=measured_pairs(frame, evidence.timings),
        closed=closed_pairs(data.plan),
        equal=equal_terms(data.plan),
        doubt=evidence.doubt,
    )
