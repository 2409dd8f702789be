"""Masked-token prediction: how many tokens are asked for, what they are read as, and that nothing but real tokens is touched."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
import torch

from bench.measure.model import build_model
from bench.spec import RequestError
from bench.tasks import IGNORED, Split, load_splits, masked_token, require_data
from bench.tasks._info import TOKEN_CLASS, Sequences, choose, info_of
from bench.tasks.readers import masking
from bench.tasks.readers.masking import hide_tokens
from tests.contracts.made_data import token_split
from tests.planning.plans import planned

VOCAB_SIZE = 257


def check_hidden(read: Split, hidden: Split, rate: int) -> None:
    """What the contract says of any hidden split, exactly."""
    asked = hidden.targets != IGNORED
    assert read.lengths is not None
    assert asked.sum(1).tolist() == [max(1, (int(length) * rate + 50) // 100) for length in read.lengths]
    assert not (asked & (read.inputs == 0)).any()
    assert torch.equal(hidden.targets[asked], read.inputs[asked].long())
    assert torch.equal(hidden.inputs[~asked], read.inputs[~asked])
    assert hidden.targets.dtype == torch.int64
    assert not (hidden.inputs[asked] == 0).any()
    assert hidden.inputs.max() <= VOCAB_SIZE


@pytest.mark.parametrize("rate", [1, 50, 100])
def test_the_asked_tokens_are_counted_and_only_they_change(rate: int) -> None:
    """Eight of ten are masked, one is replaced, one kept."""
    read = token_split(3000 if rate == 50 else 400, 60, vocab_size=VOCAB_SIZE)
    hidden = hide_tokens(read, vocab_size=VOCAB_SIZE, rate=rate, seed=0)
    check_hidden(read, hidden, rate)
    if rate == 50:
        asked = hidden.targets != IGNORED
        now, before = hidden.inputs[asked], read.inputs[asked]
        assert float((now == VOCAB_SIZE).float().mean()) == pytest.approx(0.8, abs=0.01)
        assert float((now == before).float().mean()) == pytest.approx(0.1, abs=0.01)


def test_replacements_are_other_real_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masking, "MASKED", 0.0)
    monkeypatch.setattr(masking, "REPLACED", 1.0)
    ids = torch.tensor([[1, 2, 3, 4]] * 300, dtype=torch.int16)
    read = Split(inputs=ids, targets=torch.zeros(300), lengths=torch.full((300,), 4))
    hidden = hide_tokens(read, vocab_size=5, rate=100, seed=0)
    for place in range(4):
        assert sorted(hidden.inputs[:, place].unique().tolist()) == sorted({1, 2, 3, 4} - {place + 1})


def test_the_mask_of_a_full_vocabulary_fits_its_integers() -> None:
    read = token_split(50, 60, vocab_size=VOCAB_SIZE)
    assert hide_tokens(read, vocab_size=32767, rate=15, seed=0).inputs.max() == 32767
    wide = hide_tokens(read, vocab_size=32768, rate=15, seed=0)
    assert (wide.inputs.dtype, wide.inputs.max().item()) == (torch.int32, 32768)


@pytest.fixture
def reviews(tmp_path: Path) -> str:
    rows = [{"body": f"review number {row} of this file", "label": row % 2, "split": part} for row, part in enumerate(PARTS)]
    pd.DataFrame(rows).to_csv(tmp_path / "reviews.csv", index=False)
    return f"text:{tmp_path / 'reviews.csv'}"


PARTS = ["train"] * 8 + ["validation"] * 3 + ["test"] * 4


@pytest.mark.parametrize(("option", "rate"), [("", 15), ("+rate=50", 50)])
def test_a_text_task_is_hidden_split_by_split_at_its_rate(reviews: str, option: str, rate: int) -> None:
    task = f"masked_token:{reviews}+text_column=body{option}"
    require_data(task)
    read = load_splits(f"{reviews}+text_column=body", num_tokens=40)
    hidden = load_splits(task, num_tokens=40)
    masks = []
    for part in ("train", "validation", "test"):
        check_hidden(getattr(read, part), getattr(hidden, part), rate)
        masks.append(getattr(hidden, part).targets[:3] == IGNORED)
    assert not torch.equal(masks[0], masks[1])
    assert not torch.equal(masks[1], masks[2])


def test_the_facts_are_those_of_the_texts_with_one_token_more(reviews: str) -> None:
    info = masked_token.info(choose(f"masked_token:{reviews}+text_column=body"))
    assert (info.reads, info.num_classes, info.answers) == (Sequences(vocab_size=258), 257, TOKEN_CLASS)
    assert (info.num_train, info.num_validation, info.num_test) == (8, 3, 4)
    assert info.chance == pytest.approx(1 / 257)
    byte_pairs = info_of("masked_token:imdb+tokenizer=bpe+vocab_size=300")
    assert (byte_pairs.reads, byte_pairs.num_classes) == (Sequences(vocab_size=301), 300)


def shapes_of(task: str, model: str) -> dict[str, torch.Size]:
    spec = planned(models=f"{model}+pool=mean", task=task, seq="40", params="", width="32", depth="2", heads="2").cells[0].cell.model
    return {name: weight.shape for name, weight in build_model(spec).state_dict().items()}


@pytest.mark.parametrize("model", ["gmlp", "vit", "transformer", "metaformer"])
def test_a_classifier_with_the_spare_id_differs_from_the_pre_trained_model_in_its_last_layer_alone(reviews: str, model: str) -> None:
    """In BERT's fine-tuning all weights but those are the pre-trained ones (Sec. 3.2)."""
    task = f"{reviews}+text_column=body"
    pre_trained, tuned = (shapes_of(text, model) for text in (f"masked_token:{task}", f"{task}+spare_ids=1"))
    differing = {name: (shape, tuned[name]) for name, shape in pre_trained.items() if tuned[name] != shape}
    assert pre_trained.keys() == tuned.keys()
    assert differing == {"head.classify.weight": ((257, 32), (2, 32)), "head.classify.bias": ((257,), (2,))}


def test_a_token_that_is_not_hidden_has_the_same_id_before_and_in_fine_tuning(reviews: str) -> None:
    task = f"{reviews}+text_column=body+tokenizer=bpe+vocab_size=300"
    hidden, read = (load_splits(text, num_tokens=12).train for text in (f"masked_token:{task}", f"{task}+spare_ids=1"))
    shown = hidden.targets == IGNORED
    assert torch.equal(hidden.inputs[shown], read.inputs[shown])
    assert int(read.inputs.max()) < 300 == int(hidden.inputs.max())


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ("masked_token", "needs a TEXT TASK"),
        ("masked_token:digits", "reads a text task, found 'digits'"),
        ("masked_token:trec+text_column=body", "unknown option of task trec: 'text_column'"),
        ("masked_token:trec+rate=0", "rate of task masked_token must be a whole number from 1 to 100, not '0'"),
        ("span_corruption", "needs a TEXT TASK"),
        ("span_corruption:masked_token:trec", "reads a text task"),
        ("span_corruption:digits", "task span_corruption reads a text task, found 'digits'"),
        ("span_corruption:trec+length=1", "length of task span_corruption must be a whole number from 2 to 100"),
    ],
)
def test_what_is_no_text_task_or_option_is_refused(task: str, said: str) -> None:
    with pytest.raises(RequestError, match=said):
        info_of(task)
