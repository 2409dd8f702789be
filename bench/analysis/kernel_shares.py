"""Split attention's speed advantage into kernels and architecture.

One run must have timed both families, as shipped and as built here.

log(gMLP / ViT, as a peer ships them) = log(gMLP / ViT, ours with the best engines) + log(the rest). The first term, a ratio between the best
implementations of both, is attributed to the architecture, and the rest to the kernels. Better kernels than the best built here may exist.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench.analysis.peers import SHIPPED, LogRatios, PeerComparison, PeerPair, PeerPlace, Row, mean_of_logs
from bench.intervals import Interval
from bench.numbers import is_empty
from bench.running.timings import Timings

GATING, ATTENTION = "gmlp", "vit"
TWINS = 1
"""A class token makes lengths differ by at most this."""


@dataclass(frozen=True, kw_only=True)
class KernelShare:
    """gMLP's time over ViT's at one place, split into two factors.

    `place`: gMLP's place; None for the geometric mean over `num_places`.
    `shipped`: the ratio as `peer` ships both models.
    `ours`: the ratio of our models with their best engines.
    `kernels`: `shipped` over `ours`, paired by round.
    `share`: the part of log `shipped` that is due to kernels; None unless attention is significantly faster and `kernels` excludes 1.
    `flops`: gMLP's FLOPs over ViT's; None for a mean.
    """

    phase: str
    dtype: str
    peer: str
    place: PeerPlace | None
    num_places: int
    shipped: Interval
    ours: Interval
    kernels: Interval
    share: float | None
    flops: float | None = None


@dataclass(frozen=True, kw_only=True)
class _Logs:
    """The log ratios of one place.

    Only rounds with all four times count, so that shipped = ours + kernels.
    """

    place: PeerPlace
    shipped: LogRatios
    ours: LogRatios
    kernels: LogRatios
    flops: float | None


def kernel_shares(comparison: PeerComparison, timings: Timings) -> list[KernelShare]:
    """Return the shares of every peer, phase and dtype with both families.

    Each place has one; several places also have a mean.
    """
    shipped = [pair for pair in comparison.pairs if pair.kind == SHIPPED]
    groups: dict[tuple[str, str, str], list[_Logs]] = {}
    for pair in shipped:
        if pair.place.family == GATING and (other := _counterpart(pair, shipped)):
            groups.setdefault((pair.place.phase, pair.place.dtype, pair.peer), []).append(_logs(pair, other, timings))
    return [share for (_, _, peer), found in groups.items() for share in _shares(peer, found)]


def _counterpart(pair: PeerPair, pairs: Sequence[PeerPair]) -> PeerPair | None:
    """Return the same peer's ViT at the same place.

    Its length may differ by a class token. Of several, the closest in length is taken, then the first in the plan.
    """
    place = pair.place
    found = [
        other
        for other in pairs
        if other.place.family == ATTENTION
        and other.peer == pair.peer
        and abs(other.place.seq_len - place.seq_len) <= TWINS
        and (other.place.batch_size, other.place.phase, other.place.dtype) == (place.batch_size, place.phase, place.dtype)
    ]
    return min(found, key=lambda other: abs(other.place.seq_len - place.seq_len), default=None)


def _logs(gating: PeerPair, attention: PeerPair, timings: Timings) -> _Logs:
    shipped = timings.log_ratios(gating.theirs.cell_id, attention.theirs.cell_id)
    ours = timings.log_ratios(gating.ours.cell_id, attention.ours.cell_id)
    common = sorted(shipped.keys() & ours.keys())
    return _Logs(
        place=gating.place,
        shipped={place: shipped[place] for place in common},
        ours={place: ours[place] for place in common},
        kernels={place: shipped[place] - ours[place] for place in common},
        flops=_flops_ratio(gating.ours.row, attention.ours.row),
    )


def _flops_ratio(gating: Row, attention: Row) -> float | None:
    counts = (gating.get("flops"), attention.get("flops"))
    return None if any(is_empty(count) or not count for count in counts) else float(counts[0] / counts[1])  # type: ignore[operator]


def _shares(peer: str, found: Sequence[_Logs]) -> Iterator[KernelShare]:
    for logs in found:
        if share := _share(peer, [logs], logs.place):
            yield share
    if len(found) > 1 and (share := _share(peer, found, None)):
        yield share


def _share(peer: str, found: Sequence[_Logs], place: PeerPlace | None) -> KernelShare | None:
    shipped, ours, kernels = (mean_of_logs([getattr(logs, name) for logs in found]) for name in ("shipped", "ours", "kernels"))
    if shipped is None or ours is None or kernels is None:
        return None
    return KernelShare(
        phase=found[0].place.phase,
        dtype=found[0].place.dtype,
        peer=peer,
        place=place,
        num_places=len(found),
        shipped=shipped,
        ours=ours,
        kernels=kernels,
        share=math.log(kernels.estimate) / math.log(shipped.estimate) if shipped.low > 1 and not kernels.contains(1.0) else None,
        flops=found[0].flops if place else None,
    )
