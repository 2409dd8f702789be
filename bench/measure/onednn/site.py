"""A call in a model's graph that has several implementations: the first time that it runs, they are timed, and the fastest stays."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

ORIGINAL = "torch"
MAX_REPEATS = 30
ENOUGH_S = 0.1
"""What timing one implementation takes: small calls are repeated, large ones have to do with two."""
HANDICAP = 1.02
"""torch's own must be this much faster than the best of the others to stay."""
CLOSE = {torch.float32: 1e-4, torch.bfloat16: 2**-5}
"""The largest difference from torch's own answer, as a share of the largest value, with which an implementation may take its place: in bf16, which
rounds to one part in 2^8, eight such roundings."""

Implementation = Callable[..., Tensor]
Candidates = Callable[..., Mapping[str, Implementation]]


class Choices:
    """What was fastest for which sizes, in this process. Sites of equal sizes share one choice."""

    def __init__(self) -> None:
        self.known: dict[tuple[object, ...], str] = {}


class Site:
    """Stands for `original` in a graph. `candidates` gives the other implementations for a call's arguments, none where it has none."""

    def __init__(self, kind: str, original: Implementation, candidates: Candidates, choices: Choices) -> None:
        self.kind, self.original, self.candidates, self.choices = kind, original, candidates, choices
        self.choice = ""
        self.num_rows = 0
        self.run: Implementation = self._first
        self.__name__, self.__module__ = f"{kind}_site", __name__  # by which a graph's code calls it

    def __call__(self, *arguments: Any, **named: Any) -> Tensor:
        return self.run(*arguments, **named)

    def _first(self, *arguments: Any, **named: Any) -> Tensor:
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
    """The name of the fastest, forward and, where gradients are taken, backward. In turns, so that a busy moment meets all of them."""
    best = dict.fromkeys(_right(candidates, arguments, named), float("inf"))
    spent = 0.0
    for number in range(MAX_REPEATS):
        for name in best:
            took = _seconds(candidates[name], arguments, named)
            best[name] = min(best[name], took)
            spent += took
        if number and spent > ENOUGH_S * len(candidates):  # the first is a warm-up, which counts: being slow once makes nothing faster
            break
    original = best.pop(ORIGINAL)
    if not best or min(best.values()) > HANDICAP * original:
        return ORIGINAL
    return min(best, key=best.__getitem__)


def _right(candidates: Mapping[str, Implementation], arguments: tuple[Any, ...], named: Mapping[str, Any]) -> list[str]:
    """Those that answer as torch's own does: what is timed in this process is checked in it."""
    with torch.no_grad():
        expected = candidates[ORIGINAL](*arguments, **named)
        return [name for name, run in candidates.items() if run is candidates[ORIGINAL] or is_close(run(*arguments, **named), expected)]


def is_close(found: Tensor, expected: Tensor) -> bool:
    """Within what `CLOSE` says for the dtype; also where both are empty."""
    if found.shape != expected.shape or not found.numel():
        return found.shape == expected.shape
    return bool((found - expected).abs().max() <= CLOSE[expected.dtype] * expected.abs().max())


def _seconds(run: Implementation, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> float:
    trains = torch.is_grad_enabled()
    leaves = [_leaf(value) if trains else value for value in arguments]
    start = time.perf_counter()
    out = run(*leaves, **named)
    if trains and out.requires_grad:
        out.backward(torch.ones_like(out))
    return time.perf_counter() - start


def _leaf(value: Any) -> Any:
    """The same tensor as a leaf of its own, so that timing leaves no trace in anybody's gradients."""
    if not isinstance(value, Tensor):
        return value
    return value.detach().requires_grad_(value.requires_grad)


def _sizes(value: Any) -> object:
    return (tuple(value.shape), value.stride(), value.dtype, value.requires_grad) if isinstance(value, Tensor) else repr(value)
