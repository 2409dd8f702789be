"""Gated recurrent units that skip padded tokens.

Cho et al., arXiv 1409.1259, Sec. 3.2, in the form of `torch.nn.GRU`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from models.layers.cost import Cost, N, Term, constant, linear
from models.layers.padding import zero_padding

GATES = 3


def run_gru(gru: nn.GRU, tokens: Tensor, valid: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Run `gru` over the valid tokens.

    `(batch, n, inputs)` -> states after every token `(batch, n, directions x hidden)`, and the last state of each layer and direction.

    `gru` is batch-first. A padded token leaves the state unchanged, and its own output is zero. Padding may lie anywhere: valid tokens are
    moved to the front, packed and run, and their states are moved back.
    """
    if valid is None:
        return gru(tokens)
    order = (~valid).long().argsort(dim=1, stable=True)[..., None]
    together = tokens.gather(1, order.expand_as(tokens))
    packed = pack_padded_sequence(together, valid.sum(dim=1).cpu(), batch_first=True, enforce_sorted=False)
    answered, last = gru(packed)
    states, _ = pad_packed_sequence(answered, batch_first=True, total_length=tokens.shape[1])
    return torch.zeros_like(states).scatter(1, order.expand_as(states), states), last


def run_gru_in_products(gru: nn.GRU, tokens: Tensor, valid: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Compute `run_gru` step by step from linear layers, for a GRU of one layer.

    FLOP counters see all of these products.
    """
    tokens = zero_padding(tokens, valid)
    runs = [_run_direction(tokens, valid, weights, backwards=direction == 1) for direction, weights in enumerate(gru.all_weights)]
    states = torch.cat([torch.stack(steps, dim=1) for steps in runs], dim=-1)
    last = [steps[0] if direction else steps[-1] for direction, steps in enumerate(runs)]
    return zero_padding(states, valid), torch.stack(last)


def _run_direction(tokens: Tensor, valid: Tensor | None, weights: Sequence[Tensor], *, backwards: bool) -> list[Tensor]:
    """Return the state `(batch, hidden)` after each token, in token order."""
    input_weight, state_weight, input_bias, state_bias = weights
    input_gates = F.linear(tokens, input_weight, input_bias)
    state = tokens.new_zeros(len(tokens), state_weight.shape[1])
    places = range(tokens.shape[1])
    states = {}
    for place in reversed(places) if backwards else places:
        following = gru_step(input_gates[:, place], F.linear(state, state_weight, state_bias), state)
        state = following if valid is None else torch.where(valid[:, place, None], following, state)
        states[place] = state
    return [states[place] for place in places]


def gru_step(input_gates: Tensor, state_gates: Tensor, state: Tensor) -> Tensor:
    """Return the next state, `(batch, hidden)`.

    `input_gates`: the input times the weights of all gates, `(batch, 3 hidden)`.
    `state_gates`: the state times the weights of all gates, `(batch, 3 hidden)`.
    """
    reset_in, update_in, candidate_in = input_gates.chunk(GATES, dim=-1)
    reset_state, update_state, candidate_state = state_gates.chunk(GATES, dim=-1)
    update = torch.sigmoid(update_in + update_state)
    candidate = torch.tanh(candidate_in + torch.sigmoid(reset_in + reset_state) * candidate_state)
    return (1 - update) * candidate + update * state


def initialise_gru(gru: nn.GRU | nn.GRUCell) -> None:
    """Initialise a GRU like a linear layer: Xavier-uniform weights, zero biases.

    Each gate is drawn separately.
    """
    for name, parameter in gru.named_parameters():
        if name.startswith("weight"):
            for gate in parameter.chunk(GATES):
                nn.init.xavier_uniform_(gate)
        else:
            nn.init.zeros_(parameter)


def gru_cost(inputs: int, hidden: int) -> Cost:
    """Return the cost of one GRU layer in one direction.

    Each of three gates takes one product with the input and one with the state, each with a bias. The first state is zero and needs no
    gradient, so its backward is one product, not two.
    """
    weights = GATES * hidden * hidden
    return Cost(
        (
            linear("inputs", inputs, GATES * hidden),
            Term(name="states", params=constant(weights + GATES * hidden), macs=(N + constant(-1)) * weights, state=constant(hidden)),
            Term(name="first_state", macs=constant(weights), backward_products=1),
        )
    )
