"""What `bench diff --code` has measured of two revisions, as it is kept in code.json. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bench.running.revisions import Revision
from bench.spec import MEASURED, Outcome, Plan

SCHEMA = 1
FIRST, SECOND, CONTROL = "first", "second", "control"
"""The processes of one round: the first revision, the second, and the first once more."""
NAMES = {FIRST: "A", SECOND: "B", CONTROL: "control"}
"""As they are shown."""


@dataclass(frozen=True, kw_only=True)
class CellRound:
    """The outcomes of one cell in one round, by member. The control is left out where three processes do not fit the memory."""

    cell_id: str
    repeat: int
    outcomes: Mapping[str, Outcome]


@dataclass(frozen=True, kw_only=True)
class CodeRun:
    """Two revisions and what was measured of them so far. `pilots`: by cell id, of the first. `interrupted`: rounds of the plan are missing."""

    first: Revision
    second: Revision
    plan: Plan
    environment: Mapping[str, Any]
    pilots: Mapping[str, Outcome] = field(default_factory=dict)
    rounds: tuple[CellRound, ...] = ()
    interrupted: bool = False
    schema: int = SCHEMA

    def failure(self, cell_id: str) -> tuple[str, Outcome] | None:
        """Return the first outcome of the cell that is not a measurement, with the member it is of. The control's do not count."""
        found = [(FIRST, self.pilots[cell_id])] if cell_id in self.pilots else []
        for done in self.rounds:
            if done.cell_id == cell_id:
                found += [(member, done.outcomes[member]) for member in (FIRST, SECOND)]
        return next(((member, outcome) for member, outcome in found if outcome.status != MEASURED), None)
