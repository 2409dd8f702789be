"""The bounds that were set for ours beside the peers, and whether a run meets them. A bound is judged by the whole interval, never by its middle."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from bench.analysis.claims import UNDECIDED
from bench.analysis.peers import FASTEST, OURS, Contender, Mean, Pair, Place, Standing
from bench.intervals import Interval
from bench.measure.engines import EAGER
from bench.spec import Part, Prediction

MET, MISSED = "met", "missed"
CELL_BOUND = 1.0
"""Of ours over the fastest peer's time, in every cell."""
MEAN_BOUNDS = {"infer": 0.6, "train": 0.8}
"""Of the geometric mean of these ratios over all cells of a part, by phase."""
ERROR_BOUND = 1e-5
"""Of the largest difference of outputs, relative to the largest output."""
BOUND_DEVICE, BOUND_DTYPE = "cpu", "fp32"
"""What the bounds were set for: elsewhere ratios are shown and nothing is judged."""
BOUND_GRID = tuple((n, batch) for n in (17, 65, 197, 257, 1025) for batch in (1, 32))
"""Lengths and batch sizes of the places that the bounds were set for, those of ablations/peers.py: a run of other places decides none."""
Lost = Mapping[Place, tuple[str, ...]]
"""By place, the peers as shipped that were to be compared there and are not."""


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """One bound on one part. `value`: what was compared with it (None: every cell was, or nothing could be); `missed`: the places where it fails."""

    part: str
    bound: str
    answer: str
    reason: str
    value: Interval | None = None
    missed: tuple[Place, ...] = ()


def lacking_arms(parts: Sequence[Part], predictions: Sequence[Prediction]) -> dict[str, tuple[str, ...]]:
    """By part, the arms that a question names in its predictions and that the plan does not have, as where their library is absent."""
    planned = {part.name: {arm.name for arm in part.arms} for part in parts}
    named = [(p.part, arm) for p in predictions if p.part in planned for arm in (p.arm, p.against) if arm and arm not in planned[p.part]]
    return {part: tuple(dict.fromkeys(arm for owner, arm in named if owner == part)) for part, _ in named}


def judge_bounds(standing: Standing, doubt: str = "", lacking: Mapping[str, Sequence[str]] | None = None) -> list[Judgement]:
    """Three per part that the bounds were set for. `doubt`: why nothing timed may be decided. `lacking`: by part, the arms that it was to have."""
    found: list[Judgement] = []
    for part in dict.fromkeys(place.part for place in standing.places if is_bound(place)):
        mean = next(mean for mean in standing.means if mean.part == part and mean.peer == FASTEST)
        fastest = [pair for pair in standing.fastest if pair.place.part == part]
        places = [place for place in standing.places if place.part == part]
        absent = (lacking or {}).get(part, ())
        lost = _lost_peers(places, standing, absent)
        timed = (_every_cell(mean, fastest, lost), _on_average(mean, lost))
        found += [_doubted(_on_grid(judged, places), doubt) for judged in timed]
        found.append(_on_grid(_equal_outputs(part, standing, absent), places))
    return found


def _lost_peers(places: Sequence[Place], standing: Standing, absent: Sequence[str]) -> dict[Place, tuple[str, ...]]:
    """One of them may be the fastest there: what ours meets without it says nothing. Those of a part are all that any of its places has."""
    there = {place: _shipped(standing.contenders[place]) for place in places}
    gone = {place: _shipped([lost.contender for lost in standing.excluded if lost.place == place]) for place in places}
    known = dict.fromkeys(side for found in (*there.values(), *gone.values(), tuple(absent)) for side in found)
    found = {place: tuple(side for side in known if side not in there[place]) for place in places}
    return {place: sides for place, sides in found.items() if sides}


def _shipped(contenders: Sequence[Contender]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(contender.side for contender in contenders if contender.side != OURS and contender.engine == EAGER))


def _lost_text(lost: Lost) -> list[str]:
    """`timm is not compared at n = 17, batch 1`, for each that is lost."""
    sides = dict.fromkeys(side for found in lost.values() for side in found)
    return [f"{side} is not compared at {places_text([place for place, found in lost.items() if side in found])}" for side in sides]


def _on_grid(judged: Judgement, places: Sequence[Place]) -> Judgement:
    """Other places than the bounds were set for decide nothing, but that a place of theirs fails."""
    found = {(place.seq_len, place.batch_size) for place in places}
    if found == set(BOUND_GRID):
        return judged
    fails = any((place.seq_len, place.batch_size) in BOUND_GRID for place in judged.missed)
    answer = MISSED if judged.answer == MISSED and fails else UNDECIDED
    other = f"over {len(found)} places ({_grid_text(sorted(found))}): the bound is for {_grid_text(BOUND_GRID)}"
    return dataclasses.replace(judged, answer=answer, reason="; ".join(filter(None, (judged.reason, other))))


def is_bound(place: Place) -> bool:
    return (place.device, place.dtype) == (BOUND_DEVICE, BOUND_DTYPE) and place.phase in MEAN_BOUNDS


def answer_below(bound: float, ratio: Interval | None) -> str:
    """Met where the whole interval is at or below the bound, missed where it is wholly above."""
    if ratio is None:
        return UNDECIDED
    return MET if ratio.high <= bound else (MISSED if ratio.low > bound else UNDECIDED)


def _every_cell(mean: Mean, fastest: Sequence[Pair], lost: Lost) -> Judgement:
    """A place without one of its peers is missed or open."""
    answers = {pair.place: answer_below(CELL_BOUND, pair.joint) for pair in fastest}
    answers = {place: UNDECIDED if place in lost and answer == MET else answer for place, answer in answers.items()}
    by_answer = {answer: [place for place, found in answers.items() if found == answer] for answer in (MET, MISSED, UNDECIDED)}
    whole = len(by_answer[MET]) == mean.num_planned
    reasons = [f"{len(by_answer[MET])} of {mean.num_planned} cells meet it", *_uncompared(len(fastest), mean.num_planned)]
    if open_places := by_answer[UNDECIDED]:
        reasons.append(f"undecided at {places_text(open_places)}")
    reasons += _lost_text(lost)
    return Judgement(
        part=mean.part,
        bound=f"every cell at most {CELL_BOUND:g} times {FASTEST}",
        answer=MISSED if by_answer[MISSED] else (MET if whole else UNDECIDED),
        reason="; ".join(reasons),
        missed=tuple(by_answer[MISSED]),
    )


def _on_average(mean: Mean, lost_peers: Lost) -> Judgement:
    """A mean over some of the cells may be flattered by those that are lost: it decides nothing. A lost peer can only have raised it."""
    bound = MEAN_BOUNDS[mean.phase]
    lost = _uncompared(mean.num_places, mean.num_planned)
    few = ["fewer than two rounds have all cells"] if mean.ratio is None else []
    answer = answer_below(bound, mean.ratio)
    return Judgement(
        part=mean.part,
        bound=f"geometric mean at most {bound:g} times {FASTEST}",
        answer=UNDECIDED if lost or (lost_peers and answer == MET) else answer,
        reason="; ".join([*lost, *few, *_lost_text(lost_peers)]),
        value=mean.ratio,
    )


def _uncompared(num: int, num_planned: int) -> list[str]:
    return [f"{num_planned - num} of {num_planned} cells are not compared"] if num < num_planned else []


def _equal_outputs(part: str, standing: Standing, absent: Sequence[str]) -> Judgement:
    """Over all cells of the part, also those excluded for it; open where an arm is absent."""
    errors = [(place, contender.output_error) for place, contender in _checked(part, standing)]
    known = [error for _, error in errors if error is not None]
    missed = tuple(dict.fromkeys(place for place, error in errors if error is not None and not error <= ERROR_BOUND))
    unknown = len(errors) - len(known)
    reasons = [f"largest error {max(known):.1e} over {len(known)} cells"] if known else []
    unchecked = [f"not known for {unknown} of {len(errors)} cells"] if unknown else []
    unchecked += [f"{arm} is not in this run" for arm in absent]
    return Judgement(
        part=part,
        bound=f"outputs equal to {ERROR_BOUND:g}",
        answer=MISSED if missed else (UNDECIDED if unknown or absent or not errors else MET),
        reason="; ".join([*reasons, *unchecked]),
        missed=missed,
    )


def _checked(part: str, standing: Standing) -> Iterator[tuple[Place, Contender]]:
    """All but the reference itself."""
    compared = [(place, contender) for place, found in standing.contenders.items() for contender in found]
    for place, contender in (*compared, *((lost.place, lost.contender) for lost in standing.excluded)):
        if place.part == part and not contender.is_reference:
            yield place, contender


def _doubted(judged: Judgement, doubt: str) -> Judgement:
    if not doubt or judged.answer == UNDECIDED:
        return judged
    reason = f"{doubt} Taken by itself: {judged.answer}{f', {judged.reason}' if judged.reason else ''}."
    return dataclasses.replace(judged, answer=UNDECIDED, reason=reason)


def places_text(places: Sequence[Place]) -> str:
    """`n = 17, batch 1; n = 65, batch 1 and 32`."""
    return _grid_text([(place.seq_len, place.batch_size) for place in places])


def _grid_text(sizes: Iterable[tuple[int, int]]) -> str:
    by_length: dict[int, list[str]] = {}
    for n, batch in sizes:
        by_length.setdefault(n, []).append(str(batch))
    return "; ".join(f"n = {n:,}, batch {' and '.join(dict.fromkeys(batches))}" for n, batches in by_length.items())
