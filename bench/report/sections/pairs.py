"""Compare every model with the fastest of its condition, and name conditions of very unequal shapes."""

from __future__ import annotations

from collections.abc import Sequence

import pandas

from bench import numbers
from bench.analysis.frame import WORK_KEYS, constant_work, row_values, varying, work_text
from bench.analysis.ratios import RankedModel, Ranking
from bench.analysis.study import Study
from bench.report.document import Block, Paragraph, TableBlock
from bench.report.sections.wording import spell_out_policy
from bench.report.tables import Table

MAX_UNEQUAL = 2
MATCHED = ("params", "flops")
"""Policies that match cost."""
UNEQUAL_BOUND = 0.5
"""Shapes are very unequal if one model is narrower than this part of another's width, or more of its parameters depend on n."""


def pair_blocks(study: Study) -> tuple[Block, ...]:
    """Return every model against the fastest of its condition, and the conditions of unequal shapes."""
    if not any(ranking.others for ranking in study.winners):
        return ()
    keys = (*varying(study.frame), "size")
    notes = tuple(Paragraph(text=text) for text in unequal_shapes(study.frame))
    return (*notes, TableBlock(table=pair_table(study.winners, keys), caption=_pair_caption(study)))


def unequal_shapes(frame: pandas.DataFrame) -> list[str]:
    """Name lengths at which models of equal cost have very different shapes.

    Shapes differ a lot if one model is less than half as wide as another, or if most of its parameters depend on n.
    """
    compared = frame[frame["match"].isin(MATCHED) & frame["width"].notna()]
    found = []
    for (_, n), members in compared.drop_duplicates(["model", "size", "seq_len"]).groupby(["size", "seq_len"], sort=False):
        if len(members) < 2:
            continue
        shares = (members["params_seq"] / members["params"]).fillna(0.0)
        if members["width"].min() >= UNEQUAL_BOUND * members["width"].max() and shares.max() <= UNEQUAL_BOUND:
            continue
        narrow, wide = (members.loc[places] for places in (members["width"].idxmin(), members["width"].idxmax()))
        facts = [
            f"{numbers.percent(row['params_seq'] / row['params'])} of {row['model']}'s parameters depend on n"
            for row in row_values(members[shares > UNEQUAL_BOUND])
        ]
        if narrow["width"] < UNEQUAL_BOUND * wide["width"]:
            facts.insert(
                0, f"{narrow['model']} has width {numbers.whole(narrow['width'])} and {wide['model']} {numbers.whole(wide['width'])}"
            )
        found.append(f"at n = {numbers.whole(n)}, {', and '.join(facts)} (for one width: --width {numbers.whole(wide['width'])})")
    more = f", and {len(found) - MAX_UNEQUAL} more" if len(found) > MAX_UNEQUAL else ""
    return [f"Models of equal cost have very different shapes: {'; '.join(found[:MAX_UNEQUAL])}{more}."] if found else []


def pair_table(rankings: Sequence[Ranking], keys: Sequence[str]) -> Table:
    work = [key for key in keys if key in WORK_KEYS]
    found = [ranking for ranking in rankings if ranking.others]
    rows = tuple(
        (*_group_texts(ranking, work), ranking.best, *_pair_texts(pair, ranking.margin)) for ranking in found for pair in ranking.others
    )
    headers = ("size", "n", *(key.replace("_", " ") for key in work), "fastest", "compared with", "ratio", "verdict")
    numeric = (False, True, *(False for _ in work), False, False, True, False)
    return Table(headers=headers, numeric=numeric, rows=rows)


def _group_texts(ranking: Ranking, work: Sequence[str]) -> tuple[str, ...]:
    group = ranking.group
    return (spell_out_policy(str(group["size"])), numbers.whole(group["seq_len"]), *(work_text(key, group[key]) for key in work))


def _pair_texts(pair: RankedModel, margin: float) -> tuple[str, str, str]:
    equal = f"equal within {numbers.percent(margin)}"
    if pair.shown:
        verdict = f"{pair.other} is slower{f', {equal}' if pair.equal else ''}"
    elif pair.equal:
        verdict = equal
    else:
        rounds = _rounds_text([pair])
        verdict = f"no significant difference: {pair.why}{f' ({rounds} would decide)' if rounds else ''}"
    return pair.other, ratio_text(pair), verdict


def _rounds_text(pairs: Sequence[RankedModel]) -> str:
    """Write the rounds that would decide all pairs: `about 11 rounds`.

    Returns "" if a pair has no estimate.
    """
    needed = [pair.rounds_needed for pair in pairs]
    known = [num for num in needed if num is not None]
    return f"about {max(known)} rounds" if len(known) == len(needed) else ""


def ratio_text(pair: RankedModel) -> str:
    return numbers.ratio(pair.ratio, *pair.bounds, is_range=pair.span is not None)


def _pair_caption(study: Study) -> str:
    rankings = [ranking for ranking in study.winners if ranking.others]
    conditions = constant_work(study.frame)
    lead = "Latency of each model over that of the fastest."
    if not study.timings:
        how = (
            "Each ratio divides two medians, not paired by round. A difference is significant if the two 95 % intervals do not overlap and both "
            "configurations are stable. No correction for the number of comparisons."
        )
        return f"{lead} {how} Conditions: {conditions}."
    bound = 1 + rankings[0].margin
    interleaved = all(pair.interleaved for ranking in rankings for pair in ranking.others)
    how_paired = "each round's value is the median over blocks in which the two took turns" if interleaved else "paired by round"
    how = (
        f"Each ratio is a Hodges-Lehmann estimate over rounds with its signed-rank interval, 95 % together for the models of one length; "
        f"{how_paired}. Slower if the interval excludes 1; equal if it lies within 1 / {bound:g} to {bound:g}. "
        "Rounds that are too few for an interval have their range in parentheses. A ratio without either divides two medians, since no rounds "
        "could be paired."
    )
    return f"{lead} {how} Conditions: {conditions}."
