"""The plain answer: which model is fastest at each size and length, as far as the data show it and no further."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas

from bench import numbers
from bench.analysis.frame import TRAINING_KEYS, WORK_KEYS, constant_work, failed, varying, work_text
from bench.analysis.ranking import Pair, Ranking
from bench.analysis.series import row_values
from bench.analysis.study import Study
from bench.report.document import Block, Paragraph, TableBlock
from bench.report.tables import Table

MAX_SENTENCES = 4
MAX_CHARACTERS = 1500
TOO_MANY = "Too many combinations were timed for a paragraph. The table names the fastest of each and whether the difference to the others is shown."
MATCHED = ("params", "flops")
NO_LATENCY = "No latency was measured, so this run does not say which model is faster."
ACCURACY_NOTE = "Accuracy, mean and 95 % interval over seeds, differences not tested here (bench compare tests them):"


def answer(study: Study) -> tuple[Block, ...]:
    """One paragraph, then the table of comparisons that it sums up."""
    text = answer_text(study)
    blocks: list[Block] = [Paragraph(text=text if len(text) <= MAX_CHARACTERS else TOO_MANY)]
    if any(ranking.others for ranking in study.rankings):
        keys = (*varying(study.frame), "size")
        blocks.append(TableBlock(table=_table(study.rankings, keys), caption=_table_caption(study)))
    return tuple(blocks)


def answer_text(study: Study) -> str:
    """The paragraph alone."""
    frame = study.frame
    return " ".join([*_noise(study.control), *_speed(study.rankings, frame), *_quality(frame), *_failures(frame)])


def _noise(control: Mapping[str, Any] | None) -> list[str]:
    if control is not None and not control.get("contains_one"):
        return ["The machine was too noisy for its own control: take every difference in time below as provisional."]
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
        sentences.append(f"The table has the other {len(groups) - MAX_SENTENCES} combinations.")
    unmatched = sorted(set(frame.loc[~frame["match"].isin(MATCHED), "match"]))
    if unmatched:
        sentences.append("Not all sizes are matched (policy: " + ", ".join(unmatched) + "): a faster model may simply be a smaller one.")
    return sentences


def _place(group: Mapping[str, Any]) -> str:
    return ", ".join(work_text(key, value) for key, value in group.items() if key != "seq_len")


def _group_sentence(place: str, rankings: Sequence[Ranking]) -> str:
    """Neighbouring lengths with the same outcome share a clause."""
    clauses: list[tuple[str, list[Ranking]]] = []
    for ranking in sorted(rankings, key=lambda ranking: float(ranking.group["seq_len"])):
        outcome = _outcome(ranking)
        if clauses and clauses[-1][0] == outcome:
            clauses[-1][1].append(ranking)
        else:
            clauses.append((outcome, [ranking]))
    return f"{place[:1].upper()}{place[1:]}: " + "; ".join(_clause(outcome, members) for outcome, members in clauses) + "."


def _outcome(ranking: Ranking) -> str:
    if not ranking.others:
        return f"only {ranking.best} was timed"
    if ranking.tied:
        names = _joined([ranking.best, *(pair.other for pair in ranking.tied)])
        slower = [pair.other for pair in ranking.others if pair.shown]
        return f"no difference shown between {names}" + (f" ({ranking.best} ahead of {_joined(slower)})" if slower else "")
    return f"{ranking.best} is fastest"


def _clause(outcome: str, rankings: Sequence[Ranking]) -> str:
    lengths = _joined([numbers.whole(ranking.group["seq_len"]) for ranking in rankings])
    lead = f"{outcome} at n = {lengths}"
    if not rankings[0].others or rankings[0].tied:
        return lead
    next_best: dict[str, list[Pair]] = {}
    for ranking in rankings:
        next_best.setdefault(ranking.others[0].other, []).append(ranking.others[0])
    return f"{lead} (by {', '.join(_margin(other, pairs) for other, pairs in next_best.items())})"


def _margin(other: str, pairs: Sequence[Pair]) -> str:
    if len(pairs) == 1:
        return f"{_ratio(pairs[0])} times over {other}"
    ratios = sorted(pair.ratio for pair in pairs)
    ends = dict.fromkeys((numbers.ratio(ratios[0]), numbers.ratio(ratios[-1])))
    return f"{' to '.join(ends)} times over {other}"


def _joined(names: Sequence[str]) -> str:
    return " and ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)


def _quality(frame: pandas.DataFrame) -> list[str]:
    """Means, highest first, and no winner: a difference would have to be tested on the same test items, which this report does not do."""
    trained = frame[frame["accuracy"].notna()].drop_duplicates(TRAINING_KEYS)
    places = list(trained.groupby(["task", "size", "seq_len"], sort=False))
    if not places:
        return []
    texts = [f"{task} at {size}, n = {numbers.whole(n)}: {_means(members)}" for (task, size, n), members in places[:MAX_SENTENCES]]
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
    statuses = failed(frame)["status"].value_counts()
    named = ", ".join(f"{num} {status}" for status, num in sorted(statuses.items()))
    return [f"Not measured in full, see below: {statuses.sum()} of {len(frame)} cells ({named})."] if named else []


def _table(rankings: Sequence[Ranking], keys: Sequence[str]) -> Table:
    work = [key for key in keys if key in WORK_KEYS]
    found = [ranking for ranking in rankings if ranking.others]
    rows = tuple((*_group_texts(ranking, work), ranking.best, *_pair_texts(pair)) for ranking in found for pair in ranking.others)
    headers = ("size", "n", *(key.replace("_", " ") for key in work), "fastest", "compared with", "ratio", "verdict")
    numeric = (False, True, *(False for _ in work), False, False, True, False)
    return Table(headers=headers, numeric=numeric, rows=rows)


def _group_texts(ranking: Ranking, work: Sequence[str]) -> tuple[str, ...]:
    group = ranking.group
    return (str(group["size"]), numbers.whole(group["seq_len"]), *(work_text(key, group[key]) for key in work))


def _pair_texts(pair: Pair) -> tuple[str, str, str]:
    verdict = f"{pair.other} is slower" if pair.shown else f"no difference shown: {pair.why}"
    return pair.other, _ratio(pair), verdict


def _ratio(pair: Pair) -> str:
    return numbers.ratio(pair.ratio, pair.low, pair.high)


def _table_caption(study: Study) -> str:
    if study.rounds is None or study.rounds.empty:
        how = (
            "The ratio is one of medians, not paired by round; a difference counts as shown when the two 95 % intervals do not overlap "
            "and both cells are stable."
        )
    else:
        how = (
            "The ratio is the geometric mean over rounds, paired by round, with its 95 % t-interval; a difference counts as shown when "
            "the interval leaves out 1. Without brackets it is a ratio of medians: no rounds to pair."
        )
    conditions = constant_work(study.frame)
    return f"Latency of each model divided by that of the fastest. {how} Not corrected for the number of comparisons. Conditions: {conditions}."
