"""Define the results of `bench diff --code`, stored in code.json.

Imports no torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bench.running.revisions import Revision
from bench.spec import MEASURED, Outcome, Plan

SCHEMA = 1
FIRST, SECOND, CONTROL = "first", "second", "control"
"""Processes of a round: first revision, second revision, first revision again."""
NAMES = {FIRST: "A", SECOND: "B", CONTROL: "control"}
"""Names shown to the user."""


@dataclass(frozen=True, kw_only=True)
class CellRound:
    """The outcomes of one cell in one round, by member.

    The control is absent if three processes do not fit in memory.
    """

    cell_id: str
    repeat: int
    outcomes: Mapping[str, Outcome]


@dataclass(frozen=True, kw_only=True)
class CodeRun:
    """Two revisions and their measurements so far.

    `pilots`: outcomes of the first revision's pilots, by cell id.
    `interrupted`: rounds of the plan are missing.
    """

    first: Revision
    second: Revision
    plan: Plan
    environment: Mapping[str, Any]
    pilots: Mapping[str, Outcome] = field(default_factory=dict)
    rounds: tuple[CellRound, ...] = ()
    interrupted: bool = False
    schema: int = SCHEMA

    def failure(self, cell_id: str) -> tuple[str, Outcome] | None:
        """Return the cell's first failed outcome with its member.

        None if all succeeded. The control is ignored.
        """
        found = [(FIRST, self.pilots[cell_id])] if cell_id in self.pilots else []
        for done in self.rounds:
            if done.cell_id == cell_id:
                found += [(member, done.outcomes[member]) for member in (FIRST, SECOND)]
        return next(((member, outcome) for member, outcome in found if outcome.status != MEASURED), None)
