"""The recurrent encoder-decoder against its formulas in plain float64; who reads whom; padding in both halves; cost at even lengths."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from models import recurrent_attention
from models.layers.halves import num_source_tokens, split
from models.layers.shape import Interface, Shape
from models.recurrent_attention import RECURRENCES, Config, RecurrentAttention
from tests.contracts import checks
from tests.contracts.checks import assert_close_to_largest, randomise
from tests.contracts.subjects import family_subject

TOKENS = Interface(input="tokens", vocab_size=11, num_classes=7, output="tokens")
SHAPE = Shape(seq_len=13, width=8, depth=2, heads=1, ffn_width=12)
WIDTH = SHAPE.width


def built(*, seed: int = 0, seq_len: int = 13, **options: Any) -> RecurrentAttention:
    """In float64, every parameter drawn anew."""
    torch.manual_seed(seed)
    config = Config(shape=dataclasses.replace(SHAPE, seq_len=seq_len), interface=TOKENS, **options)
    model = recurrent_attention.build(config).double().eval()
    randomise(model, std=0.5)
    return model


def ids(seq_len: int, *, batch: int = 3) -> Tensor:
    return torch.randint(TOKENS.vocab_size, (batch, seq_len))


def gated(weights: dict[str, Tensor], unit: str, inputs: Tensor, state: Tensor) -> Tensor:
    """One unit's next state: reset and update gates, and a candidate (torch.nn.GRU's formula)."""
    suffix = "_l0" if f"{unit}.weight_ih_l0" in weights else ""
    read = weights[f"{unit}.weight_ih{suffix}"] @ inputs + weights[f"{unit}.bias_ih{suffix}"]
    recalled = weights[f"{unit}.weight_hh{suffix}"] @ state + weights[f"{unit}.bias_hh{suffix}"]
    reset, update = (torch.sigmoid(read[i : i + WIDTH] + recalled[i : i + WIDTH]) for i in (0, WIDTH))
    candidate = torch.tanh(read[2 * WIDTH :] + reset * recalled[2 * WIDTH :])
    return (1 - update) * candidate + update * state


def answers_of_one(weights: dict[str, Tensor], source: list[int], target: list[int]) -> Tensor:
    """`(source + target tokens, num_classes)` of one item without padding, token by token."""
    states = [torch.zeros(WIDTH, dtype=torch.float64) for _ in range(SHAPE.depth)]
    memory, decoded = [], []
    for token in source:
        read = weights["embedding.source.project.weight"][token]
        for layer in range(SHAPE.depth):
            states[layer] = read = gated(weights, f"blocks.encoder.layers.{layer}", read, states[layer])
        memory.append(read)
    for token in target:
        asked = weights["blocks.decoder.score.query.weight"] @ states[-1]
        energies = [
            weights["blocks.decoder.score.combine.weight"][0] @ torch.tanh(asked + weights["blocks.decoder.score.key.weight"] @ state)
            for state in memory
        ]
        shares = [energy.exp() / sum(other.exp() for other in energies) for energy in energies]
        context = torch.stack([share * state for share, state in zip(shares, memory, strict=True)]).sum(dim=0)
        read = torch.cat((weights["embedding.target.project.weight"][token], context))
        for layer in range(SHAPE.depth):
            states[layer] = read = gated(weights, f"blocks.decoder.layers.{layer}", read, states[layer])
        decoded.append(read)
    hidden = nn.functional.gelu(torch.stack(memory + decoded) @ weights["head.hidden.weight"].T + weights["head.hidden.bias"])
    return hidden @ weights["head.classify.weight"].T + weights["head.classify.bias"]


@pytest.mark.parametrize("recurrence", RECURRENCES)
@pytest.mark.parametrize("seq_len", [2, 3, 12, 13])
def test_it_answers_as_the_formulas_say(recurrence: str, seq_len: int) -> None:
    model = built(seq_len=seq_len, recurrence=recurrence)
    data = ids(seq_len)
    source, target = split(data)
    with torch.no_grad():
        found = model(data)
        for item in range(3):
            expected = answers_of_one(model.state_dict(), source[item].tolist(), target[item].tolist())
            assert_close_to_largest(found[item], expected, 1e-12)
            wrong = answers_of_one(model.state_dict(), source[item].flip(0).tolist(), [1, *target[item, 1:].tolist()])
            if not torch.equal(source[item], source[item].flip(0)):
                assert not torch.allclose(found[item], wrong, rtol=1e-3)


@pytest.mark.parametrize("recurrence", RECURRENCES)
def test_among_padding_it_answers_as_the_formulas_say_of_the_valid_tokens_alone(recurrence: str) -> None:
    model = built(recurrence=recurrence)
    data = ids(13)
    valid = torch.tensor([[1, 1, 0, 0, 0, 0, 0, 1, 1, 1, 0, 0, 0], [1] * 13, [0, 1, 0, 1, 1, 0, 0, 0, 1, 0, 0, 1, 1]]).bool()
    with torch.no_grad():
        found = model(data, valid)
        for item in range(3):
            source, target = (half[read].tolist() for half, read in zip(split(data[item][None]), split(valid[item][None]), strict=True))
            assert_close_to_largest(found[item][valid[item]], answers_of_one(model.state_dict(), source, target), 1e-12)


def test_both_formulations_have_the_same_gradients() -> None:
    native, products = (built(recurrence=recurrence) for recurrence in RECURRENCES)
    products.load_state_dict(native.state_dict())
    data, upstream = ids(13), torch.randn(3, 13, 7, dtype=torch.float64)
    for model in (native, products):
        (model(data) * upstream).sum().backward()
    expected = dict(products.named_parameters())
    for name, parameter in native.named_parameters():
        assert parameter.grad is not None
        reference = expected[name].grad
        assert reference is not None
        assert_close_to_largest(parameter.grad, reference, 1e-10, name)


def test_the_shapes_are_those_of_the_source() -> None:
    shape = Shape(seq_len=20, width=200, depth=2, heads=1, ffn_width=256)
    interface = Interface(input="tokens", vocab_size=1000, num_classes=2000, output="tokens")
    model = recurrent_attention.build(Config(shape=shape, interface=interface, target_vocab=2000)).eval()
    with torch.no_grad():
        answers = model.translate(torch.randint(1000, (4, 10)), torch.randint(2000, (4, 10)))
    assert answers.shape == (4, 10, 2000)


@settings(max_examples=20)
@given(seed=st.integers(0, 2**32 - 1), seq_len=st.integers(2, 16), data=st.data())
def test_a_token_reaches_itself_and_all_later_ones(seed: int, seq_len: int, data: st.DataObject) -> None:
    model = built(seed=seed, seq_len=seq_len)
    place = data.draw(st.integers(0, seq_len - 1), label="place")
    tokens = ids(seq_len)
    other = tokens.clone()
    other[:, place] = (tokens[:, place] + 1) % TOKENS.vocab_size
    with torch.no_grad():
        changed = (model(tokens) != model(other)).any(dim=-1)
    assert torch.equal(changed, (torch.arange(seq_len) >= place).expand_as(changed))


@settings(max_examples=15)
@given(seed=st.integers(0, 2**32 - 1), seq_len=st.integers(2, 16), recurrence=st.sampled_from(sorted(RECURRENCES)))
def test_what_padding_holds_in_either_half_changes_no_answer(seed: int, seq_len: int, recurrence: str) -> None:
    model = built(seed=seed, seq_len=seq_len, recurrence=recurrence)
    tokens, other = ids(seq_len), ids(seq_len)
    valid = torch.rand(3, seq_len) < 0.5
    valid[0, : num_source_tokens(seq_len)] = False
    valid[0, -1] = True  # an answer from a source that is all padding
    valid[1, num_source_tokens(seq_len) :] = False
    valid[1, 0] = True
    with torch.no_grad():
        expected = model(tokens, valid)[valid]
        assert expected.isfinite().all()
        assert expected.std() > 0
        assert torch.equal(model(torch.where(valid, tokens, other), valid)[valid], expected)


def test_halves_of_padding_leave_every_gradient_finite() -> None:
    model = built()
    valid = torch.ones(3, 13, dtype=torch.bool)
    valid[0, :7] = False
    valid[1, 7:] = False
    model(ids(13), valid)[valid].square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in model.parameters())


def test_greedy_decoding_needs_the_encoder_once_and_may_write_a_target_of_any_length() -> None:
    model = built()
    source, target = split(ids(13))
    with torch.no_grad():
        memory, states = model.encode(source)
        for place in range(1, target.shape[1]):
            target[:, place] = model.head(model.decode(target[:, :place], memory, states))[:, -1].argmax(dim=-1)
        assert torch.equal(model.translate(source, target)[:, :-1].argmax(dim=-1), target[:, 1:])


def test_a_model_that_answers_once_cannot_translate() -> None:
    model = recurrent_attention.build(Config(shape=SHAPE, interface=dataclasses.replace(TOKENS, output="class")))
    with pytest.raises(ValueError, match="output must be tokens to translate, not class"):
        model.translate(*split(ids(13)))


@pytest.mark.parametrize(("seq_len", "output"), [(2, "class"), (3, "tokens"), (64, "tokens")])
def test_the_cost_is_counted_at_even_and_at_the_shortest_lengths_too(seq_len: int, output: str) -> None:
    subject = family_subject("recurrent_attention", Interface(output=output), {})
    checks.check_params(subject, seq_len)
    checks.check_flops(subject, seq_len)
    checks.check_train_flops(subject, seq_len)


def test_attention_is_all_that_is_quadratic() -> None:
    cost = recurrent_attention.cost(Config(shape=dataclasses.replace(SHAPE, seq_len=16)))
    quadratic = {term.name: term.macs.degree(2) for term in cost.terms if term.macs.degree(2)}
    names = ("scores", "weighted_sum")
    assert quadratic == {f"blocks.decoder.attention.{name}": WIDTH // 4 for name in names}


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"shape": dataclasses.replace(SHAPE, width=10)}, "width must be a multiple of .*: 10 is not a multiple of 4"),
        ({"pool": "cls"}, "pool must be one of mean, not 'cls'"),
        ({"recurrence": "unrolled"}, "recurrence must be one of native, products, not 'unrolled'"),
        ({"target_vocab": 3}, "target_vocab must be 0 or at least 11, the vocabulary of the data"),
    ],
)
def test_what_cannot_be_built_is_refused(change: dict[str, Any], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        Config(**{"shape": SHAPE, "interface": TOKENS, **change})
