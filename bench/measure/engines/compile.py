"""Run the model with torch.compile (inductor).

It reports the number of graphs that the model was cut into, and the number of graph breaks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.measure.engines import Facts, Prepared
from models.layers.shape import require_one_of

if TYPE_CHECKING:
    from torch import Tensor, nn

    from bench.spec import Workload

HIDES_OPERATORS = True
MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
WITH_GRAPHS = ("reduce-overhead", "max-autotune")
"""Modes that record and replay CUDA graphs on CUDA."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """Options of torch.compile.

    `mode`: `default`, `reduce-overhead`, `max-autotune` or `max-autotune-no-cudagraphs`.
    `freeze`: weights become constants, which may be packed and folded; inference only.
    `channels_last`: convolutions use the channels-last layout.
    """

    mode: str = "default"
    freeze: bool = False
    channels_last: bool = False

    def __post_init__(self) -> None:
        require_one_of("mode", self.mode, MODES)


def why_unsupported(config: Config, workload: Workload) -> str:
    if config.freeze and workload.phase == "train":
        return "freeze=true makes the weights constants, so it needs --phase infer"
    return ""


def prepare(model: nn.Module, data: Tensor, config: Config, *, trains: bool) -> Prepared:  # noqa: ARG001  # the config was checked
    import torch
    from torch._inductor import list_mode_options

    from bench.measure.step import in_channels_last

    layout = in_channels_last(model, data) if config.channels_last else ""
    frozen = "frozen" if config.freeze else ""
    before = graphs_so_far()

    def facts() -> Facts:
        return {"engine_effective": ", ".join(filter(None, (f"compile, mode {config.mode}", frozen, layout, graphs_since(before))))}

    # torch.compile takes either a mode or inductor's options, so the mode is given as its options
    options = {**list_mode_options(config.mode), **({"freezing": True} if config.freeze else {})}
    replays = config.mode in WITH_GRAPHS and data.device.type == "cuda"
    return Prepared(forward=torch.compile(model, options=options or None), facts=facts, replays=replays)


def graphs_so_far() -> tuple[int, int]:
    """Return the number of distinct graphs, and of graph breaks, of this process since its start."""
    from torch._dynamo.utils import counters

    return counters["stats"]["unique_graphs"], sum(counters["graph_break"].values())


def graphs_since(before: tuple[int, int]) -> str:
    """Tell both numbers since an earlier moment, as `1 graph, 0 graph breaks`."""
    num_graphs, num_breaks = (now - then for now, then in zip(graphs_so_far(), before, strict=True))
    return f"{num_graphs} graph{'' if num_graphs == 1 else 's'}, {num_breaks} graph breaks"
