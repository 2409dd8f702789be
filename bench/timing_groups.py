"""Who takes turns: the timing groups of a plan.

There are two kinds of group:

- `compare`: configurations of equal length, batch, phase, dtype, device and task that differ in model, kernel or engine.
- `growth`: one model over all its lengths, for exponents.

Imports no torch.
"""

from __future__ import annotations

import dataclasses
import math
import operator
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from bench.pooling import planned_data_tokens
from bench.serialize import content_id
from bench.spec import COMPARE, GROWTH, LATENCY, Cell, Part, Plan, PlannedCell, Workload

MIN_GROWTH = 3
"""Fewest lengths to which an exponent is fitted."""
WORK_WITHOUT_BATCH = operator.attrgetter(*(found.name for found in dataclasses.fields(Workload) if found.name != "batch_size"))


def timed_cells(plan: Plan) -> list[PlannedCell]:
    """Return the cells whose latency is measured."""
    return [planned for planned in plan.cells if LATENCY in plan.metrics_of(planned.cell)]


def cell_groups(cells: Sequence[PlannedCell], plan: Plan) -> list[tuple[str, list[Cell]]]:
    """Return (name, cells) of each group, in the order of the plan.

    A cell without a partner to compare with joins only its growth group.
    """
    compared = _compared([planned.cell for planned in cells], _comparisons(plan))
    growing = list(_growing(cells)) if plan.settings.growth else []
    grown = {cell.cell_id for _, members in growing for cell in members}
    lonely = {name for name, members in compared.items() if len(members) == 1 and members[0].cell_id in grown}
    return [*((name, members) for name, members in compared.items() if name not in lonely), *growing]


def compared_lengths(plan: Plan) -> dict[str, int]:
    """Return the length under which each cell is compared, by cell id.

    It is the length of the first cell of its `compare` group.
    """
    groups = [cells for name, cells in cell_groups(plan.cells, plan) if name.startswith(COMPARE)]
    return {cell.cell_id: cells[0].model.shape.seq_len for cells in groups for cell in cells}


def compared_cells(plan: Plan) -> list[list[Cell]]:
    """Return the cells of each `compare` group, those whose latency is measured."""
    return [cells for name, cells in cell_groups(timed_cells(plan), plan) if name.startswith(COMPARE)]


def num_contrasts(plan: Plan, groups: Sequence[Sequence[Cell]] | None = None) -> dict[str, int]:
    """Return how many ratios of times are decided together with each cell's, by cell id; `groups`: its compared cells, if known.

    They are those of one length, budget, workload and engine: all pairs of the models of a plain run, and of a part with variants each
    variant against its baseline, and the other pairs that the question predicts.
    """
    found: dict[str, int] = {}
    budgets = {planned.cell.cell_id: planned.sizing.budget for planned in plan.cells}
    for cells in compared_cells(plan) if groups is None else groups:
        families: dict[tuple[object, ...], set[str]] = {}
        for cell in cells:
            families.setdefault((budgets[cell.cell_id], cell.workload.engine), set()).add(cell.cell_id)
        for family in families.values():
            found |= dict.fromkeys(family, max(1, math.comb(len(family), 2)))
    for part in plan.parts:
        if part.arms and part.baseline:
            predicted = _predicted(part, plan)
            found |= {cell_id: num + predicted.get(cell_id, 0) for cell_id, num in _against_baseline(part, plan).items()}
    return found


def _against_baseline(part: Part, plan: Plan) -> dict[str, int]:
    """Return the number of variants beside the baseline at each of a part's places, by cell id."""
    places: dict[tuple[object, ...], set[str]] = {}
    cells = {planned.cell.cell_id: planned.cell for planned in plan.cells}
    for cell_id in part.cells:
        places.setdefault((cells[cell_id].model.shape.seq_len, _work(cells[cell_id])), set()).add(cell_id)
    return {cell_id: max(1, len(place) - 1) for place in places.values() for cell_id in place}


def _predicted(part: Part, plan: Plan) -> dict[str, int]:
    """Return the number of predicted pairs without the baseline at each of a part's places, by cell id."""
    devices = {"", *(planned.cell.workload.device for planned in plan.cells)}
    asked = {
        (p.arm, p.against) for p in (plan.question.predictions if plan.question else ()) if p.part == part.name and p.device in devices
    }
    pairs = {frozenset(pair) for pair in asked if pair[1] and part.baseline not in pair}
    cells = {planned.cell.cell_id: planned.cell for planned in plan.cells}
    arms: dict[tuple[object, ...], dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for arm in part.arms:
        for cell_id in arm.cells:
            arms[cells[cell_id].model.shape.seq_len, _work(cells[cell_id])][arm.name].append(cell_id)
    return {
        cell_id: sum(first in place and second in place for first, second in pairs)
        for place in arms.values()
        for members in place.values()
        for cell_id in members
    }


def _comparisons(plan: Plan) -> dict[str, str]:
    """Return the name of the comparison that each cell belongs to, by cell id; empty unless parts are to be apart.

    The arms of a part are compared with each other, not with those of another part, unless the two parts share a cell.
    """
    found: dict[str, str] = {}
    for part in plan.parts if plan.settings.parts_apart else ():
        if part.arms:
            joined = {found[cell_id] for cell_id in part.cells if cell_id in found}
            found = {cell_id: part.name if name in joined else name for cell_id, name in found.items()}
            found |= dict.fromkeys(part.cells, part.name)
    return found


def _compared(cells: Sequence[Cell], comparisons: Mapping[str, str]) -> dict[str, list[Cell]]:
    """Group cells by comparison, workload and length.

    A length with a single family joins another length with the same number of data tokens: a published gMLP of 196 tokens is compared
    with a ViT of 197 tokens, one of them a class token. Lengths with several families are preferred as the group to join.
    """
    groups: dict[str, list[Cell]] = {}
    work_of = {cell.cell_id: "/".join(filter(None, (comparisons.get(cell.cell_id, ""), _work(cell)))) for cell in cells}
    for cell in cells:
        groups.setdefault(f"{COMPARE}/{work_of[cell.cell_id]}/n={cell.model.shape.seq_len}", []).append(cell)
    alone = [name for name, members in groups.items() if len({cell.model.family for cell in members}) == 1]
    joined: dict[str, str] = {}
    first_of: dict[tuple[str, int], str] = {}
    for name in [*(name for name in groups if name not in alone), *alone]:
        places = [(work_of[cell.cell_id], planned_data_tokens(cell.model)) for cell in groups[name]]
        joined[name] = first_of.get(places[0], name) if name in alone else name
        first_of |= {place: joined[name] for place in places if place not in first_of}
    found: dict[str, list[Cell]] = {}
    for name, members in groups.items():
        found.setdefault(joined[name], []).extend(members)
    return found


def _work(cell: Cell) -> str:
    work = cell.workload
    return "/".join((work.phase, work.dtype, work.device, f"batch={work.batch_size}", work.task or "synthetic"))


def _growing(cells: Sequence[PlannedCell]) -> Iterator[tuple[str, list[Cell]]]:
    """Yield growth groups: cells of one shape, which differ only in length."""
    series: dict[tuple[object, ...], dict[int, Cell]] = {}
    for planned in cells:
        series.setdefault(_series_key(planned), {})[planned.cell.model.shape.seq_len] = planned.cell
    for by_length in series.values():
        if len(by_length) >= MIN_GROWTH:
            yield _growth_name(list(by_length.values())), [by_length[n] for n in sorted(by_length)]


def _series_key(planned: PlannedCell) -> tuple[object, ...]:
    """Return the cell's identity without its length.

    The batch size is left out too, because it may shrink as n grows (`--batch-tokens`).
    """
    model, sizes = planned.cell.model, tuple(planned.size(name) for name in ("width", "depth", "heads", "ffn_width"))
    return (model.name, model.family, model.options, model.interface, sizes, WORK_WITHOUT_BATCH(planned.cell.workload))


def _growth_name(cells: Sequence[Cell]) -> str:
    return f"{GROWTH}/{cells[0].model.name}/{content_id([cell.cell_id for cell in cells])}"
