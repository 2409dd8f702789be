"""The standing comparison as JSON: bounds, means, cells, kernel shares and what was left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.analysis.kernel_share import KernelShare
from bench.analysis.standing import Place, Standing
from bench.analysis.standing_bounds import Judgement
from bench.intervals import Interval


def standing_json(standing: Standing, judged: Sequence[Judgement], shares: Sequence[KernelShare], answer: str) -> dict[str, Any]:
    """For `verdicts.json`; a ratio that is not known has no numbers."""
    return {
        "answer": answer,
        "bounds": [
            {
                "part": judgement.part,
                "bound": judgement.bound,
                "answer": judgement.answer,
                "reason": judgement.reason,
                "measured": _interval(judgement.value),
                "missed": [_place(place) for place in judgement.missed],
            }
            for judgement in judged
        ],
        "means": [
            {"part": mean.part, "peer": mean.peer, "kind": mean.kind, "cells": mean.num_places, **(_interval(mean.ratio) or {})}
            for mean in standing.means
        ],
        "cells": [
            {**_place(pair.place), "peer": pair.peer, "engine": pair.ours.engine, **(_interval(pair.ratio) or {})}
            for pair in standing.fastest
        ],
        "kernel_shares": [
            {
                **(_place(share.place) if share.place else {"phase": share.phase}),
                "peer": share.peer,
                "as_shipped": _interval(share.shipped),
                "ours": _interval(share.ours),
                "kernels": _interval(share.kernels),
                "share": share.share,
            }
            for share in shares
        ],
        "excluded": [
            {**_place(lost.place), "whose": lost.contender.side, "engine": lost.contender.engine, "reason": lost.reason}
            for lost in standing.excluded
        ],
    }


def _place(place: Place) -> dict[str, Any]:
    return {"part": place.part, "phase": place.phase, "n": place.seq_len, "batch_size": place.batch_size}


def _interval(found: Interval | None) -> dict[str, float] | None:
    return None if found is None else {"estimate": float(found.estimate), "low": float(found.low), "high": float(found.high)}
