"""The training loop: it learns what can be learned and nothing else, repeats itself, and looks at the test items once."""

from __future__ import annotations

import dataclasses
import itertools
import math
import time
from collections import Counter

import pytest
import torch
from torch import Tensor, nn

from bench.progress import listening, taking_turns
from bench.spec import Recipe
from bench.tasks import Split
from bench.tasks._info import CLASS
from bench.training import loop
from bench.training.data import TrainingData
from bench.training.loop import DivergedError, TrainResult, train
from bench.training.reading import Reader, split_validation
from tests.training.small_trainings import differences, losses

NUM_CLASSES = 4
RECIPE = Recipe(epochs=6, batch_size=32, learning_rate=1e-2, validation_fraction=0.2)


def clusters(num_items: int, seed: int) -> Split:
    """Points around one corner per class, easy to tell apart; the last feature is the item's own number, scaled down to near nothing."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(num_items) % NUM_CLASSES
    points = 2.0 * torch.eye(8)[labels] + 0.3 * torch.randn(num_items, 8, generator=generator)
    return Split(inputs=torch.cat((points, numbers(num_items, seed)[:, None]), dim=1), targets=labels)


def numbers(num_items: int, seed: int) -> Tensor:
    return (torch.arange(num_items) + 10_000 * seed) * 1e-9


def data_of(examples: Split, test: Split, fraction: float = 0.2) -> TrainingData:
    learned, held_out = split_validation(examples, fraction, torch.Generator().manual_seed(0))
    return TrainingData(learned=learned, held_out=held_out, test=test, reader=Reader(), answers=CLASS)


def made_data() -> TrainingData:
    return data_of(clusters(200, seed=1), clusters(80, seed=2))


class Perceptron(nn.Module):
    """Reads as every family does, and drops where a recipe says so."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(9, 16), nn.ReLU(), nn.Linear(16, NUM_CLASSES))
        self.dropout = 0.0

    def forward(self, data: Tensor, _: Tensor | None) -> Tensor:
        logits: Tensor = self.layers(nn.functional.dropout(data, self.dropout, self.training))
        return logits


def build(seed: int = 0) -> Perceptron:
    torch.manual_seed(seed)
    return Perceptron()


def run(recipe: Recipe = RECIPE, seed: int = 0, data: TrainingData | None = None) -> tuple[nn.Module, TrainResult]:
    model = build()
    return model, train(model, data or made_data(), recipe, seed=seed)


def changed(**changes: object) -> Recipe:
    return dataclasses.replace(RECIPE, **changes)  # type: ignore[arg-type]


def test_an_epoch_counts_the_right_answers_of_its_batches_as_they_were_learned() -> None:
    """With dropout, which changes them; and it tells the loss on the validation items."""
    right, model, data = list[bool](), build(), made_data()

    def note(_module: nn.Module, arguments: tuple[Tensor, ...], outputs: Tensor) -> None:
        if model.training:
            items = (arguments[0][:, -1] * 1e9).round().long() - 10_000
            right.extend((outputs.argmax(dim=1) == items % NUM_CLASSES).tolist())

    hook = model.register_forward_hook(note)
    result = train(model, data, changed(epochs=2, dropout=0.2, dropout_at=("residual",), batch_size=12), seed=0)
    hook.remove()
    num = len(data.learned)
    found = [epoch.train_accuracy for epoch in result.epochs]
    assert found == [pytest.approx(sum(right[:num]) / num), pytest.approx(sum(right[num:]) / num)]
    assert 0 < sum(right[:num]) < num
    with torch.no_grad():
        expected = nn.functional.cross_entropy(model.eval()(data.held_out.inputs, None), data.held_out.targets)
    assert result.epochs[result.best_epoch - 1].validation_loss == pytest.approx(float(expected), rel=1e-4)


def test_it_learns_what_can_be_learned() -> None:
    _, result = run(changed(epochs=12))
    assert result.test is not None
    assert (result.test.value, result.train.value, result.validation.value) == (1.0, 1.0, 1.0)
    assert result.num_learned == 160
    assert result.train_s > sum(epoch.steps_s for epoch in result.epochs)


def test_shuffled_labels_train_to_chance() -> None:
    """Labels dealt at random are learned by heart and say nothing of the test items: within five standard deviations of guessing."""
    generator = torch.Generator().manual_seed(5)

    def shuffled(num_items: int) -> Split:
        labels = (torch.arange(num_items) % NUM_CLASSES)[torch.randperm(num_items, generator=generator)]
        return Split(inputs=torch.randn(num_items, 9, generator=generator), targets=labels)

    recipe = Recipe(epochs=40, batch_size=8, learning_rate=2e-2)
    result = train(build(), data_of(shuffled(80), shuffled(1000), 0.1), recipe, seed=0)
    chance = 1 / NUM_CLASSES
    assert result.test is not None
    assert result.train.value > 2 * chance
    assert abs(result.test.value - chance) < 5 * math.sqrt(chance * (1 - chance) / 1000)


def test_the_same_seed_gives_the_same_bits_and_another_another_order() -> None:
    dropping = changed(dropout=0.3, dropout_at=("residual",))  # the one place where the perceptron drops
    assert differences(run(dropping), run(dropping)) == []
    assert losses(run(dropping)[1]) != losses(run(seed=0)[1]) != losses(run(seed=1)[1])


class Watcher(nn.Module):
    """A linear model that counts how often it met each item, by its last feature, while learning and while being scored."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(9, NUM_CLASSES)
        self.learned: Counter[float] = Counter()
        self.scored: Counter[float] = Counter()

    def forward(self, data: Tensor, _: Tensor | None) -> Tensor:
        (self.learned if self.training else self.scored).update(data[:, -1].tolist())
        logits: Tensor = self.linear(data)
        return logits


def test_each_part_of_the_data_is_used_for_its_purpose_alone() -> None:
    model = Watcher()
    train(model, made_data(), changed(accumulate=2), seed=0)
    test_items = set(numbers(80, seed=2).tolist())
    items = set(numbers(200, seed=1).tolist())
    assert {item: model.scored[item] for item in test_items} == dict.fromkeys(test_items, 1)
    assert not test_items & set(model.learned)
    learned = set(model.learned)
    assert len(learned) == 160
    assert set(model.learned.values()) == {RECIPE.epochs}
    # held-out items are scored at every epoch, and once more with the weights kept, as the learned ones are
    assert {model.scored[item] for item in items - learned} == {RECIPE.epochs + 1}
    assert {model.scored[item] for item in learned} == {1}
    model = Watcher()
    assert train(model, made_data(), RECIPE, seed=0, scores_test=False).test is None
    assert not test_items & (set(model.scored) | set(model.learned))


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

    def forward(self, data: Tensor, _: Tensor | None) -> Tensor:
        logits = data[:, :NUM_CLASSES] + 0 * self.bias
        if self.training:
            return logits
        wrong_from = round(self.right_by_epoch[int(self.epoch) - 1] * len(data))
        logits[wrong_from:] = -logits[wrong_from:]
        return logits


def run_script(script: tuple[float, ...], solved_at: float | None = None, **changes: object) -> tuple[Scripted, TrainResult]:
    model = Scripted(script)
    examples = Split(inputs=torch.eye(9)[torch.arange(200) % NUM_CLASSES], targets=torch.arange(200) % NUM_CLASSES)
    recipe = dataclasses.replace(Recipe(epochs=len(script), batch_size=50, learning_rate=0.0), **changes)  # type: ignore[arg-type]
    return model, train(model, dataclasses.replace(data_of(examples, examples), solved_at=solved_at), recipe, seed=0)


@pytest.mark.parametrize(("script", "best"), [((0.5, 1.0, 1.0, 0.0), 3), ((1.0, 0.5), 1)])
def test_the_best_epoch_is_kept_and_of_equals_the_later(script: tuple[float, ...], best: int) -> None:
    model, result = run_script(script)
    assert result.best_epoch == best
    assert int(model.epoch) == best
    assert [epoch.validation for epoch in result.epochs] == list(script)
    assert result.test is not None
    assert result.test.value == max(script)


@pytest.mark.parametrize(
    ("script", "early_stop", "num_epochs"),
    [
        ((0.5, 0.25, 0.25, 1.0), 0, 4),
        ((0.5, 0.25, 0.75, 0.5, 0.5, 1.0), 2, 5),
        ((1.0, 1.0, 1.0, 1.0), 2, 3),  # an equal score is none better
    ],
)
def test_training_ends_early_after_epochs_without_a_better_score(script: tuple[float, ...], early_stop: int, num_epochs: int) -> None:
    _, result = run_script(script, early_stop=early_stop)
    assert len(result.epochs) == num_epochs


@pytest.mark.parametrize(("solved_at", "num_epochs"), [(0.75, 3), (0.7, 3), (0.8, 4), (None, 4)])
def test_training_ends_when_the_validation_score_solves_the_task(solved_at: float | None, num_epochs: int) -> None:
    _, result = run_script((0.5, 0.25, 0.75, 0.75), solved_at=solved_at, until_solved=True)
    assert len(result.epochs) == num_epochs
    _, result = run_script((0.5, 0.25, 0.75, 0.75), solved_at=solved_at)
    assert len(result.epochs) == 4


def test_an_epoch_of_some_items_draws_them_anew_each_time() -> None:
    model = Watcher()
    result = train(model, made_data(), dataclasses.replace(RECIPE, epoch_items=48), seed=0)
    assert sum(model.learned.values()) == 48 * RECIPE.epochs
    assert len(model.learned) > 48
    assert (result.num_learned, result.num_steps) == (48, 2 * RECIPE.epochs)


@pytest.mark.parametrize(("schedule", "factors"), [("plateau", [1.0, 1.0, 0.5, 0.5, 0.25]), ("cosine", [0.959, 0.778, 0.5, 0.222, 0.041])])
def test_the_schedule_decides_the_rate_of_every_epoch(schedule: str, factors: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """The score falls back in the second and fourth epoch; the cosine is the mean over steps of (1 + cos(pi k / 21)) / 2."""
    rates: list[float] = []
    learn = loop.Training.learn

    def learn_and_note(training: loop.Training, chosen: Tensor) -> None:
        learn(training, chosen)
        rates.append(training.optimizer.param_groups[0]["lr"])

    monkeypatch.setattr(loop.Training, "learn", learn_and_note)
    run_script((0.5, 0.25, 1.0, 0.5, 0.5), schedule=schedule, patience=0, learning_rate=1e-3, warmup=0.0)
    by_epoch = [sum(rates[start : start + 4]) / 4e-3 for start in range(0, 20, 4)]
    assert by_epoch == pytest.approx(factors, abs=1e-3)


@pytest.mark.parametrize(("bad_epoch", "factor", "problem"), [(1, float("nan"), "the loss is nan"), (3, 1e6, "in the first step")])
def test_divergence_names_its_epoch_and_keeps_those_before(bad_epoch: int, factor: float, problem: str) -> None:
    """A loss that is no number, or that is finite and more than ten times the first."""
    model = build()
    calls = itertools.count(1)
    steps_per_epoch = math.ceil(160 / RECIPE.batch_size)

    def spoil(module: nn.Module, _: tuple[Tensor, ...], output: Tensor) -> Tensor:
        spoiled = module.training and next(calls) == steps_per_epoch * (bad_epoch - 1) + 2
        return output * -factor if spoiled else output

    model.register_forward_hook(spoil)
    with pytest.raises(DivergedError, match=rf"epoch {bad_epoch}\b.*{problem}.*lower learning rate") as diverged:
        train(model, made_data(), RECIPE, seed=0)
    undisturbed = run()[1]
    model = build()
    model.register_forward_hook(lambda module, _, output: output * 3 if module.training else output)
    assert len(train(model, made_data(), changed(learning_rate=0.0), seed=0).epochs) == RECIPE.epochs  # below ten times the first
    assert diverged.value.outcome_samples["loss"] == losses(undisturbed)[: bad_epoch - 1]
    assert len(diverged.value.outcome_samples["validation"]) == bad_epoch - 1


def test_weights_lost_in_the_very_last_step_are_noticed() -> None:
    """The loss of the only step is a number, the weights after it are not."""
    with pytest.raises(DivergedError, match=r"epoch 1: the answers are not finite"):
        run(Recipe(epochs=1, batch_size=1000, learning_rate=float("inf"), warmup=0.0))


def test_the_reported_loss_is_the_mean_over_items_whatever_the_batches() -> None:
    """With a learning rate of zero, the loss is that of the fixed model, in even and ragged batches alike."""
    found = [
        losses(run(Recipe(epochs=1, batch_size=size, accumulate=accumulate, learning_rate=0.0, weight_decay=0.0))[1])[0]
        for size, accumulate in ((160, 1), (32, 1), (7, 1), (7, 3))
    ]
    assert found == pytest.approx([found[0]] * 4, rel=1e-6)


class Normalised(Perceptron):
    """Its batch normalisation refuses a single item in training."""

    def __init__(self) -> None:
        super().__init__()
        self.layers.insert(1, nn.BatchNorm1d(16))


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_last_batch_of_one_item_joins_the_one_before(accumulate: int) -> None:
    assert len(made_data().learned) == 3 * 53 + 1
    result = train(Normalised(), made_data(), changed(batch_size=53, accumulate=accumulate, epochs=2), seed=0)
    assert result.num_learned == 160
    assert [epoch.number for epoch in result.epochs] == [1, 2]


class Complex(Perceptron):
    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Parameter(torch.eye(9, dtype=torch.cfloat))

    def forward(self, data: Tensor, _: Tensor | None) -> Tensor:
        return super().forward((data.to(torch.cfloat) @ self.mix).real, None)


def test_complex_weights_learn() -> None:
    model = Complex()
    train(model, made_data(), changed(epochs=1), seed=0)
    assert (model.mix - torch.eye(9)).abs().max() > 0


class Detached(Perceptron):
    def forward(self, data: Tensor, _: Tensor | None) -> Tensor:
        with torch.no_grad():
            return super().forward(data, None)


def test_answers_without_a_gradient_are_refused() -> None:
    with pytest.raises(ValueError, match="carry no gradient"):
        train(Detached(), made_data(), changed(epochs=1), seed=0)


def test_bf16_autocast_learns_and_keeps_fp32_weights() -> None:
    met: set[torch.dtype] = set()
    model = build()
    model.layers[0].register_forward_hook(lambda _, __, output: met.add(output.dtype))
    result = train(model, made_data(), changed(precision="bf16-autocast"), seed=0)
    assert result.epochs[-1].loss < 0.7 * result.epochs[0].loss
    assert (met, {parameter.dtype for parameter in model.parameters()}) == ({torch.bfloat16}, {torch.float32})


def test_progress_tells_epoch_loss_and_score_and_nothing_within_the_first_second(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    with listening(told.append):
        monkeypatch.setattr(loop, "MESSAGE_EVERY_S", 1e6)
        run()
        assert told == []
        monkeypatch.setattr(loop, "MESSAGE_EVERY_S", 0.0)
        _, result = run(changed(epochs=2))
    assert len(told) == 10
    assert "validation" not in told[4]
    assert f"validation {result.epochs[0].validation:.3f}" in told[5]
    assert " left" not in told[-1]  # nothing is left but the scores


def test_waiting_for_a_turn_is_no_time_of_training(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, waits = itertools.count(), list[float]()

    def wait() -> float:
        waits.append(1e6)
        return 1e6

    monkeypatch.setattr(time, "perf_counter", lambda: next(clock) + sum(waits))
    with taking_turns(wait):
        _, result = run()
    assert len(waits) > len(result.epochs)
    assert result.train_s < 1e6
    assert max(epoch.steps_s for epoch in result.epochs) < 1e6
