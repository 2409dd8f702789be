"""Scoring a model on all items of a split."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from bench.task_info import Generation
from bench.training.decoding import generate
from bench.training.examples import Examples
from bench.training.objective import Scores, join, judge
from bench.training.reading import Reader

MAX_ITEMS = 256
MAX_TOKENS = 65_536


@torch.no_grad()
def score(
    model: nn.Module,
    examples: Examples,
    reader: Reader,
    answers: str,
    forward: Callable[..., Tensor] | None = None,
    generation: Generation | None = None,
) -> Scores:
    """Every item once, in evaluation mode; the model is left in that mode. The examples lie on the model's device.

    `forward`: how the model is called (itself by default). `generation`: where answers are generated token by token, how (`bench.training.decoding`).
    """
    model.eval()
    call = model if forward is None else forward  # a compiled model has no truth value
    items = torch.arange(len(examples), device=examples.targets.device)
    parts = []  # answers are judged batch by batch: those of all items of a long text would not fit
    for chosen in items.split(_batch_size(examples)):
        batch = reader.read(examples.select(chosen))
        outputs = generate(call, batch, generation) if generation else call(batch.data, batch.valid)
        parts.append(judge(answers, outputs.float(), batch.targets))
    return join(answers, parts, examples.targets)


def _batch_size(examples: Examples) -> int:
    """As many items as keep a batch of long sequences within memory."""
    num_tokens = examples.inputs.shape[1] if examples.inputs.ndim < 4 else 1
    return max(1, min(MAX_ITEMS, MAX_TOKENS // num_tokens))
