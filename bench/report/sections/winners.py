"""Show which model is fastest under each condition, as a strip of fields, as sentences and pair by pair, and name conditions of very unequal shapes.

A condition is a size, matching policy and workload; `bench.analysis.ratios` decides who is fastest in it.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas

from bench import numbers
from bench.analysis.frame import WORK_KEYS, constant_work, varying, work_text
from bench.analysis.ratios import RankedModel, Ranking
from bench.analysis.sizes import TOLERANCE, unlike_sizes
from bench.analysis.study import Study
from bench.report.charts.style import role_of
from bench.report.document import Block, Field, Strip, TableBlock
from bench.report.sections.wording import SIZES, join_names, size_note, spell_out_model, spell_out_policy
from bench.report.tables import Table
from bench.spec import NO_MATCH

MAX_ROWS = 8
"""Rows of the strip; the table of all pairs has the rest."""
MAX_COLUMNS = 12
"""Lengths or budgets of the strip; the table of all rows has the rest."""
MAX_CLAUSES = 2
VERB = " is fastest "
MAX_NAMED = 3
MAX_PLACES = 2
"""Single lengths that a sentence names; of more, their number."""
OWN_LENGTH = re.compile(r"\(n = (\d+)\)$")
MAX_LEADERS = 2
"""Models that a field of the strip names."""
WINS, EQUAL, OPEN = "wins", "equal", "open"
EXPLICIT = "explicit"
"""The role of a series with explicit attention."""
SHORT = 10_000
"""Lengths and budgets from this on are abbreviated."""
LENGTH = "n = "
UNLIKE = "unlike sizes"
"""In place of the matching policy where a user's own model is not as large as the others."""
JOINED = ("params", "flops")
"""Policies whose budgets may share a row."""
USUAL = ("infer", "eager", "", None)
"""Workload values that a name omits."""
HIDDEN = ("seq_len", "size")
MARKS = {
    " = ": "The sign = joins models that are equal within {margin:g} %.",
    " or ": "The word or joins models between which no difference is significant.",
    " lead ": "3 lead: between three models no difference is significant.",
}


@dataclass(frozen=True, kw_only=True)
class Condition:
    """The rankings that share everything but one axis, which is n or the budget.

    `match`: the matching policy.
    `budget`: the matched budget or width as text; empty if the sizes were given, or if the budget is the axis.
    `workload`: the values that vary within the run, as text.
    `rankings`: by value on the axis.
    `unlike`: says how a user's own model differs in size from the others; empty if all are alike.
    """

    match: str
    budget: str
    workload: tuple[str, ...]
    rankings: Mapping[float, Ranking]
    rank: tuple[Any, ...]
    unlike: str = ""

    @property
    def sizes(self) -> str:
        """How sizes were chosen, in words."""
        return UNLIKE if self.unlike and self.match != NO_MATCH else SIZES[self.match]

    @property
    def name(self) -> str:
        return ", ".join(filter(None, (self.sizes, self.budget, *self.workload)))


@functools.lru_cache(maxsize=1)
def conditions(study: Study) -> tuple[Condition, ...]:
    """Return every condition with two models or more, the primary one first.

    Several values come before a single one, inference before training, eager before other engines, and a small fixed batch before others; then
    the policy, then more values.
    """
    sizes = {size: (rows["match"].iloc[0], rows["budget"].iloc[0], _size_text(rows)) for size, rows in study.frame.groupby("size")}
    found: dict[tuple[Any, ...], dict[float, Ranking]] = {}
    by_length = axis_of(study) == "n"
    rankings = [ranking for ranking in study.winners if ranking.others]
    for ranking in rankings:
        match, budget, text = sizes[ranking.group["size"]]
        place, x = (text, ranking.group["seq_len"]) if by_length else ("", budget)
        found.setdefault((match, place, _work(ranking)), {})[float(x)] = ranking
    made = [_condition(match, place, dict(work), members, study) for (match, place, work), members in _joined_budgets(found).items()]
    return tuple(sorted(made, key=lambda condition: condition.rank))


def _size_text(rows: pandas.DataFrame) -> str:
    """Return the budget; if every model misses it, the parameters that they have."""
    if rows["budget"].isna().all() or not (rows["budget_error"].abs() > TOLERANCE).all():
        return numbers.count(rows["budget"].iloc[0])
    ends = dict.fromkeys(numbers.count(params) for params in (rows["params"].min(), rows["params"].max()))
    return " to ".join(ends)


def _joined_budgets(found: Mapping[tuple[Any, ...], Mapping[float, Ranking]]) -> dict[tuple[Any, ...], dict[float, Ranking]]:
    """Join conditions that differ only in budget and share no length.

    The budget with most lengths comes first: `5 M (80 M at n = 4097)`.
    """
    rows: dict[tuple[Any, ...], dict[float, Ranking]] = {}
    for (match, place, work), members in sorted(found.items(), key=lambda item: -len(item[1])):
        same = (
            key
            for key, xs in rows.items()
            if place and match in JOINED and (key[0], key[2]) == (match, work) and not xs.keys() & members.keys()
        )
        if (key := next(same, None)) is None:
            rows[match, place, work] = dict(members)
        else:
            more = f"{place} at n = {join_names([_place(x) for x in sorted(members)])}"
            rows[match, f"{key[1].removesuffix(')')}{'; ' if key[1].endswith(')') else ' ('}{more})", work] = rows.pop(key) | dict(members)
    return rows


def _work(ranking: Ranking) -> tuple[tuple[str, Any], ...]:
    return tuple((key, value) for key, value in ranking.group.items() if key not in HIDDEN)


@functools.lru_cache(maxsize=1)
def axis_of(study: Study) -> str:
    """Return `n`, or `budget` if the ranked models were timed at one length and several budgets."""
    groups = [ranking.group for ranking in study.winners if ranking.others]
    budgets = study.frame["budget"].dropna().unique()
    return (
        "budget" if len({group["seq_len"] for group in groups}) == 1 and len(budgets) > 1 and study.frame["match"].nunique() == 1 else "n"
    )


def _condition(match: str, budget: str, work: Mapping[str, Any], rankings: Mapping[float, Ranking], study: Study) -> Condition:
    batching = str(work.get("batching", "batch 1"))
    fixed = batching.startswith("batch ")
    return Condition(
        match=match,
        budget=budget,
        workload=tuple(work_text(key, value) for key, value in work.items() if value not in USUAL),
        rankings=dict(sorted(rankings.items())),
        unlike=size_note(unlike_sizes(study.row_by_cell[cell] for ranking in rankings.values() for cell in ranking.cells)),
        rank=(
            len(rankings) == 1,
            work.get("phase", "infer") != "infer",
            work.get("engine", "eager") != "eager",
            not fixed,
            int(batching.split()[1]) if fixed else 0,
            list(SIZES).index(match),
            -len(rankings),
        ),
    )


def strip_blocks(study: Study) -> tuple[Block, ...]:
    """Return the strip of winners; () if no two models were timed under one condition."""
    every = conditions(study)
    places = sorted({x for condition in every[:MAX_ROWS] for x in condition.rankings})
    columns = columns_of(places)
    found = [condition for condition in every[:MAX_ROWS] if condition.rankings.keys() & set(columns)]
    if not found:
        return ()
    axis = axis_of(study)
    rows = tuple(
        (_capital(condition.name), tuple(_field(condition.rankings.get(x), f"{axis} = {numbers.count(x)}") for x in columns))
        for condition in found
    )
    headers = ("" if axis == "n" else "budget", *(f"n = {x:.0f}" if axis == "n" else numbers.count(x) for x in columns))
    texts = [field.text for _, fields in rows for field in fields]
    noun = "lengths" if axis == "n" else "budgets"
    cut = f"{len(columns)} of {len(places)} {noun} are shown; all are in All rows." if len(places) > MAX_COLUMNS else ""
    return (Strip(headers=headers, rows=rows, caption=" ".join(filter(None, (cut, _caption(study, texts, len(every) - len(found)))))),)


def columns_of(places: Sequence[float]) -> list[float]:
    """Return the ascending values to show: of many, the ends and powers of two (plus 1) between.

    Of an isolated pair such as 256 and 257, the shorter tells of alignment alone and is left out.
    """
    shown = list(places)
    if len(places) > MAX_COLUMNS:
        inner = [x for x in places[1:-1] if {math.log2(x) % 1, math.log2(x - 1) % 1} & {0.0}] or places[1:-1]
        shown = [places[0], *inner[:: math.ceil(len(inner) / (MAX_COLUMNS - 2))], places[-1]]
    return [x for x in shown if {x - 1, x + 1, x + 2} & set(shown) != {x + 1}]


def _caption(study: Study, texts: Sequence[str], num_more: int) -> str:
    left_out = sorted(set(study.frame.loc[study.frame["latency_ms"].notna(), "label"]) - _labels(study.winners)) if study.plan.parts else []
    holds = "Verdicts hold at 95 %, together for the models of one length." if study.timings else ""
    lead = next((text.rpartition(" ")[2] for text in texts if text.endswith("×")), "")
    sentences = (
        f"{lead} means that the next model takes {lead[:-1]} times as long." if lead else "",
        study.caveat or holds,
        *(
            meaning.format(margin=100 * study.plan.settings.margin)
            for mark, meaning in MARKS.items()
            if any(mark in text for text in texts)
        ),
        "Empty: fewer than two models were measured." if "" in texts else "",
        _class_token_note(study.winners),
        f"{note}." if (note := size_note(unlike_sizes(study.frame_rows))) else "",
        f"References that do not mix all tokens are left out: {join_names([spell_out_model(label) for label in left_out])}."
        if left_out
        else "",
        "Rows are for eager inference unless they say otherwise." if any(condition.workload for condition in conditions(study)) else "",
        f"The table of all pairs has {numbers.counted(num_more, 'more condition')}." if num_more else "",
    )
    return " ".join(filter(None, sentences))


def _class_token_note(rankings: Sequence[Ranking]) -> str:
    """Name the lengths at which a model has one token more or less than the others."""
    own = {
        int(found[1]): int(ranking.group["seq_len"])
        for ranking in rankings
        for label in _labels([ranking])
        if (found := OWN_LENGTH.search(label)) and abs(int(found[1]) - ranking.group["seq_len"]) == 1
    }
    texts = [f"{n}/{other}" for n, other in sorted(tuple(sorted(pair)) for pair in own.items())]
    return f"Models without a class token have one token less: n = {join_names(texts)} stand side by side." if texts else ""


def _labels(rankings: Sequence[Ranking]) -> set[str]:
    return {label for ranking in rankings for label in (ranking.best, *(pair.other for pair in ranking.others))}


def _field(ranking: Ranking | None, place: str) -> Field:
    if ranking is None:
        return Field(text="")
    text = field_text(ranking)
    return Field(text=text, detail=f"{place}: {_detail(ranking)}", muted=not text.endswith("×"), cells=ranking.cells)


def field_text(ranking: Ranking) -> str:
    """Name the fastest and its lead, as in `gMLP 1.25×`; else `equal within 3 %` or `not shown`."""
    outcome, *leaders = _outcome(ranking)
    if outcome == EQUAL:
        return f"equal within {100 * ranking.others[0].margin:g} %"
    if outcome == OPEN:
        return "not significant"
    mark = " = " if all(pair.equal for pair in _leading(ranking)) else " or "
    names = _joined([spell_out_model(label) for label in leaders], mark) if len(leaders) <= MAX_LEADERS else f"{len(leaders)} lead"
    return f"{names} {numbers.significant(_behind(ranking)[0].ratio.estimate)}×"


def _joined(names: Sequence[str], mark: str) -> str:
    """Join names, writing a kernel that they share once."""
    kernel = f"{names[0].partition(' ')[0]} "
    shared = kernel if len(names) > 1 and all(name.startswith(kernel) for name in names) else ""
    return shared + mark.join(name.removeprefix(shared) for name in names)


def _outcome(ranking: Ranking) -> tuple[str, ...]:
    """Return the kind of outcome, then the leading series.

    A lead over another kernel of a leading model alone is none over a model.
    """
    leaders = sorted((ranking.best, *(pair.other for pair in _leading(ranking))))
    if _behind(ranking):
        return (WINS, *leaders)
    return (EQUAL,) if all(pair.equal for pair in ranking.level) else (OPEN,)


def _leading(ranking: Ranking) -> tuple[RankedModel, ...]:
    """Return the models level with the fastest that no slower one precedes: a model is not among the fastest because it is noisy."""
    first_behind = min((pair.ratio.estimate for pair in ranking.slower), default=math.inf)
    return tuple(pair for pair in ranking.level if pair.ratio.estimate < first_behind)


def _behind(ranking: Ranking) -> tuple[RankedModel, ...]:
    """Return the slower series of models that do not lead; of one model alone, its slower kernels.

    A model leads by the kernel that it has unless asked otherwise: explicit attention may lead where fused attention is slower.
    """
    leading = {
        _model(label)
        for label in (ranking.best, *(pair.other for pair in ranking.level))
        if role_of(label.partition(" (n = ")[0]) != EXPLICIT
    }
    return tuple(pair for pair in ranking.slower if _model(pair.other) not in leading) or (() if ranking.level else ranking.slower)


def _model(label: str) -> str:
    return label.partition(" (")[0]


def _detail(ranking: Ranking) -> str:
    times = [f"{spell_out_model(pair.other)} takes {ratio_text(pair)}" for pair in ranking.others]
    return f"{join_names(times)} times as long as {spell_out_model(ranking.best)}"


def sentences(study: Study) -> list[str]:
    """Return a sentence for each of the first two conditions, of different policies where there are several."""
    found = conditions(study)
    first_of_each = {condition.match: condition for condition in reversed(found)}
    chosen = [condition for condition in found if first_of_each[condition.match] is condition] if len(first_of_each) > 1 else found
    unit = LENGTH if axis_of(study) == "n" else "a budget of "
    return [_sentence(condition, _facts(condition, found), unit) for condition in chosen[:2]]


def _facts(condition: Condition, others: Sequence[Condition]) -> str:
    """Name the budget and workload of a condition, as far as others of its policy differ in them."""
    rivals = [other for other in others if other.match == condition.match]
    budget = condition.budget.partition(" (")[0] if len({other.budget for other in rivals}) > 1 else ""
    return ", ".join(filter(None, (budget, *(condition.workload if len({other.workload for other in rivals}) > 1 else ()))))


def _sentence(condition: Condition, facts: str, unit: str) -> str:
    """Write `At equal parameters, gMLP is fastest from n = 1025 (1.25×), ViT at 257 (1.05×); undecided at 65`."""
    clauses: dict[tuple[str, ...], list[float]] = {}
    for x, ranking in condition.rankings.items():
        clauses.setdefault(_outcome(ranking), []).append(x)
    # first who wins, then what holds at most places, then at the largest
    shown = sorted(
        (found for found in clauses if found[0] != OPEN), key=lambda found: (found[0] != WINS, -len(clauses[found]), -clauses[found][-1])
    )
    texts = [_clause(found, clauses[found], condition, "" if i else unit) for i, found in enumerate(shown[:MAX_CLAUSES])]
    undecided = f"; undecided at {places_text(clauses[OPEN,], list(condition.rankings))}" if texts and (OPEN,) in clauses else ""
    rest = "; more below" if len(shown) > MAX_CLAUSES else undecided
    if len(texts) > 1 and VERB in texts[0]:
        texts[1] = texts[1].replace(VERB, " ")
    place = f" ({facts})" if facts else ""
    sizes = f"; {condition.unlike}" if condition.unlike else ""
    return f"At {condition.sizes}{place}, {', '.join(texts) or _undecided(condition, unit)}{rest}{sizes}."


def _undecided(condition: Condition, unit: str) -> str:
    """Say that no difference is significant; where rounds are too few for an interval, who leads by the estimates."""
    reasons = {pair.why for ranking in condition.rankings.values() for pair in ranking.others if pair.ratio.is_open}
    if not reasons:
        return "no difference is significant"
    leads: dict[str, list[float]] = {}
    for x, ranking in condition.rankings.items():
        leads.setdefault(spell_out_model(ranking.best), []).append(x)
    grid = list(condition.rankings)
    texts = [f"{name} at {places_text(xs, grid, '' if i else unit)}" for i, (name, xs) in enumerate(leads.items())]
    return f"the fastest by the estimates is {join_names(texts)}, but {min(reasons)} to decide"


def _clause(outcome: tuple[str, ...], xs: Sequence[float], condition: Condition, unit: str) -> str:
    where = f"at {places_text(xs, list(condition.rankings), unit)}"
    rankings = [condition.rankings[x] for x in xs]
    if outcome[0] == EQUAL:
        who = "the fastest" if any(ranking.slower for ranking in rankings) else "all"
        return f"{who} are equal within {100 * rankings[0].others[0].margin:g} % {where}"
    names = [spell_out_model(label) for label in outcome[1:]]
    if len(names) <= MAX_NAMED:
        is_open = [pair.other for ranking in rankings for pair in ranking.level if pair not in _leading(ranking)]
        unsure = f"; {join_names([spell_out_model(label) for label in dict.fromkeys(is_open)])} undecided" if is_open else ""
        return (
            f"{_joined(names, ' or ')}{VERB}{where} ({numbers.span(_behind(ranking)[0].ratio.estimate for ranking in rankings)}×{unsure})"
        )
    # only the fastest is tested against the others, so no lead of the rest over them is claimed
    behind = [[spell_out_model(pair.other) for pair in _behind(ranking)] for ranking in rankings]
    everywhere = [name for name in behind[0] if all(name in others for others in behind)][:MAX_NAMED]
    if not everywhere:
        return f"the fastest is one of {len(names)} {where}"
    return f"{join_names(everywhere)} {'is' if len(everywhere) == 1 else 'are'} slower than the fastest {where}"


def places_text(xs: Sequence[float], grid: Sequence[float], unit: str = "") -> str:
    """Write values of a grid: `n = 17 and 65`, `n = 65 to 513` for neighbours, or `4 of 9 lengths`."""
    places = [grid.index(x) for x in sorted(xs)]
    if len(xs) <= MAX_PLACES:
        return unit + join_names([_place(grid[place]) for place in places])
    if places[-1] - places[0] < len(places):
        return f"{unit}{_place(grid[places[0]])} to {_place(grid[places[-1]])}"
    noun = " lengths" if unit == LENGTH else " budgets" if unit else ""
    return f"{len(xs)} of {len(grid)}{noun}"


def _place(x: float) -> str:
    return f"{x:.0f}" if x < SHORT else numbers.count(x)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def pair_blocks(study: Study) -> tuple[Block, ...]:
    """Return every model against the fastest of its condition."""
    if not any(ranking.others for ranking in study.winners):
        return ()
    keys = (*varying(study.frame), "size")
    return (TableBlock(table=pair_table(study.winners, keys), caption=_pair_caption(study)),)


def pair_table(rankings: Sequence[Ranking], keys: Sequence[str]) -> Table:
    work = [key for key in keys if key in WORK_KEYS]
    found = [ranking for ranking in rankings if ranking.others]
    rows = tuple((*_group_texts(ranking, work), ranking.best, *_pair_texts(pair)) for ranking in found for pair in ranking.others)
    headers = ("size", "n", *(key.replace("_", " ") for key in work), "fastest", "compared with", "ratio", "verdict")
    numeric = (False, True, *(False for _ in work), False, False, True, False)
    return Table(headers=headers, numeric=numeric, rows=rows)


def _group_texts(ranking: Ranking, work: Sequence[str]) -> tuple[str, ...]:
    group = ranking.group
    return (spell_out_policy(str(group["size"])), numbers.whole(group["seq_len"]), *(work_text(key, group[key]) for key in work))


def _pair_texts(pair: RankedModel) -> tuple[str, str, str]:
    equal = f"equal within {numbers.percent(pair.margin)}"
    if pair.differs:
        verdict = f"{pair.other} is {'slower' if pair.ratio.estimate > 1 else 'faster'}{f', {equal}' if pair.equal else ''}"
    elif pair.equal:
        verdict = equal
    else:
        rounds = "" if pair.rounds_needed is None else f" (about {pair.rounds_needed} rounds would decide)"
        verdict = f"no significant difference: {pair.why}{rounds}"
    return pair.other, ratio_text(pair), verdict


def ratio_text(pair: RankedModel) -> str:
    return numbers.ratio_interval(pair.ratio) if pair.is_paired else numbers.ratio(pair.ratio.estimate)


def _pair_caption(study: Study) -> str:
    conditions = constant_work(study.frame)
    lead = "Latency of each model over that of the fastest."
    bound = 1 + study.plan.settings.margin
    how = (
        f"Each ratio is a Hodges-Lehmann estimate over rounds with its signed-rank interval, 95 % together for the models of one length; "
        f"paired by round. Slower if the interval excludes 1; equal if it lies within 1 / {bound:g} to {bound:g}. "
        "Rounds that are too few for an interval have their range in parentheses. A ratio without either divides two medians, since no round has "
        "both, and decides nothing."
    )
    return f"{lead} {how} Conditions: {conditions}."
