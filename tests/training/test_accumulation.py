"""Several batches per step learn what one batch of all their items would have."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from bench.spec import Recipe
from bench.tasks import IGNORED, Split
from bench.tasks._info import TOKEN_CLASS, TOKEN_VALUE
from bench.training.data import TrainingData
from bench.training.loop import train
from bench.training.reading import Reader

NUM_TOKENS, NUM_CLASSES = 6, 3


class PerToken(nn.Linear):
    """Answers at every token."""

    def forward(self, data: Tensor, _: Tensor | None = None) -> Tensor:
        return super().forward(data)


def made_examples(num_items: int, answers: str, seed: int) -> Split:
    """One answer of the first items is asked for and all of the last: batches weigh unequally."""
    inputs = torch.randn(num_items, NUM_TOKENS, 4, generator=torch.Generator().manual_seed(seed))
    unasked = torch.arange(NUM_TOKENS) > (torch.arange(num_items) * NUM_TOKENS // num_items)[:, None]
    if answers == TOKEN_CLASS:
        return Split(inputs=inputs, targets=inputs[..., :NUM_CLASSES].argmax(-1).masked_fill(unasked, IGNORED))
    return Split(inputs=inputs, targets=inputs.sum(-1).masked_fill(unasked, float("nan")))


def trained_weights(answers: str, batch_size: int, accumulate: int) -> tuple[Tensor, float]:
    torch.manual_seed(0)
    model = PerToken(4, 1 if answers == TOKEN_VALUE else NUM_CLASSES)
    parts = [made_examples(num, answers, seed) for seed, num in enumerate((75, 16, 16))]
    data = TrainingData(learned=parts[0], held_out=parts[1], test=parts[2], reader=Reader(), answers=answers)
    recipe = Recipe(epochs=2, batch_size=batch_size, accumulate=accumulate, learning_rate=1e-2, clip_norm=0.1, early_stop=0)
    result = train(model, data, recipe, seed=0)
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()]), result.epochs[0].loss


@pytest.mark.parametrize("answers", [TOKEN_CLASS, TOKEN_VALUE])
def test_four_batches_of_8_are_one_of_32_even_in_a_ragged_last_step(answers: str) -> None:
    together, together_loss = trained_weights(answers, 32, 1)
    parted, parted_loss = trained_weights(answers, 8, 4)
    torch.testing.assert_close(parted, together, rtol=1e-4, atol=1e-6)
    assert parted_loss == pytest.approx(together_loss, rel=1e-5)
    as_many_steps, _ = trained_weights(answers, 8, 1)
    assert (as_many_steps - together).abs().max() > 1e-3
