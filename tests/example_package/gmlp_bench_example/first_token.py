"""Name the first token of a sequence."""

from __future__ import annotations

from bench.tasks import Place, Sequences, Split, Splits, TaskChoice, TaskInfo
from models.layers.options import Option

OPTIONS = (Option("items", 100, low=20),)
NUM_IDS = 4
NUM_TEST = 40


def info(choice: TaskChoice) -> TaskInfo:
    return TaskInfo(
        name="first_token",
        summary="the first token of a sequence",
        source="made here",
        reads=Sequences(vocab_size=NUM_IDS),
        num_classes=NUM_IDS,
        chance=1 / NUM_IDS,
        num_train=choice.options["items"],
        num_test=NUM_TEST,
    )


def load(choice: TaskChoice, *, num_tokens: int, place: Place) -> Splits:  # noqa: ARG001
    import torch

    def split(items: int, seed: int) -> Split:
        ids = torch.randint(NUM_IDS, (items, num_tokens), generator=torch.Generator().manual_seed(seed))
        return Split(inputs=ids, targets=ids[:, 0].clone())

    return Splits(train=split(choice.options["items"], 1), test=split(NUM_TEST, 2))
