"""How a training computes its steps: an engine, a precision, and a kernel of attention.

What a recipe leaves open is decided by timing on the host that trains, and holds as long as the training stays there.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, fx, nn

from bench.measure.onednn import product
from bench.measure.onednn.rewrite import rewrite
from bench.measure.onednn.site import ORIGINAL, Choices
from bench.spec import AUTO, Recipe
from models.layers.cross_attention import CrossAttention
from models.mixers.attention import SelfAttention

EAGER, ONEDNN, GRAPH, COMPILE = "eager", "onednn", "graph", "compile"
FP32, BF16 = "fp32", "bf16-autocast"
FUSED, EXPLICIT = "auto", "math"
TIE = 0.03
"""The first candidate stays unless another takes less of its time by more than this."""
MIN_TURNS, MAX_TURNS = 3, 9
ENOUGH_S = 10.0
"""Seconds of timing after which no turn beyond `MIN_TURNS` starts."""
STEPS_PER_BURST = 4
WARM_UP_STEPS = 2


@dataclass(frozen=True, kw_only=True)
class Execution:
    """How steps are computed on one host.

    `engine`: `eager`, `onednn`, `graph` or `compile`.
    `precision`: `fp32`, `tf32` or `bf16-autocast`.
    `attention`: `auto` (torch chooses the kernel) or `math` (explicit).
    `host`: the machine that decided.
    `step_ms`: milliseconds per step of each candidate, by turn; empty if nothing was open.
    `products`: oneDNN's choices by sizes, made when a product first runs; kept, because another choice gives other bits.
    """

    engine: str
    precision: str
    attention: str = FUSED
    host: str = ""
    step_ms: dict[str, list[float]] = field(default_factory=dict)
    products: dict[tuple[object, ...], str] = field(default_factory=dict)

    @property
    def kernels(self) -> str:
        """The engine, and `explicit attention` if it does not compute that as torch would."""
        return f"{self.engine} explicit attention" if self.attention == EXPLICIT else self.engine

    @property
    def name(self) -> str:
        return f"{self.kernels} {self.precision}"

    @property
    def is_plain(self) -> bool:
        """Whether oneDNN computes nothing here, because torch was faster at every product."""
        return self.engine == ONEDNN and all(choice == ORIGINAL for choice in self.products.values())


def candidates(recipe: Recipe, device: str, *, with_attention: bool = False) -> list[Execution]:
    """Return the preferred execution, then others that the recipe allows and this machine can run.

    Preferred is eager in fp32, or what the recipe fixes.

    `with_attention`: where the precision is open, the model may also attend explicitly in bf16 on a CPU, where torch's fused
    kernel is slow at short lengths (docs/benchmarks.md).
    """
    engines = (EAGER, ONEDNN) if recipe.engine == AUTO else (COMPILE if recipe.compile else recipe.engine,)
    precisions = (FP32, BF16) if recipe.precision == AUTO else (recipe.precision,)
    first, *others = [Execution(engine=engine, precision=precision) for engine in engines for precision in precisions]
    found = [first, *(execution for execution in others if _can_run(execution, device))]
    if with_attention and device == "cpu" and recipe.precision == AUTO:
        found += [replace(each, attention=EXPLICIT) for each in found if (each.engine, each.precision) == (EAGER, BF16)]
    return found


def _can_run(execution: Execution, device: str) -> bool:
    """Return whether this machine has the instructions; oneDNN trains in fp32 on a CPU alone."""
    if execution.engine == ONEDNN:
        return device == "cpu" and execution.precision == FP32 and not product.why_unsupported()
    return torch.cuda.is_bf16_supported(including_emulation=False) if device != "cpu" else not product.why_unsupported(torch.bfloat16)


def attends(model: nn.Module) -> bool:
    """Return whether torch chooses a kernel of attention for this model."""
    return any(isinstance(part, SelfAttention | CrossAttention) for part in model.modules())


def forward_of(model: nn.Module, execution: Execution) -> Callable[..., Tensor]:
    """Return the function that replaces the model in training steps.

    Engine graph replaces whole steps, not the model (`bench.training.recorded_step`).

    Raises RuntimeError if this build of torch lacks the engine.
    """
    if execution.engine in (EAGER, GRAPH):
        return model
    if execution.engine == COMPILE:
        return torch.compile(model)
    if reason := product.why_unsupported():
        raise RuntimeError(f"engine=onednn cannot run: {reason}")
    torch.compiler.reset()  # torch compiles a function at most eight times, then runs it as it is: earlier trainings do not count
    choices = Choices()
    choices.known = execution.products

    def backend(graph: fx.GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
        return rewrite(graph, choices, prepack=False).run

    return torch.compile(model, backend=backend, dynamic=False)


def time_bursts(bursts: Sequence[Callable[[], None]], *, clock: Callable[[], float] = time.perf_counter) -> list[list[float]]:
    """Return the seconds of each burst, by turn.

    Bursts take turns, so that a slow moment of the machine affects all.
    """
    seconds: list[list[float]] = [[] for _ in bursts]
    started = clock()
    for turn in range(MAX_TURNS):
        if turn >= MIN_TURNS and clock() - started > ENOUGH_S:
            break
        order = range(len(bursts))
        for number in order if turn % 2 else reversed(order):
            before = clock()
            bursts[number]()
            seconds[number].append(clock() - before)
    return seconds


def fastest(seconds: Sequence[Sequence[float]]) -> int:
    """Return the number of the fastest; 0 in a tie.

    Ratios to the first are paired by turn.
    """
    ratios = [statistics.median(own / first for own, first in zip(each, seconds[0], strict=True)) for each in seconds]
    best = min(range(len(ratios)), key=ratios.__getitem__)
    return best if ratios[best] < 1 - TIE else 0
