"""One operator after another, as torch runs a model by itself."""

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
    """channels_last: convolutions keep the channels of a pixel together."""

    channels_last: bool = False


def refusal(config: Config, workload: Workload) -> str:  # noqa: ARG001  # as the other engines'
    return ""


def prepare(model: nn.Module, data: Tensor, config: Config, *, trains: bool) -> Prepared:  # noqa: ARG001
    if not config.channels_last:
        return Prepared(forward=model)
    from bench.measure.step import in_channels_last

    changed = in_channels_last(model, data)
    return Prepared(forward=model, facts=lambda: {"engine_effective": f"eager, {changed}"})
