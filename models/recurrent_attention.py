"""A recurrent encoder-decoder attends to the source before each step.

Bahdanau et al., 2015, arXiv 1409.0473, in the form of "Dive into Deep Learning" (Zhang et al., Sec. 11.4): encoder and decoder are stacks
of unidirectional gated recurrent units. Source and target are the two halves of one sequence (`models.layers.halves`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.layers.additive_score import AdditiveScore, additive_score_cost
from models.layers.cost import Cost, N, Term, constant, linear
from models.layers.halves import (
    POOLS,
    HalvesEmbedding,
    halves_embedding_cost,
    in_tokens,
    masked_half,
    num_source,
    of_source,
    require_halves,
    split,
    split_valid,
)
from models.layers.head import Head, head_cost
from models.layers.initialise import initialise_linears
from models.layers.masking import masked_softmax
from models.layers.recurrence import GATES, gru_cost, gru_step, initialise_gru, run_gru, run_gru_in_products
from models.layers.shape import Interface, Shape, require_choices

NOMINAL_FFN_RATIO = 8
USES_HEADS = False
SOURCE_AND_TARGET = True
REFERENCE_OPTIONS = {"recurrence": "products"}


def _step_in_products(cell: nn.GRUCell, inputs: Tensor, state: Tensor) -> Tensor:
    input_gates = F.linear(inputs, cell.weight_ih, cell.bias_ih)
    return gru_step(input_gates, F.linear(state, cell.weight_hh, cell.bias_hh), state)


Run = Callable[..., tuple[Tensor, Tensor]]
Step = Callable[..., Tensor]
RECURRENCES: dict[str, tuple[Run, Step]] = {"native": (run_gru, nn.GRUCell.__call__), "products": (run_gru_in_products, _step_in_products)}
"""Equivalent formulations: a run over a whole source, and one step.

`products` is the reference, because fvcore does not count a GRU.
"""


@dataclass(frozen=True, kw_only=True)
class Config:
    """Sizes and options of the recurrent encoder-decoder.

    `shape.depth`: layers in each of encoder and decoder, with `shape.width` units per layer.
    `shape.ffn_width`: hidden width of the head, which replaces the paper's deep output (App. A.2.2; as wide as the state). The head is
        wide so that adjusting it can match sizes: with two layers of units per depth, neighbouring widths differ too much in size.
    `shape.heads`: unused.
    `pool`: `mean`, over the valid tokens of both halves.
    `recurrence`: `native` or `products`; both give the same answers.

    The family has no positions. The scores' hidden width is `width`.

    Raises ValueError for an unknown value, images, or a width that is not a multiple of 4.
    """

    shape: Shape
    interface: Interface = Interface()
    pool: str = "mean"
    recurrence: str = "native"

    def __post_init__(self) -> None:
        require_choices(self, pool=POOLS, recurrence=RECURRENCES)
        require_halves(self.shape, self.interface)

    @property
    def causal(self) -> bool:
        """True: no answer depends on a later token."""
        return True


class RecurrentEncoder(nn.Module):
    """Encode the source by a stack of GRUs.

    `(batch, source tokens, width)` -> the top layer's state after every token, and each layer's state after the last valid token.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        width = config.shape.width
        self.run = RECURRENCES[config.recurrence][0]
        self.layers = nn.ModuleList(nn.GRU(width, width, batch_first=True) for _ in range(config.shape.depth))
        self.dropout = 0.0

    def forward(self, tokens: Tensor, valid: Tensor | None) -> tuple[Tensor, list[Tensor]]:
        """Return the top layer's states and a list of last states.

        The list has one `(batch, width)` tensor per layer. A padded token leaves every state unchanged.
        """
        last = []
        for layer in self.layers:
            tokens, state = self.run(layer, tokens, valid)
            last.append(state[0])
            if self.dropout:
                tokens = F.dropout(tokens, self.dropout, self.training)
        return tokens, last


class Alignment(nn.Module):
    """Turn scores of source tokens into the weights that a step reads them with; both are `(batch, 1, source tokens)`.

    It is a module of its own so that a hook sees the weights.
    """

    def forward(self, scores: Tensor, valid: Tensor | None) -> Tensor:
        return masked_softmax(scores, valid)


class RecurrentDecoder(nn.Module):
    """Decode the target by GRU cells that attend to the memory.

    `(batch, target tokens, width)` -> the top layer's state after every token. At each step, the top layer's last state queries the whole
    memory (additive scores, softmax), and the first layer reads the weighted sum beside the token.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        width, depth = config.shape.width, config.shape.depth
        self.step = RECURRENCES[config.recurrence][1]
        self.score = AdditiveScore(width, width, width)
        self.alignment = Alignment()
        self.layers = nn.ModuleList(nn.GRUCell(width if layer else 2 * width, width) for layer in range(depth))
        self.dropout = 0.0

    def forward(self, tokens: Tensor, memory: Tensor, states: list[Tensor], valid: Tensor | None, memory_valid: Tensor | None) -> Tensor:
        """Return the top layer's states, `(batch, target tokens, width)`.

        `states`: initial state of each layer, `(batch, width)`. A padded token leaves every state unchanged.
        """
        keys = self.score.project_keys(memory)
        read = None if memory_valid is None else memory_valid[:, None]
        answers = []
        for place in range(tokens.shape[1]):
            weights = self.alignment(self.score.score(states[-1][:, None], keys), read)
            context = (weights @ memory).squeeze(1)
            inputs = torch.cat((tokens[:, place], context), dim=-1)
            states = self._advance(inputs, states, None if valid is None else valid[:, place, None])
            answers.append(states[-1])
        found = torch.stack(answers, dim=1)
        return F.dropout(found, self.dropout, self.training) if self.dropout else found

    def _advance(self, inputs: Tensor, states: list[Tensor], valid: Tensor | None) -> list[Tensor]:
        """Advance all layers by one token; dropout applies between layers."""
        advanced = []
        for cell, state in zip(self.layers, states, strict=True):
            following = self.step(cell, inputs, state)
            advanced.append(following if valid is None else torch.where(valid, following, state))
            inputs = F.dropout(advanced[-1], self.dropout, self.training) if self.dropout else advanced[-1]
        return advanced


class RecurrentAttention(nn.Module):
    """Encode the source and decode the target in one teacher-forced pass.

    Patches or token ids -> `(batch, num_classes)`, or `(batch, data tokens, num_classes)` with output=tokens.

    The encoder's states answer source tokens, the decoder's states target tokens. The decoder starts from the encoder's last states.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        shape, interface = config.shape, config.interface
        self.embedding = HalvesEmbedding(shape, interface, positions="none")
        self.blocks = nn.ModuleDict({"encoder": RecurrentEncoder(config), "decoder": RecurrentDecoder(config)})
        self.head = Head(shape.width, interface.num_classes, pool=interface.pooling(config.pool), hidden=shape.ffn_width)
        initialise_linears(self)
        for module in self.modules():
            if isinstance(module, nn.GRU | nn.GRUCell):
                initialise_gru(module)

    def forward(self, data: Tensor, valid: Tensor | None = None) -> Tensor:
        """Return the logits.

        `valid`: `(batch, data tokens)` bool, True where a token is data (None: everywhere).
        """
        source, target = split(data)
        source_valid, target_valid = split_valid(valid)
        memory, states = self.encode(source, source_valid)
        decoded = self.decode(target, memory, states, target_valid, source_valid)
        return self.head(torch.cat((memory, decoded), dim=1), valid)

    def encode(self, source: Tensor, valid: Tensor | None = None) -> tuple[Tensor, list[Tensor]]:
        """Encode the source into the memory and each layer's last state.

        `source`: ids or patches -> memory `(batch, source tokens, width)`, states `(batch, width)`.
        """
        tokens, valid = masked_half(self.embedding.source(source), valid)
        return self.blocks["encoder"](tokens, valid)

    def decode(
        self, target: Tensor, memory: Tensor, states: list[Tensor], valid: Tensor | None = None, memory_valid: Tensor | None = None
    ) -> Tensor:
        """Decode the target into the head's input, `(batch, target tokens, width)`.

        `target`: ids or patches, any number of tokens.
        `memory`, `states`: the results of `encode`.
        """
        tokens, valid = masked_half(self.embedding.target(target), valid)
        memory, memory_valid = masked_half(memory, memory_valid)
        return self.blocks["decoder"](tokens, memory, states, valid, memory_valid)


def build(config: Config) -> RecurrentAttention:
    return RecurrentAttention(config)


def cost(config: Config) -> Cost:
    """Return the cost of `RecurrentAttention`.

    The halves have ceil(n / 2) and floor(n / 2) tokens, so the polynomials hold for every n of the same parity. A layer of units takes 3
    (inputs + width) x width multiply-adds per token. Attention takes source x target x 2 width, the only part in n^2, with about n^2 / 4
    pairs. To write a target, the encoder's states and their keys are kept, and the state of each layer.
    """
    shape, interface, width, n = config.shape, config.interface, config.shape.width, config.shape.seq_len
    encoder = gru_cost(width, width).within("units").repeated(shape.depth)
    source = num_source(n)  # all in terms of target tokens
    attention = additive_score_cost(width, width, width, queries=N, keys=source) + Cost(
        (Term(name="weighted_sum", macs=N * source * width, state=source * (2 * width)),)
    )
    decoder = attention.within("attention")
    for layer in range(shape.depth):
        # every state has a gradient, even the first, which comes from the source
        of_states = replace(linear("states", width, GATES * width), state=constant(width))
        gates = (linear("inputs", width if layer else 2 * width, GATES * width), of_states)
        decoder += Cost(gates).within(f"units_{layer}")
    embedding = halves_embedding_cost(shape, interface, positions="none")
    blocks = of_source(encoder, n).within("encoder") + decoder.within("decoder")
    pool = interface.pooling(config.pool)
    return in_tokens(embedding.within("embedding") + blocks.within("blocks"), n) + head_cost(
        width, interface.num_classes, pool=pool, hidden=shape.ffn_width
    ).within("head")


def uses_attention(config: Config) -> bool:
    """Return False: additive scores bypass `scaled_dot_product_attention`."""
    return False


def is_stepwise(config: Config) -> bool:
    return True
