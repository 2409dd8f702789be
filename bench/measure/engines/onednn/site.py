"""A call in a model's graph with several implementations.

They are timed when the call first runs, and the fastest stays.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

ORIGINAL = "torch"
MAX_REPEATS = 30
ENOUGH_S = 0.1
"""Seconds of timing per implementation.

Small calls are repeated many times, large ones twice.
"""
HANDICAP = 1.02
"""Margin in favour of the replacement.

torch's own implementation stays only if the fastest other one takes more than this multiple of its time.
"""
CLOSE = {torch.float32: 1e-4, torch.bfloat16: 2**-5}
"""Largest accepted difference from torch's own result, by dtype.

Relative to the largest value. bf16 rounds to one part in 2^8; 2^-5 is eight such roundings.
"""

Implementation = Callable[..., Tensor]
Candidates = Callable[..., Mapping[str, Implementation]]


class Site:
    """Replaces `original` in a graph.

    `candidates`: returns the other implementations for a call's arguments, possibly none.
    `choices`: names of the fastest implementations by sizes; sites of equal sizes share one.
    """

    def __init__(self, kind: str, original: Implementation, candidates: Candidates, choices: dict[object, str]) -> None:
        self.kind, self.original, self.candidates, self.choices = kind, original, candidates, choices
        self.choice = ""
        self.num_rows = 0
        self.run: Implementation = self._choose_and_run
        self.__name__, self.__module__ = f"{kind}_site", __name__  # the graph's generated code refers to it by these names

    def __call__(self, *arguments: Any, **named: Any) -> Tensor:
        return self.run(*arguments, **named)

    def _choose_and_run(self, *arguments: Any, **named: Any) -> Tensor:
        found = {ORIGINAL: self.original, **self.candidates(*arguments, **named)}
        key = (self.kind, *found, *map(_sizes, arguments), repr(sorted(named.items())), torch.is_grad_enabled())
        if key not in self.choices:
            self.choices[key] = fastest(found, arguments, named)
        self.choice = self.choices[key]
        self.num_rows = arguments[0].numel() // arguments[0].shape[-1]
        self.run = found[self.choice]
        return self.run(*arguments, **named)


def fastest(candidates: Mapping[str, Implementation], arguments: tuple[Any, ...], named: Mapping[str, Any]) -> str:
    """Return the name of the fastest implementation whose result agrees with torch's own.

    Forward is timed and, where gradients are taken, backward. Implementations take turns, so that a busy moment affects all of
    them.
    """
    with torch.no_grad():
        results = {name: run(*arguments, **named) for name, run in candidates.items()}
    best = {name: float("inf") for name, found in results.items() if name == ORIGINAL or is_close(found, results[ORIGINAL])}
    spent = 0.0
    for number in range(MAX_REPEATS if len(best) > 1 else 0):
        for name in best:
            took = _seconds(candidates[name], arguments, named)
            best[name] = min(best[name], took)
            spent += took
        if number and spent > ENOUGH_S * len(candidates):  # the first turn is the warm-up; it may count, because only the minimum matters
            break
    limit = HANDICAP * best.pop(ORIGINAL)
    return min((name for name in best if best[name] <= limit), key=best.__getitem__, default=ORIGINAL)


def is_close(found: Tensor, expected: Tensor) -> bool:
    """Return whether results agree within `CLOSE`; two empty tensors do."""
    if found.shape != expected.shape or not found.numel():
        return found.shape == expected.shape
    return bool((found - expected).abs().max() <= CLOSE[expected.dtype] * expected.abs().max())


def _seconds(run: Implementation, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> float:
    """Time a call. Where gradients are taken, its tensors are new leaves, so that the caller's gradients stay alone."""
    if torch.is_grad_enabled():
        arguments = tuple(_leaf(value) if isinstance(value, Tensor) else value for value in arguments)
    start = time.perf_counter()
    out = run(*arguments, **named)
    if out.requires_grad:
        out.backward(torch.ones_like(out))
    return time.perf_counter() - start


def _leaf(value: Tensor) -> Tensor:
    return value.detach().requires_grad_(value.requires_grad)


def _sizes(value: Any) -> object:
    return (value.shape, value.stride(), value.dtype, value.requires_grad) if isinstance(value, Tensor) else repr(value)
