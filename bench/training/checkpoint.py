"""Checkpoint of a training run: everything needed to continue it exactly."""

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
SLOW_S = 0.6
"""A save that takes longer makes the next one rarer, so that saves take at most 2 % of the time."""


@dataclass(kw_only=True)
class Checkpoint:
    """File that holds the state of one or several training runs.

    `identity`: must match the stored one to resume. Another model, recipe, data set, seed, training code, number of threads or torch version
    starts over; another machine does not.
    `every_s`: seconds between two saves; more if saving is slow.
    `hosts`: the machines that trained, in order; this one is the last.
    `part`: name of this run, if several share the file in sequence.
    `finished`: states of the earlier runs in the file, by name.
    """

    path: Path
    identity: Mapping[str, str | int]
    every_s: float = EVERY_S
    part: str = ""
    finished: Mapping[str, Any] = field(default_factory=dict)
    hosts: list[str] = field(default_factory=list)
    _saved_at: float = field(default_factory=time.monotonic)
    _took_s: float = 0.0

    def part_of(self, part: str, finished: Mapping[str, Any] | None = None) -> Checkpoint:
        """Return the same checkpoint for the run named `part`.

        `finished`: states of the earlier runs, by name.
        """
        return dataclasses.replace(self, part=part, finished=finished or {})

    def save_if_due(self, state: Callable[[], Mapping[str, Any]]) -> bool:
        """Save the state if due; return whether it was saved.

        The file is replaced atomically. If writing fails, a message says so and training continues.
        """
        started = time.monotonic()
        if started - self._saved_at < self.every_s * max(1.0, self._took_s / SLOW_S):
            return False
        own = dict(state())
        state_of_all = {**self.finished, self.part: own} if self.part else own
        content = {"identity": dict(self.identity), "hosts": self.hosts, "state": state_of_all}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self.path, lambda temporary: _save(content, temporary))
        except (OSError, RuntimeError) as error:  # torch says that a disk is full by a RuntimeError
            tell(
                f"could not write a checkpoint ({getattr(error, 'strerror', None) or error}); if interrupted, this training run would start over"
            )
            return False
        finally:
            self._saved_at = time.monotonic()
            self._took_s = self._saved_at - started
        return True

    def read(self) -> dict[str, Any] | None:
        """Return the state to resume from, or None.

        None if the file is absent, unreadable or of another run. Loads tensors and plain data only. Deletes temporary files left by a process
        that died while saving.
        """
        for partial in self.path.parent.glob(f".{self.path.name}.*.tmp"):
            partial.unlink(missing_ok=True)
        try:
            content = torch.load(self.path, map_location="cpu", weights_only=True)
        except (OSError, RuntimeError, EOFError, ValueError, pickle.UnpicklingError):
            return None
        if not isinstance(content, dict) or content.get("identity") != dict(self.identity):
            return None
        before: list[str] = content["hosts"]
        self.hosts[:] = before if before[-1:] == self.hosts[-1:] else [*before, *self.hosts[-1:]]
        state: dict[str, Any] | None = content["state"].get(self.part) if self.part else content["state"]
        return state


def random_state() -> dict[str, torch.Tensor]:
    """Return the states of torch's global random generators."""
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
