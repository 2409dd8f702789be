"""Recurrent encoder-decoder with additive attention: before each step the decoder looks up what it needs in the source (Bahdanau et al., 2015).

arXiv 1409.0473, in the form of "Dive into Deep Learning" (Zhang et al., Sec. 11.4): stacked gated recurrent units in one direction on either side.
Both read one sequence, of which the first half is the source (`models.layers.halves`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.layers.additive_score import AdditiveScore, additive_score_cost
from models.layers.cost import Cost, N, Term, linear
from models.layers.halves import (
    GRAIN,
    POOLS,
    HalvesEmbedding,
    halves_embedding_cost,
    in_tokens,
    masked_half,
    num_source,
    of_source,
    split,
    split_valid,
    target_interface,
)
from models.layers.head import Head, head_cost
from models.layers.initialise import initialise_linears
from models.layers.masking import masked_softmax
from models.layers.recurrence import GATES, gru_cost, gru_step, initialise_gru, run_gru, run_gru_in_products
from models.layers.shape import NO_POOL, Interface, Shape, require_divisible, require_one_of

NOMINAL_FFN_RATIO = 8
USES_HEADS = False
SOURCE_AND_TARGET = True
REFERENCE_OPTIONS = {"recurrence": "products"}
VARIANTS: dict[str, tuple[Shape, Interface, dict[str, str]]] = {}


def _step_in_products(cell: nn.GRUCell, inputs: Tensor, state: Tensor) -> Tensor:
    driven = F.linear(inputs, cell.weight_ih, cell.bias_ih)
    return gru_step(driven, F.linear(state, cell.weight_hh, cell.bias_hh), state)


def _step(cell: nn.GRUCell, inputs: Tensor, state: Tensor) -> Tensor:
    following: Tensor = cell(inputs, state)
    return following


Run = Callable[..., tuple[Tensor, Tensor]]
Step = Callable[..., Tensor]
RECURRENCES: dict[str, tuple[Run, Step]] = {"native": (run_gru, _step), "products": (run_gru_in_products, _step_in_products)}
"""Formulations of equal answers: over a whole source, and of one step. `products` is the reference: fvcore sees nothing of a GRU."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """Options. `shape.depth` layers of units in the encoder and as many in the decoder, each of `width` units.

    `shape.ffn_width` is the hidden width of the head, in the place of the paper's deep output (App. A.2.2, there as wide as the state): wide,
    because sizes are matched by it, and two layers of units per depth lie far apart from one width to the next. `shape.heads` is unused, and there
    are no positions. The score's hidden width is `width`. pool: `mean`, over the valid tokens of both halves. target_vocab: ids that the target may
    hold (0: as many as the source). recurrence: formulation, of equal answers.
    """

    shape: Shape
    interface: Interface = Interface()
    pool: str = "mean"
    target_vocab: int = 0
    recurrence: str = "native"

    def __post_init__(self) -> None:
        require_one_of("pool", self.pool, POOLS)
        require_one_of("recurrence", self.recurrence, tuple(RECURRENCES))
        target_interface(self.interface, self.target_vocab)  # refuses a vocabulary that does not fit the data
        require_divisible("width", self.shape.width, "the grain of two halves", GRAIN)

    @property
    def causal(self) -> bool:
        """No answer depends on a later token: neither side reads ahead."""
        return True


class RecurrentEncoder(nn.Module):
    """`(batch, source tokens, width)` -> the states of the top layer after every token, and of each layer after the last valid one."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        width = config.shape.width
        self.run = RECURRENCES[config.recurrence][0]
        self.layers = nn.ModuleList(nn.GRU(width, width, batch_first=True) for _ in range(config.shape.depth))
        self.dropout = 0.0

    def forward(self, tokens: Tensor, valid: Tensor | None) -> tuple[Tensor, list[Tensor]]:
        """The latter are as many of `(batch, width)` as there are layers. A padded token leaves every state as it is."""
        last = []
        for layer in self.layers:
            tokens, state = self.run(layer, tokens, valid)
            last.append(state[0])
            if self.dropout:
                tokens = F.dropout(tokens, self.dropout, self.training)
        return tokens, last


class RecurrentDecoder(nn.Module):
    """`(batch, target tokens, width)` -> the states of the top layer after every token.

    At each step, the top layer's last state asks all of the memory (additive scores, softmax) and the weighted sum is read beside the token.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        width, depth = config.shape.width, config.shape.depth
        self.step = RECURRENCES[config.recurrence][1]
        self.score = AdditiveScore(width, width, width)
        self.layers = nn.ModuleList(nn.GRUCell(width if layer else 2 * width, width) for layer in range(depth))
        self.dropout = 0.0

    def forward(self, tokens: Tensor, memory: Tensor, states: list[Tensor], valid: Tensor | None, memory_valid: Tensor | None) -> Tensor:
        """`states`: where each layer begins, `(batch, width)`. A padded token leaves every state as it is."""
        keys = self.score.project_keys(memory)
        read = None if memory_valid is None else memory_valid[:, None]
        answers = []
        for place in range(tokens.shape[1]):
            weights = masked_softmax(self.score.score(states[-1][:, None], keys), read)
            context = (weights @ memory).squeeze(1)
            inputs = torch.cat((tokens[:, place], context), dim=-1)
            states = self._advance(inputs, states, None if valid is None else valid[:, place, None])
            answers.append(states[-1])
        found = torch.stack(answers, dim=1)
        return F.dropout(found, self.dropout, self.training) if self.dropout else found

    def _advance(self, inputs: Tensor, states: list[Tensor], valid: Tensor | None) -> list[Tensor]:
        """All layers by one token; the lower layer's new state, dropped of, is what the one above it reads."""
        advanced = []
        for cell, state in zip(self.layers, states, strict=True):
            following = self.step(cell, inputs, state)
            advanced.append(following if valid is None else torch.where(valid, following, state))
            inputs = F.dropout(advanced[-1], self.dropout, self.training) if self.dropout else advanced[-1]
        return advanced


class RecurrentAttention(nn.Module):
    """Patches or token ids -> logits: `(batch, num_classes)`, or `(batch, data tokens, num_classes)` with `output` tokens.

    Teacher-forced: source tokens answer from the encoder's states, target tokens from the decoder's, which begin where the encoder's end.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        shape, interface = config.shape, config.interface
        self.pool = interface.pooling(config.pool)
        self.embedding = HalvesEmbedding(shape, interface, positions="none", target_vocab=config.target_vocab)
        self.blocks = nn.ModuleDict({"encoder": RecurrentEncoder(config), "decoder": RecurrentDecoder(config)})
        self.head = Head(shape.width, interface.num_classes, pool=self.pool, hidden=shape.ffn_width)
        initialise_linears(self)
        for module in self.modules():
            if isinstance(module, nn.GRU | nn.GRUCell):
                initialise_gru(module)

    def forward(self, data: Tensor, valid: Tensor | None = None) -> Tensor:
        """`valid`: `(batch, data tokens)` bool, True where a token is data; None where all are."""
        source, target = split(data)
        source_valid, target_valid = split_valid(valid)
        memory, states = self.encode(source, source_valid)
        decoded = self.decode(target, memory, states, target_valid, source_valid)
        return self.head(torch.cat((memory, decoded), dim=1), valid)

    def translate(self, source: Tensor, target: Tensor, source_valid: Tensor | None = None, target_valid: Tensor | None = None) -> Tensor:
        """`(batch, source tokens)` and `(batch, target tokens)`, ids or patches -> `(batch, target tokens, num_classes)`: the two halves apart.

        Raises ValueError for a model that gives one answer per item.
        """
        if self.pool != NO_POOL:
            raise ValueError("output must be tokens for a model that translates, not class")
        memory, states = self.encode(source, source_valid)
        answers: Tensor = self.head(self.decode(target, memory, states, target_valid, source_valid))
        return answers

    def encode(self, source: Tensor, valid: Tensor | None = None) -> tuple[Tensor, list[Tensor]]:
        """Source ids or patches -> the memory, `(batch, source tokens, width)`, and each layer's state at its end, `(batch, width)`."""
        tokens, valid = masked_half(self.embedding.source(source), valid)
        memory, states = self.blocks["encoder"](tokens, valid)
        return memory, states

    def decode(
        self, target: Tensor, memory: Tensor, states: list[Tensor], valid: Tensor | None = None, memory_valid: Tensor | None = None
    ) -> Tensor:
        """Target ids or patches, any number of them, and what `encode` found -> `(batch, target tokens, width)`: what the head reads."""
        tokens, valid = masked_half(self.embedding.target(target), valid)
        memory, memory_valid = masked_half(memory, memory_valid)
        decoded: Tensor = self.blocks["decoder"](tokens, memory, states, valid, memory_valid)
        return decoded


def build(config: Config) -> RecurrentAttention:
    return RecurrentAttention(config)


def cost(config: Config) -> Cost:
    """Polynomials that hold for every n of the same parity: the halves are floor(n / 2) and ceil(n / 2) tokens.

    A unit takes 3 (inputs + width) x width multiply-adds per token; the attention, source x target x 2 width: its n^2 / 4.
    """
    shape, interface, width, n = config.shape, config.interface, config.shape.width, config.shape.seq_len
    encoder = gru_cost(width, width).within("units").repeated(shape.depth)
    decoder = _attention_cost(width, n).within("attention") + Cost(
        tuple(
            term for layer in range(shape.depth) for term in _cell_cost(width if layer else 2 * width, width).within(f"units_{layer}").terms
        )
    )
    embedding = halves_embedding_cost(shape, interface, positions="none", target_vocab=config.target_vocab)
    blocks = of_source(encoder, n).within("encoder") + decoder.within("decoder")
    pool = interface.pooling(config.pool)
    return in_tokens(embedding.within("embedding") + blocks.within("blocks"), n) + head_cost(
        width, interface.num_classes, pool=pool, hidden=shape.ffn_width
    ).within("head")


def _attention_cost(width: int, seq_len: int) -> Cost:
    """In the number of target tokens."""
    source = num_source(seq_len)
    return additive_score_cost(width, width, width, queries=N, keys=source) + Cost((Term(name="weighted_sum", macs=N * source * width),))


def _cell_cost(inputs: int, width: int) -> Cost:
    """One layer, of which every state, the first too, comes from the source and has a gradient."""
    return Cost((linear("inputs", inputs, GATES * width), linear("states", width, GATES * width)))


def uses_attention(config: Config) -> bool:
    """Additive scores do not go through `scaled_dot_product_attention`."""
    return False


def is_stepwise(config: Config) -> bool:
    return True
