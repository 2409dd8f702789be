"""A GPU made of two clocks: the host enqueues, the device runs what was enqueued in order. No CUDA is touched."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from bench.measure import kernel_time


@dataclass(frozen=True)
class Kernel:
    """Seconds with its operands in the L2 cache, and without."""

    warm_s: float
    cold_s: float


class FakeGpu:
    """`launch_s`: what the host needs to enqueue one kernel, or one graph."""

    def __init__(self, *, launch_s: float, flush_s: float = 1e-4) -> None:
        self.launch_s, self.flush_s = launch_s, flush_s
        self.host_s = self.device_s = 0.0
        self.is_warm = True
        self.recording: list[Kernel] | None = None
        self.num_graphs = 0

    def launch(self, kernel: Kernel) -> None:
        if self.recording is not None:
            self.recording.append(kernel)
        else:
            self._enqueue([kernel])

    def flush(self) -> None:
        self._enqueue([Kernel(self.flush_s, self.flush_s)])
        self.is_warm = False

    def _enqueue(self, kernels: list[Kernel]) -> None:
        self.host_s += self.launch_s
        self.device_s = max(self.device_s, self.host_s)
        for kernel in kernels:
            self.device_s += kernel.warm_s if self.is_warm else kernel.cold_s
            self.is_warm = True

    def synchronize(self) -> None:
        self.host_s = max(self.host_s, self.device_s)

    def plant(self, monkeypatch: pytest.MonkeyPatch) -> None:
        gpu = self

        class Event:
            def __init__(self, *, enable_timing: bool) -> None:
                assert enable_timing

            def record(self) -> None:
                self.at_s = max(gpu.host_s, gpu.device_s)

            def synchronize(self) -> None:
                gpu.synchronize()

            def elapsed_time(self, end: Any) -> float:
                return float(end.at_s - self.at_s) * 1e3

        class Graph:
            kernels: list[Kernel]

            def replay(self) -> None:
                gpu._enqueue(self.kernels)

        @contextlib.contextmanager
        def record(graph: Any, stream: Any) -> Iterator[None]:
            assert stream is streams[-1] is not streams[0], "recorded on another stream than that of the calls before it"
            gpu.recording = graph.kernels = []
            gpu.num_graphs += 1
            yield
            gpu.recording = None

        @contextlib.contextmanager
        def on(stream: Any) -> Iterator[None]:
            streams.append(stream)
            yield
            streams.pop()

        def new_stream() -> Any:
            return SimpleNamespace(wait_stream=lambda _: None)

        streams = [new_stream()]
        planted: dict[str, Callable[..., Any]] = {
            "Event": Event,
            "CUDAGraph": Graph,
            "graph": record,
            "synchronize": self.synchronize,
            "is_available": lambda: True,
            "Stream": new_stream,
            "default_stream": lambda: streams[0],
            "current_stream": lambda: streams[-1],
            "stream": on,
        }
        for name, value in planted.items():
            monkeypatch.setattr(torch.cuda, name, value)
        monkeypatch.setattr("bench.measure.timer.time.perf_counter", lambda: self.host_s)
        monkeypatch.setattr(kernel_time, "_flush", lambda: self.flush)
