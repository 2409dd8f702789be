"""Several batches per step learn what one batch of all their items would have."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from bench.spec import Recipe
from bench.tasks import IGNORED, Split
from bench.tasks._info import CLASS, TOKEN_CLASS, TOKEN_VALUE
from bench.training.data import TrainingData
from bench.training.loop import train
from bench.training.reading import Reader

NUM_TOKENS, NUM_CLASSES = 6, 3


class PerToken(nn.Module):
    """A linear answer at every token, or its mean over the tokens."""

    def __init__(self, answers: str) -> None:
        super().__init__()
        self.answers = answers
        self.linear = nn.Linear(4, 1 if answers == TOKEN_VALUE else NUM_CLASSES)

    def forward(self, data: Tensor, _: Tensor | None) -> Tensor:
        outputs: Tensor = self.linear(data)
        return outputs.mean(dim=1) if self.answers == CLASS else outputs


def made_examples(num_items: int, answers: str, seed: int) -> Split:
    """At tokens, one answer of the first items is asked for and all of the last: batches weigh unequally."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(num_items, NUM_TOKENS, 4, generator=generator)
    if answers == CLASS:
        return Split(inputs=inputs, targets=inputs[:, 0, :NUM_CLASSES].argmax(-1))
    unasked = torch.arange(NUM_TOKENS) > (torch.arange(num_items) * NUM_TOKENS // num_items)[:, None]
    if answers == TOKEN_CLASS:
        return Split(inputs=inputs, targets=inputs[..., :NUM_CLASSES].argmax(-1).masked_fill(unasked, IGNORED))
    return Split(inputs=inputs, targets=inputs.sum(-1).masked_fill(unasked, float("nan")))


def trained_weights(answers: str, num_items: int, batch_size: int, accumulate: int) -> tuple[Tensor, float]:
    torch.manual_seed(0)
    model = PerToken(answers)
    parts = [made_examples(num, answers, seed) for seed, num in enumerate((num_items, 16, 16))]
    data = TrainingData(learned=parts[0], held_out=parts[1], test=parts[2], reader=Reader(), answers=answers)
    recipe = Recipe(epochs=2, batch_size=batch_size, accumulate=accumulate, learning_rate=1e-2, clip_norm=0.1, early_stop=0)
    result = train(model, data, recipe, seed=0)
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()]), result.epochs[0].loss


@pytest.mark.parametrize(("answers", "num_items"), [(CLASS, 64), (TOKEN_CLASS, 75), (TOKEN_VALUE, 75)])
def test_four_batches_of_8_are_one_of_32_even_in_a_ragged_last_step(answers: str, num_items: int) -> None:
    together, together_loss = trained_weights(answers, num_items, 32, 1)
    parted, parted_loss = trained_weights(answers, num_items, 8, 4)
    torch.testing.assert_close(parted, together, rtol=1e-4, atol=1e-6)
    assert parted_loss == pytest.approx(together_loss, rel=1e-5)


def test_batches_that_are_steps_of_their_own_learn_otherwise() -> None:
    together, _ = trained_weights(CLASS, 64, 32, 1)
    each, _ = trained_weights(CLASS, 64, 8, 1)
    assert (each - together).abs().max() > 1e-3
