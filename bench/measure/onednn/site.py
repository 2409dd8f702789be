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


class Choices:
    """The fastest implementation by sizes, in this process.

    Sites of equal sizes share one choice.
    """

    def __init__(self) -> None:
        self.known: dict[tuple[object, ...], str] = {}


class Site:
    """Replaces `original` in a graph.

    `candidates`: returns the other implementations for a call's arguments, possibly none.
    """

    def __init__(self, kind: str, original: Implementation, candidates: Candidates, choices: Choices) -> None:
        self.kind, self.original, self.candidates, self.choices = kind, original, candidates, choices
        self.choice = ""
        self.num_rows = 0
        self.run: Implementation = self._choose_and_run
        self.__name__, self.__module__ = f"{kind}_site", __name__  # the graph's generated code refers to it by these names

    def __call__(self, *arguments: Any, **named: Any) -> Tensor:
        return self.run(*arguments, **named)

    def _choose_and_run(self, *arguments: Any, **named: Any) -> Tensor:
        found = {ORIGINAL: self.original, **self.candidates(*arguments, **named)}
        values = (*arguments, *(value for _, value in sorted(named.items())))
        key = (self.kind, *found, *sorted(named), *(_sizes(value) for value in values), torch.is_grad_enabled())
        if key not in self.choices.known:
            self.choices.known[key] = fastest(found, arguments, named)
        self.choice = self.choices.known[key]
        self.num_rows = arguments[0].numel() // arguments[0].shape[-1]
        self.run = found[self.choice]
        return self.run(*arguments, **named)


def fastest(candidates: Mapping[str, Implementation], arguments: tuple[Any, ...], named: Mapping[str, Any]) -> str:
    """Return the name of the fastest implementation.

    Forward is timed and, where gradients are taken, backward. Implementations take turns, so that a busy moment affects all of
    them.
    """
    best = dict.fromkeys(_agreeing_candidates(candidates, arguments, named), float("inf"))
    spent = 0.0
    for number in range(MAX_REPEATS):
        for name in best:
            took = _seconds(candidates[name], arguments, named)
            best[name] = min(best[name], took)
            spent += took
        if number and spent > ENOUGH_S * len(candidates):  # the first turn is the warm-up; it may count, because only the minimum matters
            break
    original = best.pop(ORIGINAL)
    if not best or min(best.values()) > HANDICAP * original:
        return ORIGINAL
    return min(best, key=best.__getitem__)


def _agreeing_candidates(candidates: Mapping[str, Implementation], arguments: tuple[Any, ...], named: Mapping[str, Any]) -> list[str]:
    """Return the candidates whose results agree with torch's own.

    Results are checked in the process that uses them.
    """
    with torch.no_grad():
        expected = candidates[ORIGINAL](*arguments, **named)
        return [name for name, run in candidates.items() if run is candidates[ORIGINAL] or is_close(run(*arguments, **named), expected)]


def is_close(found: Tensor, expected: Tensor) -> bool:
    """Return whether results agree within `CLOSE`; two empty tensors do."""
    if found.shape != expected.shape or not found.numel():
        return found.shape == expected.shape
    return bool((found - expected).abs().max() <= CLOSE[expected.dtype] * expected.abs().max())


def _seconds(run: Implementation, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> float:
    trains = torch.is_grad_enabled()
    leaves = [_detached(value) if trains else value for value in arguments]
    start = time.perf_counter()
    out = run(*leaves, **named)
    if trains and out.requires_grad:
        out.backward(torch.ones_like(out))
    return time.perf_counter() - start


def _detached(value: Any) -> Any:
    """Return a tensor as a new leaf; other values are returned unchanged.

    Timing then leaves the caller's gradients alone.
    """
    if not isinstance(value, Tensor):
        return value
    return value.detach().requires_grad_(value.requires_grad)


def _sizes(value: Any) -> object:
    return (tuple(value.shape), value.stride(), value.dtype, value.requires_grad) if isinstance(value, Tensor) else repr(value)
