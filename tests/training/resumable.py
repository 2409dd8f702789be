"""Small trainings that kill themselves and are taken up again, each life in a process of its own, forked from one that has imported torch.

Run as `python -m tests.training.resumable FOLDER`: lives as FOLDER/lives.json says, and leaves one result per life in FOLDER.
"""

from __future__ import annotations

import json
import math
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bench.measure.model import build_model
from bench.spec import ModelSpec, Recipe
from bench.tasks._info import CLASS
from bench.training import checkpoint as checkpoint_file
from bench.training.augment import Augmentation
from bench.training.checkpoint import Checkpoint
from bench.training.data import TrainingData
from bench.training.loop import Training, TrainResult, train
from bench.training.objective import Scores
from bench.training.reading import Examples, Reader
from models.layers.shape import Interface, Shape

NUM_CLASSES, SIDE, PATCH_SIDE = 3, 8, 4
NUM_LEARNED, NUM_HELD_OUT, NUM_TEST = 36, 12, 15
INTERFACE = Interface(patch_dim=3 * PATCH_SIDE**2, num_classes=NUM_CLASSES)
EPOCHS = 3
SEED = 5
IDENTITY: dict[str, str | int] = {"subject": "a training", "threads": 1}
MOMENTS = ("before", "update", "after", "scoring", "writing")


@dataclass(frozen=True, kw_only=True)
class Case:
    family: str
    changes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def recipe(self) -> Recipe:
        return Recipe(**{"epochs": EPOCHS, "batch_size": 8, "learning_rate": 1e-2, **self.changes})

    @property
    def steps_per_epoch(self) -> int:
        return math.ceil(NUM_LEARNED / (self.recipe.batch_size * self.recipe.accumulate))


CASES = {
    "plain": Case(family="gmlp"),
    "dropout and plateau": Case(family="vit", changes={"dropout": 0.2, "schedule": "plateau", "patience": 0}),
    "augmented": Case(
        family="gmlp",
        changes={"augment": ("crop", "flip", "randaugment", "mixup", "cutmix", "erasing"), "dropout": 0.1, "accumulate": 2},
    ),
    "bf16": Case(family="vit", changes={"precision": "bf16-autocast", "schedule": "constant", "augment": ("crop", "flip"), "dropout": 0.1}),
}


@dataclass(frozen=True, kw_only=True)
class Kill:
    """Death at optimizer step `step`, at one of `MOMENTS`; until then the state was saved at every multiple of `saved_every` steps."""

    step: int
    moment: str
    saved_every: int = 1

    def last_saved(self, steps_per_epoch: int) -> int:
        """The number of steps in the state that this life leaves behind; 0: it leaves none."""
        done = self.step
        if self.moment == "scoring":  # no step falls between the end of an epoch and its scores
            done = math.ceil(max(1, self.step) / steps_per_epoch) * steps_per_epoch - 1
        return done // self.saved_every * self.saved_every


def made_images(num_items: int, seed: int) -> Examples:
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (num_items, 3, SIDE, SIDE), dtype=torch.uint8, generator=generator)
    return Examples(inputs=images, targets=torch.arange(num_items) % NUM_CLASSES)


def made_data(augment: tuple[str, ...] = ()) -> TrainingData:
    augmentation = Augmentation(augment, num_classes=NUM_CLASSES) if augment else None
    reader = Reader(patch_side=PATCH_SIDE, mean=torch.full((3,), 0.5), spread=torch.full((3,), 0.3), augmentation=augmentation)
    parts = [made_images(num, seed) for seed, num in enumerate((NUM_LEARNED, NUM_HELD_OUT, NUM_TEST))]
    return TrainingData(learned=parts[0], held_out=parts[1], test=parts[2], reader=reader, answers=CLASS, num_classes=NUM_CLASSES)


def build(family: str, interface: Interface = INTERFACE) -> nn.Module:
    shape = Shape(seq_len=5, width=8, depth=1, heads=2, ffn_width=16)
    torch.manual_seed(SEED)
    return build_model(ModelSpec(name=family, family=family, shape=shape, interface=interface))


def run_case(case: Case, checkpoint: Checkpoint | None) -> tuple[dict[str, Tensor], TrainResult]:
    """Train a case's model from the start, or from where the checkpoint left it."""
    model = build(case.family)
    result = train(model, made_data(case.recipe.augment), case.recipe, seed=SEED, checkpoint=checkpoint)
    return model.state_dict(), result


def summary_of(weights: Mapping[str, Tensor], result: TrainResult) -> dict[str, Any]:
    """What must agree to the bit, as tensors and plain data. Seconds do not count."""
    assert result.test is not None
    return {
        "weights": dict(weights),
        "loss": [epoch.loss for epoch in result.epochs],
        "validation": [epoch.validation for epoch in result.epochs],
        "best_epoch": result.best_epoch,
        "item_scores": result.test.items,
        "train_scores": result.train.items,
    }


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """The names of what does not agree to the bit."""
    assert one["weights"].keys() == other["weights"].keys()
    found = [name for name, value in one["weights"].items() if not torch.equal(value, other["weights"][name])]
    found += [name for name in ("item_scores", "train_scores") if not torch.equal(one[name], other[name])]
    return found + [name for name in ("loss", "validation", "best_epoch") if one[name] != other[name]]


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def arrange_death(kill: Kill, checkpoint: Checkpoint) -> None:
    learn, score = Training.learn, Training.score

    def learn_or_die(training: Training, chosen: Tensor) -> None:
        checkpoint.every_s = 0.0 if (training.step + 1) % kill.saved_every == 0 else math.inf
        is_now = training.step == kill.step
        if is_now and kill.moment == "before":
            die()
        if is_now and kill.moment == "update":
            training.optimizer.register_step_post_hook(lambda *_: die())
        if is_now and kill.moment == "writing":
            checkpoint_file.os.fsync = _tear_and_die  # type: ignore[attr-defined]
        learn(training, chosen)
        if is_now and kill.moment == "after":
            die()

    def score_or_die(training: Training, examples: Examples) -> Scores:
        if kill.moment == "scoring" and training.step >= kill.step:
            die()
        return score(training, examples)

    setattr(Training, "learn", learn_or_die)  # noqa: B010  # a method may not be assigned to
    setattr(Training, "score", score_or_die)  # noqa: B010


def _tear_and_die(file_number: int) -> None:
    os.ftruncate(file_number, os.fstat(file_number).st_size // 2)
    die()


def live(case: Case, path: Path, kill: Kill | None, result_path: Path) -> None:
    """One life: it ends by its kill, or by leaving its result and the step that it began at."""
    checkpoint = Checkpoint(path=path, identity=IDENTITY, every_s=0.0)
    if kill:
        arrange_death(kill, checkpoint)
    state = checkpoint.read()
    weights, result = run_case(case, checkpoint)
    torch.save({**summary_of(weights, result), "began_at": state["step"] if state else 0}, result_path)


def fork_life(case: Case, path: Path, kill: Kill | None, result_path: Path) -> None:
    child = os.fork()
    if not child:
        try:
            live(case, path, kill, result_path)
        finally:
            os._exit(not result_path.exists())
    _, status = os.waitpid(child, 0)
    expected = signal.SIGKILL if kill else 0
    if status != expected:
        raise AssertionError(f"{result_path.stem}: {kill} ended with status {status}")


def main(folder: Path) -> None:
    import torchvision.transforms.v2  # noqa: F401  # once, not in every life

    torch.set_num_threads(1)
    lives: Sequence[Mapping[str, Any]] = json.loads((folder / "lives.json").read_text())
    for life in lives:
        path, result_path = folder / "checkpoints" / f"{life['name']}.pt", folder / f"{life['name']}.pt"
        for kill in (*(Kill(**given) for given in life["kills"]), None):
            fork_life(CASES[life["case"]], path, kill, result_path)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
