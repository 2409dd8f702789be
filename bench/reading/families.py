"""Which ratios of times are decided together: a family has one level, wherever its ratios are printed."""

from __future__ import annotations

from collections import defaultdict

from bench.spec import Cell, Part, Plan
from bench.timing_groups import num_contrasts


def family_sizes(plan: Plan) -> dict[str, int]:
    """Return how many ratios of times are decided together with each cell's, by cell id.

    They are those of `bench.timing_groups.num_contrasts`; where a question's predictions compare variants other than with the baseline, these
    pairs are of the family too.
    """
    found = num_contrasts(plan)
    for part in plan.parts:
        if part.arms and part.baseline:
            found |= {cell_id: found[cell_id] + more for cell_id, more in _predicted(part, plan).items() if cell_id in found}
    return found


def _predicted(part: Part, plan: Plan) -> dict[str, int]:
    """Return the number of predicted pairs without the baseline at each of a part's places, by cell id."""
    devices = {"", *(planned.cell.workload.device for planned in plan.cells)}
    asked = {
        (p.arm, p.against) for p in (plan.question.predictions if plan.question else ()) if p.part == part.name and p.device in devices
    }
    pairs = {pair for pair in asked if pair[1] not in ("", part.baseline)}
    cells = {planned.cell.cell_id: planned.cell for planned in plan.cells}
    arms: dict[tuple[object, ...], dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for arm in part.arms:
        for cell_id in arm.cells:
            arms[_place(cells[cell_id])][arm.name].append(cell_id)
    return {
        cell_id: sum(first in place and second in place for first, second in pairs)
        for place in arms.values()
        for members in place.values()
        for cell_id in members
    }


def _place(cell: Cell) -> tuple[object, ...]:
    work = cell.workload
    return (cell.model.shape.seq_len, work.phase, work.dtype, work.device, work.batch_size, work.task)
