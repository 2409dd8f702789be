"""Judge the project's speed targets against peers (`ablations/peers.py`).

There are three kinds: a bound on the latency ratio in every cell, a bound on the geometric mean, and a bound on the output error.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from bench import catalog
from bench.analysis.claims import REFUTED, UNDECIDED, Estimate, Verdict, answer_to_all
from bench.analysis.peers import OURS, Contender, PeerComparison, PeerPlace
from bench.analysis.predictions import answer_to, unanswered
from bench.intervals import Interval
from bench.measure.engines import EAGER
from bench.spec import FASTEST_PEER, Part, Prediction

PlaceAnswers = tuple[Mapping[PeerPlace | None, str], list[Estimate], list[str]]
"""Answers by place (None: all places together), figures, and gaps in words.

A target with a gap is never supported.
"""


def with_targets(predictions: Sequence[Prediction], parts: Sequence[Part]) -> tuple[Prediction, ...]:
    """Add today's targets to the predictions of an older stored plan."""
    if any(prediction.is_target for prediction in predictions):
        return tuple(predictions)
    names = {part.name for part in parts}
    today: Sequence[Prediction] = catalog.load("ablations", "peers").ABLATION.predictions
    return (*(prediction for prediction in today if prediction.is_target and prediction.part in names), *predictions)


def absent_arms(name: str, predictions: Sequence[Prediction], parts: Sequence[Part]) -> tuple[str, ...]:
    """Return the arms that predictions name and the plan's part lacks.

    An arm is absent, for example, when its library is not installed.
    """
    planned = {arm.name for part in parts if part.name == name for arm in part.arms}
    named = [side for p in predictions if p.part == name and not p.is_target for side in (p.arm, p.against)]
    return tuple(dict.fromkeys(side for side in named if side and side not in planned))


def judge_target(prediction: Prediction, comparison: PeerComparison, absent: Sequence[str] = ()) -> Verdict:
    """Judge one target.

    If the run's grid is not the target's, the places that they share may refute the target; nothing supports it. `absent`: see `absent_arms`.
    """
    places = [place for place in comparison.places if place.part == prediction.part]
    if not places:
        return unanswered(prediction, "not in this run")
    judge = _output_errors if prediction.against != FASTEST_PEER else (_mean if prediction.mean else _every_cell)
    answers, estimates, lost = judge(prediction, comparison, places, absent)
    sizes = sorted({(place.seq_len, place.batch_size) for place in places})
    if prediction.places and set(sizes) != set(prediction.places):
        lost.append(f"measured at {_grid_text(sizes)}; the target is for {_grid_text(prediction.places)}")
        counted = [answer for place, answer in answers.items() if place and (place.seq_len, place.batch_size) in prediction.places]
    else:
        counted = list(answers.values())
    named = {answer: [place for place, found in answers.items() if place and found == answer] for answer in (REFUTED, UNDECIDED)}
    where = [f"{answer} at {places_text(there)}" for answer, there in named.items() if there]
    return dataclasses.replace(
        unanswered(prediction, "; ".join([*where, *lost])),
        answer=answer_to_all(counted, complete=not lost),
        estimates=tuple(estimates),
        cells=tuple(dict.fromkeys(contender.cell_id for place in places for contender in comparison.contenders[place])),
    )


def _every_cell(prediction: Prediction, comparison: PeerComparison, places: Sequence[PeerPlace], absent: Sequence[str]) -> PlaceAnswers:
    pairs = [pair for pair in comparison.fastest if pair.place in places]
    answers: dict[PeerPlace | None, str] = {p.place: answer_to(prediction, p.joint) if p.joint else UNDECIDED for p in pairs}
    estimates = [Estimate(name=places_text([pair.place]), value=pair.joint, unit="ratio") for pair in pairs if pair.joint]
    return answers, estimates, [*_uncompared(len(pairs), len(places)), *_lost_peers(comparison, places, absent)]


def _mean(prediction: Prediction, comparison: PeerComparison, places: Sequence[PeerPlace], absent: Sequence[str]) -> PlaceAnswers:
    """Judge the geometric mean over all cells.

    A mean over some cells decides nothing, because the missing cells may be the bad ones. Without a peer the mean can only be lower, so it may still
    refute.
    """
    mean = next(mean for mean in comparison.means if (mean.part, mean.peer) == (prediction.part, FASTEST_PEER))
    lost = [*_uncompared(mean.num_places, len(places)), *_lost_peers(comparison, places, absent)]
    if mean.ratio is None:
        return {}, [], [*lost, "fewer than two rounds include every configuration"]
    answers: dict[PeerPlace | None, str] = {None: answer_to(prediction, mean.ratio)} if mean.num_places == len(places) else {}
    return answers, [Estimate(name="", value=mean.ratio, unit="ratio")], lost


def _output_errors(prediction: Prediction, comparison: PeerComparison, places: Sequence[PeerPlace], absent: Sequence[str]) -> PlaceAnswers:
    """Judge the output errors of all cells except the reference.

    Cells that were excluded because their answers differ are judged too.
    """
    checked = [(place, contender) for place in places for contender in comparison.contenders[place]]
    checked += [(lost.place, lost.contender) for lost in comparison.excluded if lost.place in places]
    errors = [(place, contender.output_error) for place, contender in checked if not contender.is_reference]
    known = [(place, Interval(estimate=error, low=error, high=error, num=1)) for place, error in errors if error is not None]
    worst = {place: max((found for at, found in known if at == place), key=lambda found: found.high) for place, _ in known}
    lost = [f"unknown for {len(errors) - len(known)} of {len(errors)} configurations"] if len(known) < len(errors) else []
    largest = max((found for _, found in known), key=lambda found: found.high, default=None)
    return (
        {place: answer_to(prediction, found) for place, found in worst.items()},
        [Estimate(name=f"largest of {len(known)} configurations", value=largest, unit="error")] if largest else [],
        [*lost, *(f"{arm} is not in this run" for arm in absent)],
    )


def _uncompared(num: int, num_planned: int) -> list[str]:
    return [f"{num_planned - num} of {num_planned} configurations are not compared"] if num < num_planned else []


def _lost_peers(comparison: PeerComparison, places: Sequence[PeerPlace], absent: Sequence[str]) -> list[str]:
    """Say at which places each peer is missing.

    Example: `timm is not compared at n = 17, batch 1`. A missing peer may be the fastest there. A part's peers are those of any of its places.
    """
    compared = {place: _shipped(comparison.contenders[place]) for place in places}
    excluded = [_shipped([lost.contender]) for lost in comparison.excluded if lost.place in places]
    sides = dict.fromkeys(side for found in (*compared.values(), *excluded, absent) for side in found)
    missing = {side: [place for place in places if side not in compared[place]] for side in sides}
    return [f"{side} is not compared at {places_text(where)}" for side, where in missing.items() if where]


def _shipped(contenders: Iterable[Contender]) -> list[str]:
    """Return the peers among the contenders, as shipped."""
    return [contender.side for contender in contenders if contender.side != OURS and contender.engine == EAGER]


def places_text(places: Iterable[PeerPlace]) -> str:
    """Describe places by length and batch.

    Example: `n = 17, batch 1; n = 65, batch 1 and 32`.
    """
    return _grid_text([(place.seq_len, place.batch_size) for place in places])


def _grid_text(sizes: Iterable[tuple[int, int]]) -> str:
    by_length: dict[int, list[str]] = {}
    for n, batch in sizes:
        by_length.setdefault(n, []).append(str(batch))
    return "; ".join(f"n = {n}, batch {' and '.join(dict.fromkeys(batches))}" for n, batches in by_length.items())
