"""Answer a run's question in at most three short sentences.

`bench.analysis` decides what is shown; this module claims no other difference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import pandas

from bench import numbers
from bench.analysis.accuracy import GROUP, Comparison
from bench.analysis.crossings import Crossovers, gating_pairs
from bench.analysis.effects import QUALITIES
from bench.analysis.frame import FUSED, incomplete, work_text
from bench.analysis.front import accuracies_of
from bench.analysis.growth import PEAK, FlopsGrowth, gate_and_attention
from bench.analysis.peers import FASTEST_PEER, PeerComparison
from bench.analysis.sizes import unlike_planned, unlike_sizes
from bench.analysis.study import Study
from bench.analysis.verdicts import ANSWERS, UNDECIDED, Verdict
from bench.reading.table import row_values
from bench.report.sections import winners
from bench.report.sections.findings import finding_sentences
from bench.report.sections.wording import SIZES, configurations_text, effects_title, join_names, size_note, spell_out_model
from bench.spec import NO_MATCH, Plan

MAX_SENTENCES = 3
MAX_EFFECTS, MAX_NAMED = 3, 2
MAX_PAIRS = 3
MAX_GROWTHS = 3
MAX_MODELS = 6
NOTHING = "This run measured nothing that can be compared."
EQUAL_SIZE = "equal size"
ORDINARY = ("At", "Fastest", "In", "Neither", "No", "None", "Not", "Of", "Ours", "The")
"""Words with which a sentence may begin that are not names."""


def question_of(plan: Plan) -> str:
    """Return the plan's question, or make one from what it compares."""
    if plan.question:
        return plan.question.text.replace("n^2", "n²")
    models = list(dict.fromkeys(spell_out_model(planned.cell.model.name) for planned in plan.cells))
    if not models:
        return plan.name
    named = [*models[:MAX_MODELS], *([f"{len(models) - MAX_MODELS} more"] if len(models) > MAX_MODELS else [])]
    best = [word for metric, word in (("latency", "fastest"), ("accuracy", "most accurate")) if metric in plan.metrics]
    if len(models) == 1 and best == ["most accurate"]:
        return f"How accurate is {named[0]}?"
    if len(models) == 1 or not best:
        several = len({planned.cell.model.shape.seq_len for planned in plan.cells}) > 1
        subject = "memory" if set(plan.metrics) == {"params", "memory"} else "cost"
        return (
            f"How does the {subject} of {join_names(named)} grow with n?" if several else f"What is the {subject} of {join_names(named)}?"
        )
    policies = sorted({planned.sizing.match for planned in plan.cells})
    if unlike_planned(plan):
        equal = f" at {winners.UNLIKE}"
    else:
        equal = "" if NO_MATCH in policies else f" at {SIZES[policies[0]] if len(policies) == 1 else EQUAL_SIZE}"
    return f"Which is {join_names(best)}{equal}: {join_names(named, 'or')}?"


def answer_sentences(study: Study) -> tuple[str, ...]:
    """Return the answer: at most three sentences."""
    if study.peers:
        found = [*_peer_means(study.peers), *_predictions(study)]
    elif study.prediction_verdicts:
        findings = list(finding_sentences(study))
        found = [*findings, *(() if findings else _shown_effects(study)), *_predictions(study)]
    else:
        times = winners.sentences(study)
        accuracy = list(_accuracy(study))
        room = 1 if study.plan.question else MAX_SENTENCES - len(times) - len(accuracy)
        found = [*times, *(() if times else (*_failures(study), *_crossings(study))), *_growth(study.flops_growth, room), *accuracy]
    if study.plan.settings.quick and found:
        found[0] = _as_first_look(found[0])
    found[:1] = [f"{study.so_far}{first}" for first in found[:1]]
    return tuple(found[:MAX_SENTENCES]) or (NOTHING,)


def _as_first_look(sentence: str) -> str:
    """Say first that a quick run decides nothing. The sentence's first word loses its capital unless it is a name."""
    is_ordinary = sentence.partition(" ")[0] in ORDINARY
    return f"A first look: {sentence[:1].lower() if is_ordinary else sentence[:1]}{sentence[1:]}"


def _counts(verdicts: Sequence[Verdict]) -> str:
    """Write `12 are supported, 1 is refuted and 5 are undecided`."""
    found = Counter(verdict.answer for verdict in verdicts)
    return join_names([f"{found[answer]} {'is' if found[answer] == 1 else 'are'} {answer}" for answer in ANSWERS if found[answer]])


def _growth(found: Sequence[FlopsGrowth], room: int) -> list[str]:
    """Say how FLOPs grew, if there is room for two sentences, and which share of them is n^2."""
    known = [growth for growth in found if growth.share is not None]
    alike = [growth for growth in known if (growth.shortest, growth.longest) == (known[0].shortest, known[0].longest)]
    if not alike or room < 1:
        return []
    counted = [growth for growth in found if growth.share is None]
    unknown = f"; of {_few(counted)} it is unknown, as FLOPs were counted and have no closed form" if counted else ""
    return [*([_grew(alike)] if room > 1 else []), f"{_shares(alike)}{unknown}."]


def _grew(found: Sequence[FlopsGrowth]) -> str:
    """Write `From n = 17 to 257 (15×), FLOPs per sample grow 15.3× in gMLP (width 44 to 34) and 19.2× in ViT.`

    A width that falls, to keep a budget, is named: it hides growth.
    """
    texts = [
        f"{numbers.significant(growth.times)}× in {spell_out_model(growth.model)}{f' (width {start} to {end})' if end < start else ''}"
        for growth in gate_and_attention(found) or found[:2]
        for start, end in [growth.widths]
    ]
    shortest, longest = found[0].shortest, found[0].longest
    factor = numbers.significant(longest / shortest, 2)
    return f"From n = {shortest} to {longest} ({factor}×), FLOPs per sample grow {join_names(texts)}."


def _shares(found: Sequence[FlopsGrowth]) -> str:
    """Say how much of the FLOPs is n^2, and where it is.

    `At n = 257 n² is 44 % of gMLP's FLOPs (n² weights) and 28 % of ViT's (n² scores per sample, which fused attention never stores)`
    """
    quadratic, others = [growth for growth in found if growth.share], [growth for growth in found if not growth.share]
    longest = found[0].longest
    if not quadratic:
        return f"At n = {longest} no FLOPs grow as n²: {_few(others)} {'is' if len(others) == 1 else 'are'} linear in n"
    homes: dict[tuple[bool, bool, bool], list[FlopsGrowth]] = {}
    for growth in quadratic:
        homes.setdefault((growth.has_weights, growth.has_scores, bool(growth.attention)), []).append(growth)
    texts = [
        f"{_percents([growth.share or 0.0 for growth in members])} of {_few(members, possessive=True)}{'' if i else ' FLOPs'} "
        f"({_home(*home)}{_stored(quadratic) if home[2] else ''})"
        for i, (home, members) in enumerate(homes.items())
    ]
    rest = f"; {_few(others)} {'has' if len(others) == 1 else 'have'} no n² term" if others else ""
    return f"At n = {longest} n² is {join_names(texts)}{rest}"


def _home(has_weights: bool, has_scores: bool, has_attention: bool) -> str:
    """Name what is n^2 in size: weights, or numbers of every sample."""
    what = [
        *(["n² weights"] if has_weights else []),
        *([f"n² {'scores' if has_attention else 'numbers'} per sample"] if has_scores else []),
    ]
    return join_names(what) or "n² FLOPs"


def _stored(found: Sequence[FlopsGrowth]) -> str:
    """Say which kernels that ran store the n^2 scores."""
    kernels = {kernel for growth in found for kernel in growth.attention}
    if not kernels or not kernels & set(FUSED):
        return ""
    return ", which fused attention never stores" if kernels <= set(FUSED) else ", which only explicit attention stores"


def _few(found: Sequence[FlopsGrowth], *, possessive: bool = False) -> str:
    ending = "'s" if possessive else ""
    names = [spell_out_model(growth.model) + ending for growth in found]
    return join_names(names if len(names) <= MAX_GROWTHS else [*names[:MAX_NAMED], f"{len(names) - MAX_NAMED} more"])


def _percents(shares: Sequence[float]) -> str:
    texts = list(dict.fromkeys(numbers.percent(share) for share in (min(shares), max(shares))))
    return " to ".join([*(text.removesuffix(" %") for text in texts[:-1]), texts[-1]])


def _accuracy(study: Study) -> Iterator[str]:
    """Name the model of highest mean accuracy, and whether a test shows its lead."""
    rows, comparisons = accuracies_of(study)
    groups = [members for _, members in rows.groupby(list(GROUP), sort=False, dropna=False) if len(members) > 1]
    if not groups:
        for quality, title in ALONE.items():
            trained = study.cells[study.cells[quality].notna()]
            yield from _alone(trained.drop_duplicates(["model", "task", "seq_len", "budget", "recipe"]), quality, title)
        return
    best = [members.sort_values(["accuracy", "model"], ascending=[False, True]) for members in groups]
    highest = [[str(name) for name in members.loc[members["accuracy"] == members["accuracy"].iloc[0], "model"]] for members in best]
    leads = [_lead(str(members["cell_id"].iloc[0]), members, comparisons) for members in best]
    tasks = join_names(list(dict.fromkeys(task.partition("+")[0] for task in rows["task"])))
    unlike = size_note(unlike_sizes(row_values(rows)))
    sizes = f"; {unlike}" if unlike else ""
    if len(best) == 1:
        first, second = (best[0].iloc[i] for i in (0, 1))
        if len(highest[0]) > 1:
            shared = numbers.fraction(first["accuracy"])
            yield f"{join_names(list(map(spell_out_model, highest[0])))} have the same, highest mean accuracy on {tasks} ({shared}){sizes}."
            return
        means = f"{spell_out_model(first['model'])} has the highest mean accuracy on {tasks} ({numbers.fraction(first['accuracy'])})"
        next_best = f"{spell_out_model(second['model'])} follows ({numbers.fraction(second['accuracy'])})"
        yield f"{means}, {next_best}; {leads[0] if leads[0] not in DECIDED else f'the difference is {leads[0]}'}{sizes}."
        return
    (model, num), *others = Counter(name for names in highest for name in names).most_common()
    shown_of = Counter(str(members["model"].iloc[0]) for lead, members in zip(leads, best, strict=True) if lead == SIGNIFICANT)
    if tied := [other for other, times in others if times == num]:
        counts = [f"{spell_out_model(name)} in {num} ({shown_of[name]} significant)" for name in (model, *tied)]
        yield f"Of {len(best)} comparisons of mean accuracy on {tasks}, {join_names(counts)} is highest{sizes}."
        return
    shown = shown_of[model]
    shares = sum(model in names and len(names) > 1 for names in highest)
    where = f"in {num} of {len(best)} comparisons{f' ({shares} shared)' if shares else ''}"
    tested = f"its lead over all others is significant in {'each' if shown == num else shown or 'none'}"
    if not set(leads) & set(DECIDED):
        tested = join_names(list(dict.fromkeys(leads)))
    yield f"{spell_out_model(model)} has the highest mean accuracy on {tasks} {where}; {tested}{sizes}."


ALONE = {"accuracy": "Accuracy", "score": "R²"}
"""Qualities of models without a rival."""


def _alone(rows: pandas.DataFrame, quality: str, title: str) -> Iterator[str]:
    """Say how good models are that were trained without a rival."""
    texts = [
        f"{numbers.fraction(row[quality], row[f'{quality}_low'], row[f'{quality}_high'])} for {spell_out_model(row['model'])} "
        f"on {str(row['task']).partition('+')[0]} at n = {row['seq_len']:.0f}"
        for row in row_values(rows)
    ]
    if texts:
        more = f" and {len(texts) - MAX_EFFECTS} more" if len(texts) > MAX_EFFECTS else ""
        yield f"{title} on test data: {join_names(texts[:MAX_EFFECTS]) if not more else ', '.join(texts[:MAX_EFFECTS])}{more}."


DECIDED = SIGNIFICANT, NOT_SIGNIFICANT = "significant", "not significant"
UNTESTED = "undecided (not tested between models of unlike size)"


def _lead(first: str, members: pandas.DataFrame, comparisons: Sequence[Comparison]) -> str:
    """Say whether the first cell is significantly above every other of its group, or why that is undecided."""
    beaten = {comparison.second_id for comparison in comparisons if comparison.first_id == first and comparison.significant}
    if set(members["cell_id"]) - {first} <= beaten:
        return SIGNIFICANT
    pairs = [{comparison.first_id, comparison.second_id} for comparison in comparisons]
    if any({first, other} not in pairs for other in set(members["cell_id"]) - {first}):
        return UNTESTED
    caveats = [
        comparison.caveat for comparison in comparisons if first in (comparison.first_id, comparison.second_id) and comparison.caveat
    ]
    return f"undecided ({caveats[0]})" if caveats else NOT_SIGNIFICANT


def _crossings(study: Study) -> Iterator[str]:
    """Say up to which n gMLP is cheaper than attention of about its size, by memory, else by FLOPs."""
    memory = [_up_to(pair.first, pair.second, pair.found) for pair in study.measured_crossovers if pair.measure is PEAK]
    flops = [_up_to(pair.first.model, pair.second.model, pair.flops["whole model"]) for pair in gating_pairs(study.closed_crossovers)]
    amount, found = ("less memory", memory) if any(memory) else ("fewer FLOPs", flops)
    if known := list(dict.fromkeys(filter(None, found)))[:MAX_PAIRS]:
        (cheaper, other, n), *more = known
        texts = [f"{cheaper} needs {amount} than {other} up to n = {n}", *(f"{one} than {two} up to {at}" for one, two, at in more)]
        yield f"{', '.join(texts)}."


def _up_to(first: str, second: str, found: Crossovers) -> tuple[str, str, str] | None:
    """Return the cheaper model, the other, and the n up to which; None without a single crossing."""
    if len(found.crossings) != 1:
        return None
    (crossing,) = found.crossings
    one, other = spell_out_model(first), spell_out_model(second)
    pair = (one, other) if spell_out_model(crossing.before) == one else (other, one)
    return (*pair, f"{crossing.n:.0f}")


def _peer_means(comparison: PeerComparison) -> Iterator[str]:
    """State how often ours is faster than the fastest peer, then the range of geometric means."""
    by_phase: dict[str, list[float]] = {}
    for mean in comparison.means:
        _, *dtype = mean.part.split(", ")[:-1]
        if mean.peer == FASTEST_PEER and mean.ratio:
            by_phase.setdefault(" ".join([*dtype, work_text("phase", mean.phase)]), []).append(mean.ratio.estimate)
    means = [f"{numbers.span(found)} in {phase}" for phase, found in by_phase.items()]
    yield f"Ours is significantly faster in {configurations_text(comparison.shown_faster)}."
    if means:
        yield f"Of the fastest peer's time, ours takes on average {join_names(means)}."


def _shown_effects(study: Study) -> Iterator[str]:
    """Say which effects are shown: on the first quality that was measured, and on time where times can be trusted."""
    against = {part.name: part.baseline for part in study.plan.parts}
    found = [effect for effect in study.effects if effect.contrast.against == against[effect.contrast.part]]
    quality = next((name for name in QUALITIES if any(effect.measure.name == name for effect in found)), "")
    for name in filter(None, (quality, "" if study.caveat else "latency_ms")):
        if effects := [effect for effect in found if effect.measure.name == name]:
            yield f"{effects_title(effects)}."


def _predictions(study: Study) -> Iterator[str]:
    """Count the answers to predictions, then say what stays open and why."""
    if not study.prediction_verdicts:
        return
    yield f"Of {numbers.counted(len(study.prediction_verdicts), 'prediction')} {_counts(study.prediction_verdicts)}."
    if undecided := [verdict for verdict in study.prediction_verdicts if verdict.answer == UNDECIDED]:
        (reason, num), *_ = Counter(_reason(verdict) for verdict in undecided).most_common()
        which = f"{undecided[0].about}, {undecided[0].claim.statement}: " if len(undecided) == 1 else ""
        yield f"{'Open' if num == len(undecided) else f'Open, {num} of {len(undecided)}'}: {which}{reason}."


def _reason(verdict: Verdict) -> str:
    if verdict.reason:
        return verdict.reason.partition("; ")[0].partition(". ")[0].removesuffix(".")
    return f"the interval reaches across the predicted bound; more {'rounds' if verdict.claim.timed else 'seeds'} would narrow it"


def _failures(study: Study) -> Iterator[str]:
    statuses = incomplete(study.frame)["status"].value_counts()
    named = ", ".join(f"{num} {status}" for status, num in sorted(statuses.items()))
    if named:
        yield f"Not measured: {statuses.sum()} of {len(study.frame)} configurations ({named})."
