"""CUDA graphs: a whole step is recorded once and replayed with a single launch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench.measure.engines import Call, Facts, Prepared

if TYPE_CHECKING:
    from torch import Tensor, nn

    from bench.spec import Workload

HIDES_OPERATORS = True
WARMUP_CALLS = 3
"""Before recording, on a stream of their own, as torch's documentation of CUDA graphs asks: libraries allocate and choose kernels in them."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """No options."""


def refusal(config: Config, workload: Workload) -> str:  # noqa: ARG001  # as the other engines'
    return "" if workload.device == "cuda" else "CUDA graphs need --device cuda"


def prepare(model: nn.Module, data: Tensor, config: Config, *, trains: bool) -> Prepared:  # noqa: ARG001
    """In training the optimizer must be one that can be recorded (`capturable`): `bench.measure.step` makes it so on CUDA."""
    return Prepared(forward=model, wrap=recorded, facts=_facts, replays=True, is_graph=True)


def recorded(call: Call) -> Call:
    """`call` recorded at its first use. Every replay reads the same data and writes its result in the same place."""
    replay: list[Callable[[], Any]] = []

    def step() -> Tensor:
        if not replay:
            replay.append(record(call))
        result: Tensor = replay[0]()
        return result

    return step


def record(call: Callable[[], Any], num_calls: int = 1) -> Callable[[], Any]:
    """A replay of one CUDA graph that holds `num_calls` calls; it returns what the last one returned, in the same place every time.

    Raises RuntimeError for a call that waits for the device, or does anything else that a graph cannot hold.
    """
    import torch

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARMUP_CALLS):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(num_calls):
            result = call()

    def replay() -> Any:
        graph.replay()
        return result

    return replay


def _facts() -> Facts:
    return {"engine_effective": f"one CUDA graph, recorded after {WARMUP_CALLS} calls"}
