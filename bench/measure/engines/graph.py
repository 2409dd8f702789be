"""Record a whole step as a CUDA graph, replayed by one launch."""

from __future__ import annotations

import contextlib
import functools
import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench.measure.engines import Call, Prepared

if TYPE_CHECKING:
    from torch import Tensor, nn

    from bench.spec import Workload

HIDES_OPERATORS = True
WARMUP_CALLS = 3
"""Calls before recording, on a separate stream, as torch's documentation requires.

Libraries allocate memory and choose kernels in these calls.
"""


@dataclass(frozen=True, kw_only=True)
class Config:
    """This engine has no options."""


def why_unsupported(config: Config, workload: Workload) -> str:  # noqa: ARG001  # the signature of every engine
    return "" if workload.device == "cuda" else "CUDA graphs need --device cuda"


def prepare(model: nn.Module, data: Tensor, config: Config, *, trains: bool) -> Prepared:  # noqa: ARG001
    """Wrap the step in a recorder.

    For training the optimizer must be `capturable`, as `bench.measure.step` makes it on CUDA.
    """
    facts = {"engine_effective": f"one CUDA graph, recorded after {WARMUP_CALLS} calls"}
    return Prepared(forward=model, wrap=recorded, facts=lambda: facts, replays=True, is_graph=True)


def recorded(call: Call) -> Call:
    """Return a call that records itself at its first use.

    Every replay reads the same data and writes its result to the same place.
    """
    replay = functools.cache(lambda: record(call))
    return lambda: replay()()


def record(call: Callable[[], Any], num_calls: int = 1) -> Callable[[], Any]:
    """Record `num_calls` calls in one CUDA graph; return its replay.

    The replay returns the last call's result, in the same memory every time. Raises RuntimeError for a call that synchronises
    with the device, or does anything else that cannot be recorded.
    """
    import torch

    gc.collect()  # graphs of operators from before: see `beside`
    graph = torch.cuda.CUDAGraph()
    with beside():
        for _ in range(WARMUP_CALLS):
            call()
        with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
            for _ in range(num_calls):
                result = call()

    def replay() -> Any:
        graph.replay()
        return result

    return replay


@contextlib.contextmanager
def beside() -> Iterator[None]:
    """Work on a stream beside the default one, which waits for it afterwards. Inside, it stays on that stream; without a GPU it does nothing.

    Gradients are added on the stream that made their accumulator, which lives as long as any graph of operators that leads to it. A recording must
    not meet one from another stream. So what is called just before it belongs inside, too.
    """
    import torch

    default = torch.cuda.default_stream() if torch.cuda.is_available() else None
    if default is None or torch.cuda.current_stream() != default:
        yield
        return
    stream = torch.cuda.Stream()
    stream.wait_stream(default)
    with torch.cuda.stream(stream):
        yield
    default.wait_stream(stream)
