"""Greedy decoding feeds a model its own answers, one at a time, and never the right ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from bench.measure.model import build_model
from bench.spec import Recipe
from bench.tasks import IGNORED, Split
from bench.tasks._info import TOKEN_CLASS, Generation, info_of
from bench.training import decoding
from bench.training.data import load_training_data
from bench.training.decoding import generate, score
from bench.training.loop import train
from bench.training.reading import Batch, Reader
from tests.made_jobs import small_model

SYMBOLS, BLANK, START = 6, 6, 7
GENERATION = Generation(start=START, blank=BLANK)


def answering(tokens: Tensor) -> Tensor:
    """Logits for these classes; blanks and start symbols, which are no classes, count as the first."""
    return nn.functional.one_hot(tokens.where(tokens < SYMBOLS, 0), SYMBOLS).float()


def copied(shown: Tensor) -> Split:
    """Sources and, shifted, the same as what is asked for."""
    half = shown.shape[1]
    inputs = torch.cat([shown, torch.full((len(shown), 1), START), shown[:, :-1]], dim=1)
    targets = torch.cat([torch.full((len(shown), half), IGNORED), shown], dim=1)
    return Split(inputs=inputs, targets=targets)


@pytest.fixture
def examples() -> Split:
    """No two neighbours are alike, and none is the first class."""
    return copied(torch.tensor([[1, 2, 3, 4], [5, 1, 4, 2], [2, 4, 1, 3]]))


class Calls:
    """A model made of a function of the tokens, which notes what it was shown."""

    def __init__(self, answer: Callable[[Tensor], Tensor]) -> None:
        self.answer, self.shown = answer, list[Tensor]()

    def __call__(self, data: Tensor, _valid: Tensor | None) -> Tensor:
        self.shown.append(data.clone())
        return answering(self.answer(data))


def batch_of(examples: Split) -> Batch:
    return Reader().read(examples)


def test_a_model_that_looks_back_by_half_the_tokens_is_called_once_per_token_and_right(examples: Split) -> None:
    model = Calls(lambda data: data.roll(4, dims=1))
    batch = batch_of(examples)
    outputs = generate(model, batch, GENERATION)
    assert torch.equal(batch.data, examples.inputs)
    assert outputs.shape == (3, 8, SYMBOLS)
    assert torch.equal(outputs.argmax(dim=-1)[:, 4:], examples.targets[:, 4:])
    assert outputs[:, :4].abs().max() == 0
    first = examples.inputs[0].tolist()
    assert [shown[0].tolist() for shown in model.shown] == [first[: 5 + place] + [BLANK] * (3 - place) for place in range(4)]


def test_reading_the_answers_that_training_shows_is_of_no_use(examples: Split) -> None:
    """The token after each is its answer: all but the last are right when the right ones are shown, and none when they are generated."""

    def peek(data: Tensor) -> Tensor:
        return data.roll(-1, dims=1)

    forced = answering(peek(examples.inputs)).argmax(dim=-1)[:, 4:-1]
    assert torch.equal(forced, examples.targets[:, 4:-1])
    generated = generate(Calls(peek), batch_of(examples), GENERATION).argmax(dim=-1)[:, 4:]
    assert not (generated == examples.targets[:, 4:]).any()


def test_what_was_answered_is_read_next(examples: Split) -> None:
    """Each answer is one more than the token read, 1 after the start symbol: a chain that the right answers would break."""
    counting = Calls(lambda data: torch.where(data == START, 1, data + 1))
    assert generate(counting, batch_of(examples), GENERATION).argmax(dim=-1)[:, 4:].tolist() == [[1, 2, 3, 4]] * 3


def test_nothing_is_generated_beyond_the_last_token_asked_for(examples: Split) -> None:
    targets = examples.targets.clone()
    targets[:, 6:] = IGNORED
    targets[0, 5:] = IGNORED
    model = Calls(lambda data: data.roll(4, dims=1))
    outputs = generate(model, batch_of(Split(inputs=examples.inputs, targets=targets)), GENERATION)
    assert len(model.shown) == 2
    assert torch.equal(outputs.argmax(dim=-1)[:, 4:6], examples.targets[:, 4:6])


def test_a_part_that_begins_otherwise_is_refused(examples: Split) -> None:
    with pytest.raises(ValueError, match="must be the start symbol 9 at token 4"):
        generate(Calls(lambda data: data), batch_of(examples), Generation(start=9, blank=BLANK))


def test_scores_are_of_what_was_generated_in_every_batch(examples: Split, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "MAX_ITEMS", 2)

    def right_but_for_4(data: Tensor) -> Tensor:
        answers = data.roll(4, dims=1)
        return answers.where(answers != 4, 5)

    scores = score(nn.Identity(), examples, Reader(), TOKEN_CLASS, Calls(right_but_for_4), GENERATION)
    assert scores.items.tolist() == [0.75, 0.75, 0.75]
    assert scores.exact == 0.0
    assert score(nn.Identity(), examples, Reader(), TOKEN_CLASS, Calls(lambda data: data.roll(4, dims=1)), GENERATION).exact == 1.0
    forced = score(nn.Identity(), examples, Reader(), TOKEN_CLASS, Calls(lambda data: data.roll(-1, dims=1)))
    assert forced.items.tolist() == [0.75, 0.75, 0.75]


def test_training_is_scored_on_samples_and_the_test_items_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "MAX_SAMPLED", 20)
    task = "copy+items=300+test_items=50+form=shifted+symbols=8"
    model = small_model("transformer", seq_len=8, width=8, heads=2, ffn_width=16, interface=info_of(task).interface(8, "none"))
    recipe = Recipe(epochs=1, batch_size=64)
    torch.manual_seed(0)
    result = train(build_model(model), load_training_data(model, task, recipe, seed=0), recipe, seed=0)
    assert result.test is not None
    assert [len(part.items) for part in (result.train, result.validation, result.test)] == [20, 20, 50]
    assert result.epochs[0].validation == result.validation.value
