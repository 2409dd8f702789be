"""The embedding turns patches or token ids into the blocks' input vectors.

It projects them, prepends the class token and adds positions.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.layers.cost import ONE, ZERO, Cost, N, Polynomial, Term, constant, linear
from models.layers.initialise import EMBEDDING_STD
from models.layers.patches import cut_patches
from models.layers.shape import Interface, Shape, num_data_tokens, patch_of
from models.layers.stem import ConvolutionStem, convolution_stem_cost

POSITIONS = ("none", "learned", "sinusoidal")


class Embedding(nn.Module):
    """Embed patches, token ids or images as `seq_len` vectors.

    `(batch, data tokens, patch_dim)` floats, `(batch, data tokens)` ids or `(batch, channels, height, width)` images ->
    `(batch, seq_len, width)`.

    Patches, whether cut beforehand or here, pass through one linear layer, which equals ViT's strided convolution (arXiv 2010.11929,
    Sec. 3.1). With sinusoidal positions, token embeddings are scaled by sqrt(width) (arXiv 1706.03762, Sec. 3.4). With pool=cls, the class
    token comes first.

    `stem`: with `convolution`, the patches form one image, so none can be padding.
    `convolution`: formulation of that stem (`models.layers.stem`).
    `num_tokens`: number of output vectors if the embedding covers part of the sequence (None: all of it).
    """

    DROPS_AT = "embedding"

    positions: Tensor | None

    def __init__(
        self,
        shape: Shape,
        interface: Interface,
        *,
        pool: str,
        positions: str,
        stem: str = "linear",
        convolution: str = "native",
        num_tokens: int | None = None,
    ) -> None:
        super().__init__()
        width, length = shape.width, num_tokens or shape.seq_len
        self.dropout = 0.0
        self.scale = 1.0
        self.project: nn.Module
        self.patch_side = patch_of(interface.patch_dim)[1] if interface.input == "images" else None
        if stem == "convolution":
            data_tokens = num_data_tokens(shape.seq_len, pool)
            self.project = ConvolutionStem(interface, data_tokens=data_tokens, width=width, convolution=convolution)
        elif interface.input != "tokens":
            self.project = nn.Linear(interface.patch_dim, width)
        else:
            self.project = nn.Embedding(interface.vocab_size, width)
            nn.init.normal_(self.project.weight, std=1.0 / math.sqrt(width) if positions == "sinusoidal" else EMBEDDING_STD)
            self.scale = math.sqrt(width) if positions == "sinusoidal" else 1.0
        self.class_token = nn.Parameter(torch.empty(1, 1, width).normal_(std=EMBEDDING_STD)) if pool == "cls" else None
        if positions == "learned":
            self.positions = nn.Parameter(torch.empty(1, length, width).normal_(std=EMBEDDING_STD))
        elif positions == "sinusoidal":
            self.register_buffer("positions", sinusoidal_positions(length, width), persistent=False)
        else:
            self.positions = None

    def forward(self, data: Tensor) -> Tensor:
        tokens = self.project(data if self.patch_side is None else cut_patches(data, self.patch_side))
        if self.scale != 1.0:
            tokens = tokens * self.scale
        if self.class_token is not None:
            first = self.class_token.to(tokens.dtype).expand(tokens.shape[0], -1, -1)
            tokens = torch.cat((first, tokens), dim=1)
        if self.positions is not None:
            tokens = tokens + self.positions.to(tokens.dtype)
        if self.dropout:
            tokens = F.dropout(tokens, self.dropout, self.training)
        return tokens


def sinusoidal_positions(seq_len: int, width: int) -> Tensor:
    """Return the table of sinusoidal positions, `(1, seq_len, width)`.

    Even channels hold sines and odd channels cosines (arXiv 1706.03762, Sec. 3.5). Every two positions must differ, or a model cannot tell
    them apart: a binary code of d channels needs 2^d >= seq_len. These codes differ at any width, because they take more than two values.
    """
    position = torch.arange(seq_len, dtype=torch.float64)[:, None]
    frequency = torch.exp(torch.arange(0, width, 2, dtype=torch.float64) * (-math.log(10_000.0) / width))
    table = torch.zeros(seq_len, width, dtype=torch.float64)
    table[:, 0::2] = torch.sin(position * frequency)
    table[:, 1::2] = torch.cos(position * frequency)[:, : width // 2]
    return table[None].float()  # a copy, not a view: torch.compile refuses a view that was cast


def embedding_cost(shape: Shape, interface: Interface, *, pool: str, positions: str, stem: str = "linear") -> Cost:
    """Return the cost of `Embedding`.

    Data needs no gradient, so the projection's backward is one product, not two. Looking up ids takes no multiply-adds.
    """
    data_tokens: Polynomial = N + constant(-1) if pool == "cls" else N
    width = shape.width
    if stem == "convolution":
        first = convolution_stem_cost(interface, width, data_tokens=data_tokens).within("stem")
    elif interface.input != "tokens":
        projection = linear(
            "patch_projection",
            interface.patch_dim,
            width,
            scope="embedding",
            tokens=data_tokens,
            backward_products=1,
        )
        first = Cost((projection,))
    else:
        first = Cost((Term(name="token_embedding", scope="embedding", params=constant(interface.vocab_size * width)),))
    class_token = ONE * width if pool == "cls" else ZERO
    position = N * width if positions == "learned" else ZERO
    return first + Cost(
        (
            Term(name="class_token", scope="embedding", params=class_token),
            Term(name="positions", scope="embedding", params=position),
        )
    )
