"""GRU: it is `torch.nn.GRU`, the formula in 64 bits agrees, later tokens reach no earlier one, and padding leaves the state alone."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from models.layers.recurrence import run_gru, run_gru_in_products
from models.mixers.gru import Config, RecurrentMixer, build, cost
from tests.contracts.checks import assert_close_to_largest, randomise

N, WIDTH = 11, 6
over_directions = pytest.mark.parametrize("bidirectional", [False, True])
over_formulations = pytest.mark.parametrize("recurrence", ["native", "products"])


def mixer(*, bidirectional: bool = False, recurrence: str = "native", seed: int = 0) -> RecurrentMixer:
    torch.manual_seed(seed)
    module = build(Config(seq_len=N, width=WIDTH, bidirectional=bidirectional, recurrence=recurrence)).double()
    randomise(module, std=0.7)
    return module


def by_formula(gru: nn.GRU, tokens: Tensor) -> Tensor:
    """`(n, width)`, one item: Cho et al., step by step, in plain products."""
    found = []
    for direction, weights in enumerate(gru.all_weights):
        of_input, of_state, input_bias, state_bias = weights
        state, states = torch.zeros(of_state.shape[1], dtype=tokens.dtype), []
        for token in tokens.flip(0) if direction else tokens:
            reset_in, update_in, candidate_in = (of_input @ token + input_bias).chunk(3)
            reset_state, update_state, candidate_state = (of_state @ state + state_bias).chunk(3)
            reset = 1 / (1 + torch.exp(-reset_in - reset_state))
            update = 1 / (1 + torch.exp(-update_in - update_state))
            state = (1 - update) * torch.tanh(candidate_in + reset * candidate_state) + update * state
            states.append(state)
        found.append(torch.stack(states[::-1] if direction else states))
    return torch.cat(found, dim=-1)


@over_directions
@over_formulations
def test_it_answers_as_torch_does_with_the_same_weights(bidirectional: bool, recurrence: str) -> None:
    module, tokens = mixer(bidirectional=bidirectional, recurrence=recurrence), torch.randn(3, N, WIDTH).double()
    peer = nn.GRU(WIDTH, WIDTH // 2 if bidirectional else WIDTH, batch_first=True, bidirectional=bidirectional).double()
    assert not torch.allclose(peer(tokens)[0], module(tokens))
    peer.load_state_dict(module.gru.state_dict())
    assert_close_to_largest(module(tokens), peer(tokens)[0], 1e-12)


@over_directions
@over_formulations
def test_it_answers_as_the_formula_does(bidirectional: bool, recurrence: str) -> None:
    module, tokens = mixer(bidirectional=bidirectional, recurrence=recurrence), torch.randn(N, WIDTH).double()
    assert_close_to_largest(module(tokens[None])[0], by_formula(module.gru, tokens), 1e-12)


@over_directions
@over_formulations
@settings(max_examples=10)
@given(data=st.data())
def test_padding_anywhere_is_as_if_it_were_not_there(bidirectional: bool, recurrence: str, data: st.DataObject) -> None:
    kept = data.draw(st.sets(st.integers(0, N - 1), min_size=1))
    module, tokens = mixer(bidirectional=bidirectional, recurrence=recurrence), torch.randn(2, N, WIDTH).double()
    valid = torch.ones(2, N, dtype=torch.bool)
    valid[0] = torch.tensor([place in kept for place in range(N)])
    junk = tokens.masked_fill(~valid[..., None], float("nan"))
    found = module(junk, valid)
    assert_close_to_largest(found[0, valid[0]], by_formula(module.gru, tokens[0, valid[0]]), 1e-12)
    assert_close_to_largest(found[1], by_formula(module.gru, tokens[1]), 1e-12)
    assert found[~valid].eq(0).all()


@over_formulations
@settings(max_examples=10)
@given(place=st.integers(1, N - 1), seed=st.integers(0, 2**32 - 1))
def test_a_later_token_changes_no_earlier_answer(recurrence: str, place: int, seed: int) -> None:
    tokens = torch.randn(1, N, WIDTH).double()
    other = tokens.clone()
    other[:, place] += 1
    for bidirectional in (False, True):
        module = mixer(bidirectional=bidirectional, recurrence=recurrence, seed=seed)
        changed = (module(tokens) != module(other)).any(dim=-1)[0]
        assert changed[place:].all()
        assert changed[:place].any() == bidirectional


@over_directions
def test_gradients_of_both_formulations_agree_among_padding(bidirectional: bool) -> None:
    valid = torch.ones(2, N, dtype=torch.bool)
    valid[0, 3], valid[0, 7:] = False, False
    found = []
    for recurrence in ("native", "products"):
        module = mixer(bidirectional=bidirectional, recurrence=recurrence)
        tokens = torch.linspace(-1, 1, 2 * N * WIDTH).double().sin().view(2, N, WIDTH)
        junk = tokens.masked_fill(~valid[..., None], float("nan")).requires_grad_()
        (module(junk, valid) * torch.arange(WIDTH)).sum().backward()
        assert junk.grad is not None
        found.append([junk.grad, *(parameter.grad for parameter in module.parameters())])
    for ours, theirs in zip(*found, strict=True):
        assert ours is not None
        assert theirs is not None
        assert_close_to_largest(ours, theirs, 1e-10)


@pytest.mark.parametrize("masked", [False, True])
@over_directions
def test_layers_and_last_states_agree(bidirectional: bool, masked: bool) -> None:
    torch.manual_seed(0)
    gru = nn.GRU(WIDTH, 5, num_layers=3, batch_first=True, bidirectional=bidirectional).double()
    tokens = torch.randn(4, N, WIDTH).double()
    valid = (torch.rand(4, N) < 0.6).index_fill(1, torch.tensor([2]), True) if masked else None
    for found, expected in zip(run_gru_in_products(gru, tokens, valid), run_gru(gru, tokens, valid), strict=True):
        assert_close_to_largest(found, expected, 1e-12)


def test_three_gates_of_two_products_each() -> None:
    d, n = 8, 65_537
    one, both = (cost(Config(seq_len=n, width=d, bidirectional=bidirectional)) for bidirectional in (False, True))
    assert one.macs().at(n) == n * 3 * (d * d + d * d)
    assert both.macs().at(n) == n * 2 * 3 * (d * d // 2 + d * d // 4)
    assert one.params().at(n) == 3 * (d * d + d * d) + 2 * 3 * d
    assert one.macs().degree(2) == 0


def test_an_odd_width_has_no_two_halves() -> None:
    with pytest.raises(ValueError, match="width must be a multiple of 2 with bidirectional=true"):
        Config(seq_len=N, width=7, bidirectional=True)
