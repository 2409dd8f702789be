"""Which matrices and pictures of trained models a report draws.

A run records those of the first seed of each training. Once it is complete, it keeps the drawn ones: the others were more than half of all stored
records. Shift invariances, which the report's table holds, are kept of all.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from bench.reading.table import trainings_of
from bench.spec import Plan, PlannedCell, Record
from bench.training.pictures import PICTURE, Picture, decode_picture
from bench.training.weight_maps import ALIGNMENT, PARTS, Mixing, decode_mixing

Found = TypeVar("Found")
MAX_MIXINGS = 2
"""Number of mixers with heatmaps in a report, besides the first position vectors and alignments."""


@dataclass(frozen=True, kw_only=True)
class TrainedMixing:
    """How a trained model mixes tokens in one way. `training`: the id of its training."""

    planned: PlannedCell
    training: str
    mixing: Mixing


def trainings_in_order(records: Iterable[Record], plan: Plan) -> Iterator[tuple[PlannedCell, list[Record]]]:
    """Yield cell and records by seed of each training, in plan order; cells may share one, which counts once."""
    trainings, seen = trainings_of(plan, records), set[str]()
    for planned in plan.cells:
        trained = trainings[planned.cell.cell_id]
        if trained and trained[0].subject_id not in seen:
            seen.add(trained[0].subject_id)
            yield planned, trained


def trained_models(
    records: Iterable[Record], plan: Plan, decode: Callable[[Record], Found | None]
) -> Iterator[tuple[PlannedCell, str, Found]]:
    """Yield cell, id and decoded record per training, in plan order.

    `decode`: returns None for a record without data; the first record with data counts.
    """
    for planned, trained in trainings_in_order(records, plan):
        if found := next(filter(None, map(decode, trained)), None):
            yield planned, trained[0].subject_id, found


def mixings_of(records: Iterable[Record], plan: Plan) -> list[TrainedMixing]:
    """Return all mixings of all trained models, in plan order."""
    return [
        TrainedMixing(planned=planned, training=training, mixing=mixing)
        for planned, training, mixings in trained_models(records, plan, decode_mixing)
        for mixing in mixings
    ]


def drawn_mixings(found: Iterable[TrainedMixing]) -> list[TrainedMixing]:
    """Return `MAX_MIXINGS` of those with matrices, and the first alignment, mixer of sorted tokens, learned and fixed positions with vectors.

    Mixers come before positions, and the first of each kind before a second one of any: beside ViT's attention stands gMLP's gating. Of what it
    returns, it returns all.
    """
    counts, ranks = Counter[str](), list[tuple[bool, int, int]]()
    with_maps = [one for one in found if one.mixing.maps]
    for place, one in enumerate(with_maps):
        ranks.append((not one.mixing.is_mixer, counts[one.mixing.kind], place))
        counts[one.mixing.kind] += 1
    chosen = {place for *_, place in sorted(ranks)[:MAX_MIXINGS]}
    seen = {(with_maps[place].mixing.kind, with_maps[place].mixing.is_fixed) for place in chosen}
    for place, one in enumerate(with_maps):
        kind = one.mixing.kind, one.mixing.is_fixed
        if kind not in seen and (one.mixing.kind == ALIGNMENT or one.mixing.order or one.mixing.vectors):
            seen.add(kind)
            chosen.add(place)
    return [with_maps[place] for place in sorted(chosen)]


def pictures_of(records: Iterable[Record], plan: Plan) -> dict[tuple[str, int], tuple[str, Picture]]:
    """Return the first test image of each task and length, and the id of the training that holds it; all trainings of both see the same."""
    found: dict[tuple[str, int], tuple[str, Picture]] = {}
    for planned, training, picture in trained_models(records, plan, decode_picture):
        found.setdefault((planned.cell.workload.task, planned.cell.model.shape.seq_len), (training, picture))
    return found


def without_undrawn(records: Sequence[Record], plan: Plan) -> list[Record]:
    """Return the records with the drawn matrices and pictures alone; a report of them is the same."""
    kept = {(one.training, one.mixing.kind) for one in drawn_mixings(mixings_of(records, plan))}
    pictured = {training for training, _ in pictures_of(records, plan).values()}

    result = []
    for record in records:
        kinds = (record.outcome.values.get("mixing") or {}).get("kinds", ())
        undrawn = {f"{kind}_{part}" for kind in kinds if (record.subject_id, kind) not in kept for part in PARTS}
        if record.subject_id not in pictured:
            undrawn.add(PICTURE)
        if undrawn & record.outcome.samples.keys():
            samples = {name: series for name, series in record.outcome.samples.items() if name not in undrawn}
            record = dataclasses.replace(record, outcome=dataclasses.replace(record.outcome, samples=samples))
        result.append(record)
    return result
