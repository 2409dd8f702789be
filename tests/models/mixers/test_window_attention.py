"""Window attention: exact cost in blocks, no mask where nothing is padded, and gradients that stay finite where a whole block is."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor

from models.mixers import attention
from models.mixers.window_attention import Config, build, cost
from tests.contracts.checks import assert_close_to_largest, randomise


def macs(n: int, *, window: int = 16) -> dict[str, int]:
    return {term.name: term.macs.at(n) for term in cost(Config(seq_len=n, width=8, window=window)).terms}


@pytest.mark.parametrize(
    ("n", "window", "pairs"),
    [
        (16, 16, 16 * 16),
        (17, 16, 16 * 16 + 1),
        (257, 16, 16 * 256 + 1),
        (9, 16, 9 * 9),
        (11, 4, 4 * 4 + 4 * 4 + 3 * 3),
        (65537, 16, 4096 * 256 + 1),
    ],
)
def test_a_pair_of_tokens_in_one_block_costs_two_products_of_the_width(n: int, window: int, pairs: int) -> None:
    assert macs(n, window=window) == {"qkv": n * 8 * 24, "scores": pairs * 8, "weighted_sum": pairs * 8, "project": n * 8 * 8}


def test_cost_is_linear_in_n() -> None:
    assert len(cost(Config(seq_len=257, width=8)).macs().coefficients) == 2


@pytest.mark.parametrize("n", [8, 11, 3])
def test_every_block_answers_as_if_alone(n: int) -> None:
    module, whole = build(Config(seq_len=n, width=8, heads=2, window=4)), attention.build(attention.Config(seq_len=n, width=8, heads=2))
    torch.manual_seed(0)
    randomise(module)
    whole.load_state_dict(module.state_dict())
    tokens = torch.randn(3, n, 8)
    with torch.no_grad():
        blocks = torch.cat([whole(block) for block in tokens.split(4, dim=1)], dim=1)
        assert_close_to_largest(module(tokens), blocks, 1e-5)
        if n > 4:
            assert (module(tokens) - whole(tokens)).abs().max() > 0.01


@pytest.mark.parametrize("n", [8, 11, 3])
@pytest.mark.parametrize("padding", [False, True])
def test_it_answers_as_the_formula(n: int, padding: bool) -> None:
    """In float64: softmax of q.k / sqrt(head width) over all pairs of tokens, without those of two windows or with a padded key."""
    module = build(Config(seq_len=n, width=8, heads=2, window=4)).double()
    torch.manual_seed(0)
    randomise(module, std=0.5)
    tokens, valid = torch.randn(3, n, 8, dtype=torch.float64), torch.ones(3, n, dtype=torch.bool)
    if padding:
        valid[1, n // 2 :], valid[2, 1] = False, False
    window = torch.arange(n) // 4
    allowed = (window[:, None] == window) & valid[:, None]
    with torch.no_grad():
        query, key, value = rearrange(tokens @ module.qkv.weight.T + module.qkv.bias, "b n (three h d) -> three h b n d", three=3, h=2)
        exponentials = (query @ key.mT / 4**0.5).exp() * allowed
        mixed = rearrange(exponentials / exponentials.sum(dim=-1, keepdim=True) @ value, "h b n d -> b n (h d)")
        expected = mixed @ module.project.weight.T + module.project.bias
        assert_close_to_largest(module(tokens, valid if padding else None)[valid], expected[valid], 1e-12)


@pytest.mark.parametrize(("n", "calls"), [(8, [(6, 4)]), (11, [(6, 4), (3, 3)]), (3, [(3, 3)])])
def test_full_blocks_share_one_call_and_only_padding_is_masked(
    n: int, calls: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    attend, found = F.scaled_dot_product_attention, []

    def watched(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None) -> Tensor:
        found.append((query.shape[0], query.shape[2], attn_mask is not None))
        return attend(query, key, value, attn_mask=attn_mask)

    monkeypatch.setattr(F, "scaled_dot_product_attention", watched)
    module, tokens = build(Config(seq_len=n, width=8, window=4)), torch.randn(3, n, 8)
    module(tokens)
    assert found == [(blocks, block, False) for blocks, block in calls]
    found.clear()
    module(tokens, torch.ones(3, n, dtype=torch.bool))
    assert found == [(blocks, block, True) for blocks, block in calls]


@pytest.mark.parametrize("num_valid", [4, 5, 8, 9])
def test_a_block_of_padding_alone_leaves_gradients_finite(num_valid: int) -> None:
    module, tokens = build(Config(seq_len=10, width=8, window=4)), torch.randn(2, 10, 8, requires_grad=True)
    valid = (torch.arange(10) < num_valid).expand(2, 10)
    module(tokens, valid)[valid].square().sum().backward()
    assert tokens.grad is not None
    for name, parameter in module.named_parameters():
        assert parameter.grad is not None
        assert parameter.grad.isfinite().all(), name
    assert tokens.grad[valid].any()
    assert not tokens.grad[~valid].any()


@pytest.mark.parametrize(
    ("sizes", "rule"),
    [({"window": 1}, "window must be at least 2"), ({"window": 0}, "window must be a positive"), ({"heads": 3}, "width must be")],
)
def test_sizes_that_cannot_mix_are_refused(sizes: dict[str, int], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        Config(seq_len=17, width=8, **sizes)
