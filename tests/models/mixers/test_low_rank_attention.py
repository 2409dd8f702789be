"""Low-rank attention: it is the paper's formula, padding adds nothing to what is read, and fresh sums are of the size of a token."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from models import metaformer
from models.layers.dropout import set_dropout
from models.layers.shape import Shape
from models.mixers import attention
from models.mixers.low_rank_attention import Config, LowRankAttention, build, cost
from tests.contracts.checks import assert_bf16_keeps_its_digits, assert_close_to_largest, randomise

N, WIDTH, HEADS, BATCH = 7, 8, 2, 3
over_sharing = pytest.mark.parametrize("share", [False, True])


def mixer(*, n: int = N, rank: int = 3, std: float = 0.5, share: bool = False) -> LowRankAttention:
    """In float64, with weights that all matter."""
    module = build(Config(seq_len=n, width=WIDTH, heads=HEADS, rank=rank, share=share)).double().eval()
    torch.manual_seed(0)
    randomise(module, std=std)
    return module


def drawn_tokens(n: int = N, *, batch: int = BATCH) -> Tensor:
    return torch.randn(batch, n, WIDTH, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def padded() -> Tensor:
    """One item of full length, one padded at its end, one with padding in front, in between and behind."""
    valid = torch.ones(BATCH, N, dtype=torch.bool)
    valid[1, N // 2 :] = False
    valid[2, [0, 2, N - 1]] = False
    return valid


def by_formula(module: LowRankAttention, tokens: Tensor, valid: Tensor) -> Tensor:
    """`(n, width)`, one item: keys E (X W_k) and values F (X W_v), summed token by token, in the order of arXiv 2006.04768, Eq. 7."""
    of_keys, of_values = module.compress[0], module.compress[-1]
    query = [token @ module.query.weight.T + module.query.bias for token in tokens]
    keys, values = [], []
    for row in range(of_keys.shape[0]):
        places = [place for place in range(len(tokens)) if valid[place]]
        keys.append(sum((of_keys[row, j] * (tokens[j] @ module.key.weight.T) for j in places), start=torch.zeros(WIDTH).double()))
        values.append(sum((of_values[row, j] * (tokens[j] @ module.value.weight.T) for j in places), start=module.value.bias))
    answers = []
    for q in query:
        heads = []
        for head in range(HEADS):
            part = slice(head * WIDTH // HEADS, (head + 1) * WIDTH // HEADS)
            exponentials = torch.stack([((q[part] * key[part]).sum() / (WIDTH // HEADS) ** 0.5).exp() for key in keys])
            weights = exponentials / exponentials.sum()
            heads.append(sum((w * value[part] for w, value in zip(weights, values, strict=True)), start=torch.zeros_like(q[part])))
        answers.append(torch.cat(heads) @ module.project.weight.T + module.project.bias)
    return torch.stack(answers)


@over_sharing
@pytest.mark.parametrize("rank", [2, 3, N, 12])
@pytest.mark.parametrize("padding", [False, True])
def test_it_answers_as_the_formula_does(share: bool, rank: int, padding: bool) -> None:
    """Answers at valid tokens and all gradients, with NaN in padding."""
    module, valid = mixer(rank=rank, share=share), padded() if padding else torch.ones(BATCH, N, dtype=torch.bool)
    plain = drawn_tokens().requires_grad_()
    given = plain.detach().masked_fill(~valid[..., None], float("nan")).requires_grad_()
    found = module(given, valid if padding else None)[valid]
    expected = torch.cat([by_formula(module, item, places)[places] for item, places in zip(plain, valid, strict=True)])
    assert_close_to_largest(found, expected, 1e-12)
    upstream = torch.randn_like(found)
    parameters = dict(module.named_parameters())
    ours, theirs = (torch.autograd.grad(answer, [at, *parameters.values()], upstream) for answer, at in ((found, given), (expected, plain)))
    for name, one, other in zip(["tokens", *parameters], ours, theirs, strict=True):
        assert_close_to_largest(one, other, 1e-10, name)


@over_sharing
def test_padding_is_as_a_model_without_its_columns(share: bool) -> None:
    module, valid = mixer(share=share), torch.ones(1, N, dtype=torch.bool)
    valid[0, [0, 3, N - 1]] = False
    kept = valid[0].nonzero()[:, 0]
    short = mixer(n=len(kept), share=share)
    short.load_state_dict(module.state_dict() | {"compress": module.compress[..., kept]})
    tokens = drawn_tokens(batch=1)
    with torch.no_grad():
        assert_close_to_largest(module(tokens, valid)[valid], short(tokens[:, kept])[0], 1e-12)
        assert (module(tokens)[valid] - short(tokens[:, kept])[0]).abs().max() > 0.01


def test_one_shared_matrix_is_two_equal_ones() -> None:
    one, two, tokens = mixer(share=True), mixer(), drawn_tokens()
    with torch.no_grad():
        apart = two(tokens)
        two.load_state_dict(one.state_dict() | {"compress": one.compress.expand(2, -1, -1)})
        assert_close_to_largest(two(tokens), one(tokens), 1e-12)
        assert (apart - one(tokens)).abs().max() > 0.01


def test_with_a_matrix_of_one_and_zero_it_is_attention() -> None:
    module, peer, tokens = mixer(rank=N), attention.build(attention.Config(seq_len=N, width=WIDTH, heads=HEADS)).double(), drawn_tokens()
    with torch.no_grad():
        module.compress.copy_(torch.eye(N).expand(2, -1, -1))
        peer.qkv.weight.copy_(torch.cat([module.query.weight, module.key.weight, module.value.weight]))
        # a bias of keys changes no answer of attention, which is why there is none here
        peer.qkv.bias.copy_(torch.cat([module.query.bias, torch.randn(WIDTH), module.value.bias]))
        peer.project.load_state_dict(module.project.state_dict())
        assert_close_to_largest(module(tokens), peer(tokens), 1e-12)


@pytest.mark.parametrize("padding", [False, True])
def test_every_query_reads_the_rows_and_nothing_is_masked(padding: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    attend, found = F.scaled_dot_product_attention, []

    def watched(query: Tensor, key: Tensor, value: Tensor, **given: Any) -> Tensor:
        found.append((tuple(query.shape), tuple(key.shape), tuple(value.shape), given.get("attn_mask") is not None))
        return attend(query, key, value, **given)

    monkeypatch.setattr(F, "scaled_dot_product_attention", watched)
    mixer()(drawn_tokens(), padded() if padding else None)
    rows = (BATCH, HEADS, 3, WIDTH // HEADS)
    assert found == [((BATCH, HEADS, N, WIDTH // HEADS), rows, rows, False)]


@over_sharing
def test_it_mixes_by_its_token_weights(share: bool) -> None:
    module, tokens = mixer(share=share), drawn_tokens(batch=1)
    with torch.no_grad():
        weights = module.token_weights(tokens)
        value = F.linear(tokens[0], module.value.weight).unflatten(-1, (HEADS, -1)).transpose(0, 1)
        for turned, is_same in ((weights, True), (weights.mT, False)):
            mixed = (turned @ value).transpose(0, 1).flatten(1) + module.value.bias
            assert torch.allclose(module.project(mixed), module(tokens)[0], atol=1e-10) == is_same
        single = [module.token_weights(item[None]) for item in drawn_tokens()]
        assert_close_to_largest(module.token_weights(drawn_tokens()), torch.stack(single).mean(dim=0), 1e-12)
    assert weights.shape == (HEADS, N, N)


@pytest.mark.parametrize("n", [17, 257, 4097])
@over_sharing
def test_a_fresh_one_reads_sums_of_the_size_of_a_token(n: int, share: bool) -> None:
    torch.manual_seed(0)
    module, tokens = build(Config(seq_len=n, width=64, heads=4, share=share)), torch.randn(4, n, 64)
    with torch.no_grad():
        rows = module.compress.flatten(0, 1) @ tokens
        assert 0.9 < rows.std() < 1.1
        assert 0.1 < module(tokens).std() < 0.4


def test_a_model_keeps_the_initial_matrices() -> None:
    torch.manual_seed(0)
    shape = Shape(seq_len=257, width=16, depth=1, heads=2, ffn_width=32)
    block = metaformer.build(metaformer.Config(shape=shape, mixer="low_rank_attention")).get_submodule("blocks.0.mixer")
    assert isinstance(block, LowRankAttention)
    assert 0.97 < block.compress.std().item() * 257**0.5 < 1.03


def test_dropout_takes_weights_in_training_only() -> None:
    """With values of one and no projection, an answer is the sum of what is left of the weights: multiples of weight / (1 - share)."""
    module, tokens = mixer(rank=5).float(), drawn_tokens().float()
    with torch.no_grad():
        for parameter in (module.query.weight, module.query.bias, module.value.weight):
            parameter.zero_()
        module.value.bias.fill_(1.0)
        module.project.weight.copy_(torch.eye(WIDTH))
        module.project.bias.zero_()
    set_dropout(module, 0.5, (module.DROPS_AT,))
    with torch.no_grad():
        assert torch.allclose(module.eval()(tokens), torch.ones(BATCH, N, WIDTH))
        kept = module.train()(tokens) * 5 / 2
    assert torch.allclose(kept, kept.round(), atol=1e-4)
    assert kept.std() > 0.5


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_long_sequences_and_large_values_answer_as_in_64_bits(scale: float) -> None:
    module, tokens = mixer(n=2053, rank=16, std=0.2), drawn_tokens(2053, batch=1) * scale
    with torch.no_grad():
        expected = module(tokens)
        assert_close_to_largest(module.float()(tokens.float()).double(), expected, 1e-4)


@pytest.mark.parametrize("autocast", [False, True])
def test_bf16_answers_as_64_bits_do_to_its_own_digits(autocast: bool) -> None:
    torch.manual_seed(0)
    module, tokens = build(Config(seq_len=1025, width=WIDTH, heads=HEADS)).double(), drawn_tokens(1025)
    assert_bf16_keeps_its_digits(module, tokens, autocast=autocast)


@pytest.mark.parametrize("n", [2, 17, 65_537])
@pytest.mark.parametrize(("share", "matrices"), [(False, 2), (True, 1)])
def test_tokens_are_compressed_and_read_and_only_rows_are_projected(n: int, share: bool, matrices: int) -> None:
    found = cost(Config(seq_len=n, width=WIDTH, heads=HEADS, rank=5, share=share))
    assert {term.name: term.macs.at(n) for term in found.terms} == {
        "compress": matrices * 5 * n * 8,
        "query": n * 8 * 8,
        "key": 5 * 8 * 8,
        "value": 5 * 8 * 8,
        "scores": n * 5 * 8,
        "weighted_sum": n * 5 * 8,
        "project": n * 8 * 8,
    }
    assert found.params_seq().at(n) == matrices * 5 * n
    assert found.params().at(n) == matrices * 5 * n + 4 * 8 * 8 + 3 * 8
    assert found.recompute_flops().at(n) == 2 * n * 5 * 8
    assert len(found.macs().coefficients) == 2


def test_more_rows_than_tokens_cost_more_than_attention() -> None:
    whole = attention.cost(attention.Config(seq_len=17, width=WIDTH)).macs().at(17)
    assert cost(Config(seq_len=17, width=WIDTH, rank=17)).macs().at(17) > whole
    assert cost(Config(seq_len=17, width=WIDTH, rank=4)).macs().at(17) < whole


@pytest.mark.parametrize(
    ("sizes", "rule"),
    [
        ({"rank": 0}, "rank must be a positive whole number, not 0"),
        ({"rank": 1}, "rank must be at least 2, not 1"),
        ({"rank": -1}, "rank must be a positive whole number, not -1"),
        ({"heads": 3}, "width must be a multiple of heads"),
    ],
)
def test_sizes_that_read_nothing_are_refused(sizes: dict[str, int], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        Config(seq_len=N, width=WIDTH, **sizes)  # type: ignore[arg-type]
