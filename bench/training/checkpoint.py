"""A training in progress, on disk: everything that decides the bits of what follows."""

from __future__ import annotations

import dataclasses
import os
import pickle
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from bench.files import write_atomically
from bench.progress import tell

EVERY_S = 30.0


@dataclass(kw_only=True)
class Checkpoint:
    """Where one training keeps its state, and how often (seconds).

    `identity`: what must agree for the state to be continued: another model, recipe, seed, number of threads or version of torch starts anew.
    `part`: the name of this training among several that run one after the other and keep their states in one file, with those of the `finished`.
    """

    path: Path
    identity: Mapping[str, str | int]
    every_s: float = EVERY_S
    part: str = ""
    finished: Mapping[str, Any] = field(default_factory=dict)
    _saved_at: float = field(default_factory=time.monotonic)

    def part_of(self, part: str, finished: Mapping[str, Any] | None = None) -> Checkpoint:
        """The same file, as the named training keeps its state in it; `finished`: the states of those before it, by name."""
        return dataclasses.replace(self, part=part, finished=finished or {})

    def save_if_due(self, state: Callable[[], Mapping[str, Any]]) -> bool:
        """Save the state, whole or not at all, where the last time is long enough ago. A disk that refuses is told; training goes on."""
        if time.monotonic() - self._saved_at < self.every_s:
            return False
        own = dict(state())
        content = {"identity": dict(self.identity), "state": {**self.finished, self.part: own} if self.part else own}
        self._saved_at = time.monotonic()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self.path, lambda temporary: _save(content, temporary))
        except OSError as error:
            tell(f"no checkpoint could be written ({error.strerror or error}); an interruption would begin this training anew")
            return False
        return True

    def read(self) -> dict[str, Any] | None:
        """The state to continue from; None where there is none, it cannot be read, or it is another training's.

        Loads tensors and plain data only. What a process that died while saving has left half written is cleared away.
        """
        for torn in self.path.parent.glob(f".{self.path.name}.*.tmp"):
            torn.unlink(missing_ok=True)
        try:
            content = torch.load(self.path, map_location="cpu", weights_only=True)
        except (OSError, RuntimeError, EOFError, ValueError, pickle.UnpicklingError):
            return None
        if not isinstance(content, dict) or content.get("identity") != dict(self.identity):
            return None
        state: dict[str, Any] | None = content["state"].get(self.part) if self.part else content["state"]
        return state


def random_state() -> dict[str, torch.Tensor]:
    """The states of torch's global generators."""
    state = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_initialized():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def restore_random_state(state: Mapping[str, torch.Tensor]) -> None:
    torch.set_rng_state(state["cpu"])
    if "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"])


def _save(content: Mapping[str, Any], path: Path) -> None:
    with open(path, "wb") as file:
        torch.save(content, file)
        file.flush()
        os.fsync(file.fileno())
