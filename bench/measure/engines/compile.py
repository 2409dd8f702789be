"""Run the model with torch.compile (inductor).

It reports the number of graphs that the model was cut into, and the number of graph breaks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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

    from bench.measure.step import in_channels_last

    layout = in_channels_last(model, data) if config.channels_last else ""
    frozen = "frozen" if config.freeze else ""
    before = graphs_so_far()

    def facts() -> Facts:
        found = graphs_so_far().since(before)
        return {"engine_effective": ", ".join(filter(None, (f"compile, mode {config.mode}", frozen, layout, found.text)))}

    options = _options(config)
    replays = config.mode in WITH_GRAPHS and data.device.type == "cuda"
    return Prepared(forward=torch.compile(model, options=options) if options else torch.compile(model), facts=facts, replays=replays)


def _options(config: Config) -> dict[str, Any]:
    """Return the mode as inductor's options.

    torch.compile takes either a mode or options.
    """
    from torch._inductor import list_mode_options

    return {**list_mode_options(config.mode), **({"freezing": True} if config.freeze else {})}


@dataclass(frozen=True, kw_only=True)
class Graphs:
    """Distinct graphs and graph breaks counted by torch.compile."""

    num_graphs: int
    num_breaks: int

    def since(self, before: Graphs) -> Graphs:
        return Graphs(num_graphs=self.num_graphs - before.num_graphs, num_breaks=self.num_breaks - before.num_breaks)

    @property
    def text(self) -> str:
        plural = "" if self.num_graphs == 1 else "s"
        return f"{self.num_graphs} graph{plural}, {self.num_breaks} graph breaks"


def graphs_so_far() -> Graphs:
    """Return the counts of this process since its start."""
    from torch._dynamo.utils import counters

    return Graphs(num_graphs=counters["stats"]["unique_graphs"], num_breaks=sum(counters["graph_break"].values()))
