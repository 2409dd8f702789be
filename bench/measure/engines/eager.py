"""Run the model one operator after another, as torch does by default."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.measure.engines import Prepared

if TYPE_CHECKING:
    from torch import Tensor, nn

    from bench.spec import Workload

HIDES_OPERATORS = False


@dataclass(frozen=True, kw_only=True)
class Config:
    """Options of eager mode.

    `channels_last`: convolutions use the channels-last layout.
    """

    channels_last: bool = False


def why_unsupported(config: Config, workload: Workload) -> str:  # noqa: ARG001  # the signature of every engine
    return ""


def prepare(model: nn.Module, data: Tensor, config: Config, *, trains: bool) -> Prepared:  # noqa: ARG001
    if not config.channels_last:
        return Prepared(forward=model)
    from bench.measure.step import in_channels_last

    changed = in_channels_last(model, data)
    return Prepared(forward=model, facts=lambda: {"engine_effective": f"eager, {changed}"})
