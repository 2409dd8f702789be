"""The encoder-decoder against torch.nn.Transformer; who reads whom; padding in both halves; cost at even lengths."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from models import encoder_decoder
from models.encoder_decoder import Config, EncoderDecoder
from models.layers.halves import num_source_tokens, split
from models.layers.shape import Interface, Shape
from tests.contracts import checks
from tests.contracts.checks import assert_close_to_largest, randomise
from tests.contracts.subjects import family_subject

TOKENS = Interface(input="tokens", vocab_size=11, num_classes=7, output="tokens")
SHAPE = Shape(seq_len=13, width=16, depth=2, heads=4, ffn_width=24)
EVEN_AND_SHORT = (2, 3, 16, 18)


def built(*, seed: int = 0, seq_len: int = 13, **options: Any) -> EncoderDecoder:
    """In float64, every parameter drawn anew."""
    torch.manual_seed(seed)
    model = encoder_decoder.build(Config(shape=dataclasses.replace(SHAPE, seq_len=seq_len), interface=TOKENS, **options)).double().eval()
    randomise(model, std=0.4)
    return model


def ids(seq_len: int, *, batch: int = 3) -> Tensor:
    return torch.randint(TOKENS.vocab_size, (batch, seq_len))


def peer_of(model: EncoderDecoder, *, norm_first: bool, activation: str) -> nn.Transformer:
    """torch's own with our weights. Left to itself it ends both stacks in a norm, one more than the paper where a block ends in one already."""
    sizes: dict[str, Any] = {"d_model": SHAPE.width, "nhead": SHAPE.heads, "batch_first": True, "dtype": torch.float64}
    layers: dict[str, Any] = {"dim_feedforward": SHAPE.ffn_width, "dropout": 0.0, "activation": activation, "norm_first": norm_first}
    norms = [nn.LayerNorm(SHAPE.width, dtype=torch.float64) if norm_first else None for _ in range(2)]
    encoder_layer, decoder_layer = nn.TransformerEncoderLayer(**sizes, **layers), nn.TransformerDecoderLayer(**sizes, **layers)
    encoder = nn.TransformerEncoder(encoder_layer, SHAPE.depth, norms[0], enable_nested_tensor=False)
    decoder = nn.TransformerDecoder(decoder_layer, SHAPE.depth, norms[1])
    peer = nn.Transformer(**sizes, custom_encoder=encoder, custom_decoder=decoder)
    peer.load_state_dict(renamed(model))
    return peer


def renamed(model: EncoderDecoder) -> dict[str, Tensor]:
    """Our weights by the names of torch.nn.Transformer."""
    found: dict[str, Tensor] = {}
    for name, module in (("encoder", model.norm_source), ("decoder", model.norm_target)):
        found |= {f"{name}.norm.{key}": value for key, value in module.state_dict().items()}
    for i, block in enumerate(model.blocks):
        stack = "encoder" if i < SHAPE.depth else "decoder"
        prefix = f"{stack}.layers.{i % SHAPE.depth}"
        for key, value in block.state_dict().items():
            found[f"{prefix}.{as_in_torch(key, stack)}"] = value
    for prefix in [f"decoder.layers.{i}.multihead_attn" for i in range(SHAPE.depth)]:
        for kind in ("weight", "bias"):
            parts = [found.pop(f"{prefix}.{part}_{kind}") for part in ("query", "key_value")]
            found[f"{prefix}.in_proj_{kind}"] = torch.cat(parts)
    return found


def as_in_torch(key: str, stack: str) -> str:
    cross, feed_forward = "cross_attention", {"encoder": "norm2", "decoder": "norm3"}[stack]
    for ours, theirs in (
        (f"{cross}.update.query.", "multihead_attn.query_"),
        (f"{cross}.update.key_value.", "multihead_attn.key_value_"),
        (f"{cross}.update.project.", "multihead_attn.out_proj."),
        (f"{cross}.norm.", "norm2."),
        ("attention.update.qkv.", "self_attn.in_proj_"),
        ("attention.update.project.", "self_attn.out_proj."),
        ("attention.norm.", "norm1."),
        ("feed_forward.update.expand.", "linear1."),
        ("feed_forward.update.contract.", "linear2."),
        ("feed_forward.norm.", f"{feed_forward}."),
    ):
        if key.startswith(ours):
            return theirs + key.removeprefix(ours)
    raise KeyError(key)


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("padded", [False, True])
def test_it_answers_as_torch_does_with_the_same_weights(norm_first: bool, activation: str, padded: bool) -> None:
    model = built(norm_first=norm_first, activation=activation)
    peer = peer_of(model, norm_first=norm_first, activation=activation)
    source, target = split(ids(13))
    source_valid = target_valid = None
    if padded:
        source_valid = torch.arange(7) < torch.tensor([[7], [4], [1]])
        target_valid = torch.arange(6) < torch.tensor([[3], [6], [2]])
    with torch.no_grad():
        memory = model.encode(source, source_valid)
        found = model.decode(target, memory, target_valid, source_valid)
        expected = peer(
            model.embedding.source(source),
            model.embedding.target(target),
            tgt_mask=torch.ones(6, 6, dtype=torch.bool).triu(1),
            src_key_padding_mask=None if source_valid is None else ~source_valid,
            tgt_key_padding_mask=None if target_valid is None else ~target_valid,
            memory_key_padding_mask=None if source_valid is None else ~source_valid,
        )
        read = slice(None) if target_valid is None else target_valid
        assert_close_to_largest(found[read], expected[read], 1e-12)
        randomise(peer)
        with pytest.raises(AssertionError, match="differs"):
            assert_close_to_largest(found, peer(model.embedding.source(source), model.embedding.target(target)), 1e-2)


def test_the_gradients_are_those_of_torch() -> None:
    model = built()
    peer = peer_of(model, norm_first=False, activation="relu")
    source, target = split(ids(13))
    upstream = torch.randn(3, 6, 16, dtype=torch.float64)
    (model.decode(target, model.encode(source)) * upstream).sum().backward()
    embedded = (half.detach() for half in (model.embedding.source(source), model.embedding.target(target)))
    (peer(*embedded, tgt_mask=torch.ones(6, 6, dtype=torch.bool).triu(1)) * upstream).sum().backward()
    ours, theirs = (dict(block.named_parameters()) for block in (model.blocks[0], peer.encoder.layers[0]))
    for name, parameter in ours.items():
        expected = theirs[as_in_torch(name, "encoder")].grad
        assert parameter.grad is not None
        assert expected is not None
        assert_close_to_largest(parameter.grad, expected, 1e-10, name)


def test_the_shapes_are_those_of_the_source() -> None:
    shape = Shape(seq_len=200, width=200, depth=2, heads=4, ffn_width=256)
    interface = Interface(input="tokens", vocab_size=1000, num_classes=2000, output="tokens")
    model = encoder_decoder.build(Config(shape=shape, interface=interface, target_vocab=2000)).eval()
    with torch.no_grad():
        answers = model.translate(torch.randint(1000, (128, 100)), torch.randint(2000, (128, 100)))
    assert answers.shape == (128, 100, 2000)


@settings(max_examples=25)
@given(seed=st.integers(0, 2**32 - 1), seq_len=st.integers(2, 20), norm_first=st.booleans(), data=st.data())
def test_a_target_token_reaches_itself_and_later_ones_and_a_source_token_everything(
    seed: int, seq_len: int, norm_first: bool, data: st.DataObject
) -> None:
    model = built(seed=seed, seq_len=seq_len, norm_first=norm_first)
    place = data.draw(st.integers(0, seq_len - 1), label="place")
    tokens = ids(seq_len)
    other = tokens.clone()
    other[:, place] = (tokens[:, place] + 1) % TOKENS.vocab_size
    with torch.no_grad():
        changed = (model(tokens) != model(other)).any(dim=-1)
    first = 0 if place < num_source_tokens(seq_len) else place
    assert torch.equal(changed, (torch.arange(seq_len) >= first).expand_as(changed))


@settings(max_examples=15)
@given(seed=st.integers(0, 2**32 - 1), seq_len=st.integers(2, 20), norm_first=st.booleans())
def test_what_padding_holds_in_either_half_changes_no_answer(seed: int, seq_len: int, norm_first: bool) -> None:
    model = built(seed=seed, seq_len=seq_len, norm_first=norm_first)
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
    valid[2, 7] = False  # the first target token, before which there is none
    model(ids(13), valid)[valid].square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in model.parameters())


def test_an_item_without_a_target_is_still_classified_by_its_source() -> None:
    torch.manual_seed(0)
    interface = dataclasses.replace(TOKENS, output="class")
    model = encoder_decoder.build(Config(shape=SHAPE, interface=interface)).eval()
    randomise(model)
    valid = torch.zeros(3, 13, dtype=torch.bool)
    valid[:, :4] = True
    with torch.no_grad():
        answers = model(ids(13), valid)
    assert answers.isfinite().all()
    assert not torch.equal(answers[0], answers[1])


@pytest.mark.parametrize("seq_len", [12, 13])
def test_greedy_decoding_needs_the_encoder_once_and_teacher_forcing_repeats_it(seq_len: int) -> None:
    model = built(seq_len=seq_len)
    source, target = split(ids(seq_len))
    with torch.no_grad():
        memory = model.encode(source)
        for place in range(1, target.shape[1]):
            target[:, place] = model.head(model.decode(target, memory))[:, place - 1].argmax(dim=-1)
        answers = model.translate(source, target)
        assert torch.equal(answers[:, :-1].argmax(dim=-1), target[:, 1:])
        assert_close_to_largest(model(torch.cat((source, target), dim=1))[:, source.shape[1] :], answers, 1e-12)
        assert answers.std() > 0.01


def test_a_model_that_answers_once_cannot_translate() -> None:
    model = encoder_decoder.build(Config(shape=SHAPE, interface=dataclasses.replace(TOKENS, output="class")))
    with pytest.raises(ValueError, match="output must be tokens to translate, not class"):
        model.translate(*split(ids(13)))


@pytest.mark.parametrize("seq_len", EVEN_AND_SHORT)
@pytest.mark.parametrize(("output", "options"), [("class", {}), ("tokens", {"positions": "learned", "norm_first": True})])
def test_the_cost_is_counted_at_even_and_at_the_shortest_lengths_too(seq_len: int, options: dict[str, Any], output: str) -> None:
    subject = family_subject("encoder_decoder", Interface(output=output), options)
    checks.check_params(subject, seq_len)
    checks.check_flops(subject, seq_len)
    checks.check_train_flops(subject, seq_len)


def test_one_polynomial_holds_for_all_even_lengths_and_another_for_the_odd() -> None:
    def cost(n: int) -> Any:
        return encoder_decoder.cost(Config(shape=dataclasses.replace(SHAPE, seq_len=n)))

    assert cost(16) == cost(4096)
    assert cost(17) == cost(4097)
    assert cost(16) != cost(17)


def test_per_target_token_the_decoder_holds_an_attention_more_than_the_encoder() -> None:
    cost = encoder_decoder.cost(Config(shape=dataclasses.replace(SHAPE, seq_len=16)))
    pairs = {term.name: term.macs.degree(2) for term in cost.terms if "scores" in term.name}
    quarter = SHAPE.depth * SHAPE.width // 4
    names = ("encoder.attention", "decoder.attention", "decoder.cross_attention")
    assert pairs == {f"blocks.{name}.scores": quarter for name in names}


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"shape": dataclasses.replace(SHAPE, width=18, heads=1)}, "width must be a multiple of .*: 18 is not a multiple of 4"),
        ({"shape": dataclasses.replace(SHAPE, heads=3)}, "width must be a multiple of heads"),
        ({"pool": "cls"}, "pool must be one of mean, not 'cls'"),
        ({"target_vocab": 3}, "target_vocab must be 0 or at least 11, the vocabulary of the data"),
    ],
)
def test_what_cannot_be_built_is_refused(change: dict[str, Any], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        Config(**{"shape": SHAPE, "interface": TOKENS, **change})
