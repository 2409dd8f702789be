"""Say which model is fastest at each size and length.

`bench.analysis.ranking` decides; this module claims no other difference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas

from bench import numbers
from bench.analysis.frame import TRAINING_KEYS, WORK_KEYS, constant_work, incomplete, varying, work_text
from bench.analysis.ranking import RankedModel, Ranking
from bench.analysis.series import row_values
from bench.analysis.study import Study
from bench.planning.same_width import MATCHED, UNEQUAL_BOUND, are_unequal, policy_of
from bench.report.document import Block, Paragraph, TableBlock
from bench.report.sections.wording import POLICIES, join_names, spell_out_policy
from bench.report.tables import Table

MAX_SENTENCES = 4
MAX_CHARACTERS = 1500
MAX_UNEQUAL = 2
TOO_MANY = "Too many combinations for one paragraph: the table names the fastest model of each and says whether its lead is shown."
NO_LATENCY = "No latency was measured, so this run does not say which model is faster."
ACCURACY_NOTE = "Accuracy, mean and 95 % interval over seeds (bench compare tests the differences):"


def answer(study: Study) -> tuple[Block, ...]:
    """Return one paragraph, then the table of comparisons behind it."""
    text = answer_text(study)
    blocks: list[Block] = [Paragraph(text=text if len(text) <= MAX_CHARACTERS else TOO_MANY)]
    if any(ranking.others for ranking in study.rankings):
        keys = (*varying(study.frame), "size")
        blocks.append(TableBlock(table=_table(study.rankings, keys), caption=_table_caption(study)))
    return tuple(blocks)


def answer_text(study: Study) -> str:
    """Return the paragraph: noise, speed, accuracy, failures."""
    frame = study.frame
    return " ".join([*_noise(study.control), *_speed(study.rankings, frame), *_quality(frame), *_failures(frame)])


def _noise(control: Mapping[str, Any] | None) -> list[str]:
    if control is not None and not control.get("contains_one") and not control.get("interleaved"):
        return ["The A/A control failed on this noisy machine: every difference in time below is provisional."]
    return []


def _speed(rankings: Sequence[Ranking], frame: pandas.DataFrame) -> list[str]:
    if not rankings:
        return [NO_LATENCY]
    if not any(ranking.others for ranking in rankings):
        return ["No two models were timed at the same size, length and workload, so this run compares nothing."]
    groups: dict[str, list[Ranking]] = {}
    for ranking in rankings:
        groups.setdefault(_place(ranking.group), []).append(ranking)
    sentences = [_group_sentence(place, members) for place, members in list(groups.items())[:MAX_SENTENCES]]
    if len(groups) > MAX_SENTENCES:
        sentences.append(f"The table has {len(groups) - MAX_SENTENCES} more combinations.")
    sentences += _unequal_shapes(frame)
    unmatched = sorted(set(frame.loc[~frame["match"].isin(MATCHED), "match"]))
    if unmatched:
        policies = ", ".join(POLICIES.get(policy, policy) for policy in unmatched)
        sentences.append(f"Not all sizes are matched ({policies}): a faster model may simply be a smaller one.")
    return sentences


def _unequal_shapes(frame: pandas.DataFrame) -> list[str]:
    """Name lengths at which models of equal cost have very different shapes.

    Shapes differ a lot if one model is less than half as wide as another, or if most of its parameters depend on n.
    """
    compared = frame[frame["match"].isin(MATCHED) & frame["width"].notna()]
    found = []
    for (_, n), members in compared.drop_duplicates(["model", "size", "seq_len"]).groupby(["size", "seq_len"], sort=False):
        if len(members) < 2:
            continue
        shares = (members["params_seq"] / members["params"]).fillna(0.0)
        if not are_unequal(list(members["width"]), list(shares)):
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
        found.append(f"at n = {numbers.whole(n)}, {', and '.join(facts)}{_pointer_to_one_width(frame, narrow, wide)}")
    more = f", and {len(found) - MAX_UNEQUAL} more" if len(found) > MAX_UNEQUAL else ""
    return [f"Models of equal cost have very different shapes: {'; '.join(found[:MAX_UNEQUAL])}{more}."] if found else []


def _pointer_to_one_width(frame: pandas.DataFrame, narrow: pandas.Series, wide: pandas.Series) -> str:
    """Point to the comparison at one width, unless widths are equal."""
    if narrow["width"] == wide["width"]:
        return ""
    policy = policy_of(int(wide["width"]))
    return f" (see {policy})" if policy in set(frame["match"]) else f" (for one width: --{policy})"


def _place(group: Mapping[str, Any]) -> str:
    return ", ".join(spell_out_policy(work_text(key, value)) for key, value in group.items() if key != "seq_len")


def _group_sentence(place: str, rankings: Sequence[Ranking]) -> str:
    """Write one sentence on all lengths of a place.

    Neighbouring lengths with the same outcome share a clause.
    """
    clauses: list[tuple[str, list[Ranking]]] = []
    for ranking in sorted(rankings, key=lambda ranking: float(ranking.group["seq_len"])):
        outcome = _outcome(ranking)
        if clauses and clauses[-1][0] == outcome:
            clauses[-1][1].append(ranking)
        else:
            clauses.append((outcome, [ranking]))
    return f"{place[:1].upper()}{place[1:]}: " + "; ".join(_clause(outcome, members) for outcome, members in clauses) + "."


def _outcome(ranking: Ranking) -> str:
    """Name the fastest model, its equals, slower models and open pairs."""
    if not ranking.others:
        return f"only {ranking.best} was timed"
    if not ranking.tied:
        return f"{ranking.best} is fastest"
    equal = [pair.other for pair in ranking.tied if pair.equal]
    undecided = [pair for pair in ranking.tied if not pair.equal]
    slower = [pair.other for pair in ranking.others if pair.shown]
    parts = [f"{join_names([ranking.best, *equal])} are equal within {numbers.percent(ranking.margin)}"] if equal else []
    if slower:
        parts.append(f"{ranking.best} is faster than {join_names(slower)}")
    if undecided:
        parts.append(f"no difference is shown between {join_names([ranking.best, *(pair.other for pair in undecided)])}")
        parts += [f"{rounds} would decide"] if (rounds := _rounds_text(undecided)) else []
    return ", and ".join(part for part in (", ".join(parts[:-1]), parts[-1]) if part)


def _rounds_text(pairs: Sequence[RankedModel]) -> str:
    """Write the rounds that would decide all pairs: `about 11 rounds`.

    Returns "" if a pair has no estimate.
    """
    needed = [pair.rounds_needed for pair in pairs]
    known = [num for num in needed if num is not None]
    return f"about {max(known)} rounds" if len(known) == len(needed) else ""


def _clause(outcome: str, rankings: Sequence[Ranking]) -> str:
    """Write one clause on lengths with the same outcome.

    Example: `at n = 17 and 65, vit is fastest (gmlp takes 1.15 to 1.34 times as long)`.
    """
    lengths = join_names([numbers.whole(ranking.group["seq_len"]) for ranking in rankings])
    clause = f"at n = {lengths}, {outcome}"
    if not rankings[0].others or rankings[0].tied:
        return clause
    next_best: dict[str, list[RankedModel]] = {}
    for ranking in rankings:
        next_best.setdefault(ranking.others[0].other, []).append(ranking.others[0])
    return f"{clause} ({', '.join(_margin(other, pairs) for other, pairs in next_best.items())})"


def _margin(other: str, pairs: Sequence[RankedModel]) -> str:
    within = ", within the margin" if all(pair.equal for pair in pairs) else ""
    if len(pairs) == 1:
        return f"{other} takes {_ratio(pairs[0])} times as long{within}"
    ratios = sorted(pair.ratio for pair in pairs)
    ends = dict.fromkeys((numbers.ratio(ratios[0]), numbers.ratio(ratios[-1])))
    return f"{other} takes {' to '.join(ends)} times as long{within}"


def _quality(frame: pandas.DataFrame) -> list[str]:
    """List mean accuracies, highest first, without naming a winner.

    Naming one needs a test on the same test items: see `bench compare`.
    """
    trained = frame[frame["accuracy"].notna()].drop_duplicates(TRAINING_KEYS)
    places = list(trained.groupby(["task", "size", "seq_len"], sort=False))
    if not places:
        return []
    texts = [
        f"{task} at {spell_out_policy(size)}, n = {numbers.whole(n)}: {_means(members)}"
        for (task, size, n), members in places[:MAX_SENTENCES]
    ]
    more = f"; {len(places) - MAX_SENTENCES} more in the table" if len(places) > MAX_SENTENCES else ""
    return [f"{ACCURACY_NOTE} {'; '.join(texts)}{more}."]


def _means(members: pandas.DataFrame) -> str:
    ordered = members.sort_values(["accuracy", "model"], ascending=[False, True])
    return ", ".join(
        f"{row['model']}{f' ({recipe})' if (recipe := row['recipe']) else ''} "
        f"{numbers.fraction(row['accuracy'], row['accuracy_low'], row['accuracy_high'])}"
        for row in row_values(ordered)
    )


def _failures(frame: pandas.DataFrame) -> list[str]:
    statuses = incomplete(frame)["status"].value_counts()
    named = ", ".join(f"{num} {status}" for status, num in sorted(statuses.items()))
    return [f"Not measured in full: {statuses.sum()} of {len(frame)} configurations ({named})."] if named else []


def _table(rankings: Sequence[Ranking], keys: Sequence[str]) -> Table:
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
        verdict = f"no difference shown: {pair.why}{f' ({rounds} would decide)' if rounds else ''}"
    return pair.other, _ratio(pair), verdict


def _ratio(pair: RankedModel) -> str:
    return numbers.ratio(pair.ratio, pair.low, pair.high)


def _table_caption(study: Study) -> str:
    rankings = [ranking for ranking in study.rankings if ranking.others]
    conditions = constant_work(study.frame)
    lead = "Latency of each model over that of the fastest."
    if not study.timings:
        how = (
            "Each ratio divides two medians, not paired by round. A difference is shown if the two 95 % intervals do not overlap and both "
            "configurations are stable. No correction for the number of comparisons."
        )
        return f"{lead} {how} Conditions: {conditions}."
    bound = 1 + rankings[0].margin
    interleaved = all(pair.interleaved for ranking in rankings for pair in ranking.others)
    how_paired = "each round's value is the median over blocks in which the two took turns" if interleaved else "paired by round"
    how = (
        f"Each ratio is a geometric mean over rounds with a plain 95 % t-interval; {how_paired}. Of every seven rounds the highest and the "
        f"lowest are left out. Verdicts hold for all {rankings[0].num_pairs} ratios of the table together (Bonferroni): slower if the 95 % "
        f"interval excludes 1, equal if the 90 % interval lies within 1 / {bound:g} to {bound:g}. "
        "A ratio without an interval divides two medians, since no rounds could be paired."
    )
    return f"{lead} {how} Conditions: {conditions}."
