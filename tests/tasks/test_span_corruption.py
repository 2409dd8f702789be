"""Span corruption: the texts can be put together again, and how much is removed in how many spans."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch

from bench.measure.model import build_model
from bench.spec import Recipe, RequestError
from bench.tasks import IGNORED, Split, load_splits
from bench.tasks._info import TOKEN_CLASS, Generation, Sequences, info_of
from bench.tasks.readers.spans import corrupt_spans
from bench.training.data import load_training_data
from bench.training.decoding import score
from tests.contracts.made_data import token_split, write_table
from tests.planning.plans import planned

VOCAB_SIZE = 50
START = VOCAB_SIZE + 100


def spans_of(answers: list[int]) -> dict[int, list[int]]:
    """By sentinel: the tokens that follow it."""
    found: dict[int, list[int]] = {}
    for answer in answers:
        if answer >= VOCAB_SIZE:
            found[answer] = []
        else:
            found[max(found)].append(answer)
    return found


@pytest.mark.parametrize(("rate", "length", "half", "shortest"), [(15, 3, 120, 20), (50, 2, 8, 1), (50, 2, 9, 1), (1, 100, 300, 300)])
def test_the_spans_put_in_place_of_their_sentinels_give_the_text(rate: int, length: int, half: int, shortest: int) -> None:
    texts = token_split(200, half, vocab_size=VOCAB_SIZE, shortest=shortest)
    assert texts.lengths is not None
    corrupted = corrupt_spans(texts, 0, vocab_size=VOCAB_SIZE, rate=rate, length=length)
    assert corrupted.lengths is None
    for text, num_tokens, inputs, targets in zip(
        texts.inputs.tolist(), texts.lengths.tolist(), corrupted.inputs.tolist(), corrupted.targets.tolist(), strict=True
    ):
        assert targets[:half] == [IGNORED] * half
        answers = [answer for answer in targets[half:] if answer != IGNORED]
        assert targets[half:] == answers + [IGNORED] * (half - len(answers))
        assert inputs[half:] == [START, *answers[:-1]] + [0] * (half - len(answers))
        spans = spans_of(answers)
        assert list(spans) == list(range(VOCAB_SIZE, VOCAB_SIZE + len(spans)))
        assert spans.popitem()[1] == []
        assert all(spans.values())
        shown = [token for token in inputs[:half] if token]
        assert [token for token in shown if token >= VOCAB_SIZE] == list(spans)
        assert not any(one >= VOCAB_SIZE <= other for one, other in itertools.pairwise(shown)), "two spans touch"
        assert [word for token in shown for word in spans.get(token, [token])] == text[:num_tokens]
        removed = sum(map(len, spans.values()))
        assert removed == max(1, int(num_tokens * rate / 100 + 0.5))
        assert len(spans) == min(max(1, int(removed / length + 0.5)), num_tokens - removed + 1)


def test_every_place_and_length_of_a_span_occurs_equally_often() -> None:
    """Two spans of 3 tokens in 6: of lengths 1 and 2 or 2 and 1, in two of the four gaps."""
    texts = Split(inputs=torch.arange(1, 7, dtype=torch.int16).repeat(3000, 1), targets=torch.zeros(3000), lengths=torch.full((3000,), 6))
    corrupted = corrupt_spans(texts, 0, vocab_size=VOCAB_SIZE, rate=50, length=2)
    _, counts = np.unique(corrupted.inputs[:, :6].numpy(), axis=0, return_counts=True)
    assert len(counts) == 2 * 6
    assert counts == pytest.approx([250] * 12, abs=75)


@pytest.fixture
def texts(tmp_path: Path) -> str:
    write_table(tmp_path / "made.csv", 60)
    return f"text:{tmp_path / 'made.csv'}"


def test_the_facts_and_the_draw_of_each_split(texts: str) -> None:
    info = info_of(f"span_corruption:{texts}")
    assert (info.answers, info.num_classes, info.generation) == (TOKEN_CLASS, 357, Generation(start=357, blank=0))
    assert isinstance(info.reads, Sequences)
    assert (info.reads.vocab_size, info.reads.multiple, info.reads.min_tokens) == (358, 2, 16)
    # 15 % of 1,989 tokens are 298, in 99 spans; of 1,990 they are 299, in 100, with no sentinel left for the end
    assert info.reads.max_tokens == 2 * 1989
    splits, read = load_splits(f"span_corruption:{texts}", num_tokens=64), load_splits(texts, num_tokens=32)
    for part, seed in ((splits.train, 0), (splits.test, 2)):
        of_texts = read.train if seed == 0 else read.test
        assert torch.equal(part.inputs, corrupt_spans(of_texts, seed, vocab_size=257, rate=15, length=3).inputs)


def test_a_model_that_reads_ahead_is_refused_and_one_that_writes_is_scored(texts: str) -> None:
    task = f"span_corruption:{texts}"
    with pytest.raises(RequestError, match="reads ahead") as refused:
        planned(models="gmlp", task=task, seq="64", params="400k")
    assert "form=blank" not in refused.value.hint
    assert "gmlp+causal=true" in refused.value.hint
    model = planned(models="gmlp+causal=true", task=task, seq="64", params="400k").cells[0].cell.model
    data = load_training_data(model, task, Recipe(), seed=0)
    found = score(build_model(model), data.test, data.reader, data.answers, generation=data.generation)
    assert 0 <= found.value < 0.2
