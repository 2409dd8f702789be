"""The training loop: it learns what can be learned and nothing else, repeats itself, and looks at the test items once."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from bench.spec import Recipe
from bench.training.examples import Examples
from bench.training.loop import DivergedError, Epoch, TrainResult, train

NUM_CLASSES = 4
RECIPE = Recipe(epochs=6, batch_size=32, learning_rate=1e-2, validation_fraction=0.2)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def clusters(num_items: int, seed: int) -> Examples:
    """Points around one corner per class, easy to tell apart; the last feature is the item's own number, scaled down to near nothing."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(num_items) % NUM_CLASSES
    points = 2.0 * torch.eye(8)[labels] + 0.3 * torch.randn(num_items, 8, generator=generator)
    return Examples(data=torch.cat((points, number(num_items, seed)[:, None]), dim=1), labels=labels)


def number(num_items: int, seed: int) -> Tensor:
    return (torch.arange(num_items) + 10_000 * seed) * 1e-9


def build(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(9, 16), nn.ReLU(), nn.Linear(16, NUM_CLASSES))


def run(recipe: Recipe = RECIPE, seed: int = 0, examples: Examples | None = None) -> tuple[nn.Module, TrainResult]:
    model = build(seed)
    return model, train(model, examples or clusters(200, seed=1), clusters(80, seed=2), recipe, seed=seed)


def test_it_learns_what_can_be_learned() -> None:
    _, result = run()
    assert (result.test.accuracy, result.train.accuracy, result.validation.accuracy) == (1.0, 1.0, 1.0)
    assert result.epochs[-1].loss < result.epochs[0].loss
    assert result.images_per_s > 0.0
    assert result.train_s > sum(epoch.steps_s for epoch in result.epochs)


def test_shuffled_labels_train_to_chance() -> None:
    """Labels dealt at random are learned by heart and say nothing of the test items: within five standard deviations of guessing."""
    generator = torch.Generator().manual_seed(5)

    def shuffled(num_items: int) -> Examples:
        labels = (torch.arange(num_items) % NUM_CLASSES)[torch.randperm(num_items, generator=generator)]
        return Examples(data=torch.randn(num_items, 9, generator=generator), labels=labels)

    recipe = Recipe(epochs=40, batch_size=8, learning_rate=2e-2, validation_fraction=0.1)
    result = train(build(), shuffled(80), shuffled(1000), recipe, seed=0)
    chance = 1 / NUM_CLASSES
    assert result.train.accuracy > 2 * chance
    assert abs(result.test.accuracy - chance) < 5 * math.sqrt(chance * (1 - chance) / 1000)


def test_the_same_seed_gives_the_same_bits() -> None:
    (first, first_result), (again, again_result) = run(), run()
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
    assert [epoch.loss for epoch in first_result.epochs] == [epoch.loss for epoch in again_result.epochs]
    assert torch.equal(first_result.test.correct, again_result.test.correct)


def test_another_seed_takes_another_order() -> None:
    losses = []
    for seed in (0, 1):
        result = train(build(), clusters(200, seed=1), clusters(80, seed=2), RECIPE, seed=seed)
        losses.append([epoch.loss for epoch in result.epochs])
    assert losses[0] != losses[1]


class Watcher(nn.Module):
    """A linear model that counts how often it met each item, by its last feature, while learning and while being scored."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(9, NUM_CLASSES)
        self.learned: Counter[float] = Counter()
        self.scored: Counter[float] = Counter()

    def forward(self, data: Tensor) -> Tensor:
        (self.learned if self.training else self.scored).update(data[:, -1].tolist())
        logits: Tensor = self.linear(data)
        return logits


def test_each_part_of_the_data_is_used_for_its_purpose_alone() -> None:
    model = Watcher()
    train(model, clusters(200, seed=1), clusters(80, seed=2), RECIPE, seed=0)
    test_items = set(number(80, seed=2).tolist())
    items = set(number(200, seed=1).tolist())
    assert {item: model.scored[item] for item in test_items} == dict.fromkeys(test_items, 1)
    assert not test_items & set(model.learned)
    learned = set(model.learned)
    assert len(learned) == 160
    assert set(model.learned.values()) == {RECIPE.epochs}
    # held-out items are scored at every epoch, and once more with the weights kept, as the learned ones are
    assert {model.scored[item] for item in items - learned} == {RECIPE.epochs + 1}
    assert {model.scored[item] for item in learned} == {1}


class Scripted(nn.Module):
    """Right about the held-out items with a probability set per epoch: its one parameter counts nothing, its buffer counts the epochs."""

    def __init__(self, right_by_epoch: tuple[float, ...]) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(NUM_CLASSES))
        self.epoch: Tensor
        self.register_buffer("epoch", torch.tensor(0))
        self.right_by_epoch = right_by_epoch

    def train(self, mode: bool = True) -> Scripted:
        self.epoch += int(mode)
        return super().train(mode)

    def forward(self, data: Tensor) -> Tensor:
        logits = data[:, :NUM_CLASSES] + 0 * self.bias
        if self.training:
            return logits
        wrong_from = round(self.right_by_epoch[int(self.epoch) - 1] * len(data))
        logits[wrong_from:] = -logits[wrong_from:]
        return logits


@pytest.mark.parametrize(("script", "best"), [((0.5, 1.0, 0.25), 2), ((0.5, 1.0, 1.0, 0.0), 3), ((0.5, 0.5), 2), ((1.0, 0.5), 1)])
def test_the_best_epoch_is_kept_and_of_equals_the_later(script: tuple[float, ...], best: int) -> None:
    model = Scripted(script)
    examples = Examples(data=torch.eye(9)[torch.arange(200) % NUM_CLASSES], labels=torch.arange(200) % NUM_CLASSES)
    recipe = Recipe(epochs=len(script), batch_size=50, validation_fraction=0.2, learning_rate=0.0)
    result = train(model, examples, examples, recipe, seed=0)
    assert result.best_epoch == best
    assert int(model.epoch) == best
    assert [epoch.validation_accuracy for epoch in result.epochs] == list(script)
    assert result.test.accuracy == max(script)


@pytest.mark.parametrize("bad_epoch", [1, 3])
def test_divergence_names_its_epoch(bad_epoch: int) -> None:
    model = build()
    calls = itertools.count(1)
    steps_per_epoch = math.ceil(160 / RECIPE.batch_size)

    def spoil(module: nn.Module, _: tuple[Tensor, ...], output: Tensor) -> Tensor:
        spoiled = module.training and next(calls) == steps_per_epoch * (bad_epoch - 1) + 1
        return output * float("nan") if spoiled else output

    model.register_forward_hook(spoil)
    with pytest.raises(DivergedError, match=rf"epoch {bad_epoch}\b"):
        train(model, clusters(200, seed=1), clusters(80, seed=2), RECIPE, seed=0)


def test_weights_lost_in_the_very_last_step_are_noticed() -> None:
    """The loss of the only step is a number, the weights after it are not."""
    with pytest.raises(DivergedError, match="epoch 1"):
        run(Recipe(epochs=1, batch_size=1000, learning_rate=float("inf"), validation_fraction=0.2, warmup=0.0))


def test_progress_is_told_once_per_epoch() -> None:
    told: list[Epoch] = []
    result = train(build(), clusters(200, seed=1), clusters(80, seed=2), RECIPE, seed=0, progress=told.append)
    assert tuple(told) == result.epochs
    assert [epoch.number for epoch in told] == [1, 2, 3, 4, 5, 6]


def test_the_reported_loss_is_the_mean_over_items_whatever_the_batches() -> None:
    """With a learning rate of zero, the loss is that of the fixed model, in even and ragged batches alike."""
    losses = [
        run(Recipe(epochs=1, batch_size=size, learning_rate=0.0, weight_decay=0.0, validation_fraction=0.2))[1].epochs[0].loss
        for size in (160, 32, 7)
    ]
    assert losses == pytest.approx([losses[0]] * 3, rel=1e-6)


@pytest.mark.parametrize("field", ["epochs", "batch_size"])
def test_an_empty_recipe_is_refused(field: str) -> None:
    with pytest.raises(ValueError, match=f"{field} must be at least 1, not 0"):
        run(Recipe(**{field: 0}))
