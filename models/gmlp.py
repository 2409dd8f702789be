"""gMLP: blocks of channel projections around spatial gating, without attention (Liu et al., "Pay Attention to MLPs", arXiv 2105.08050)."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from models.layers.cost import Cost, layer_norm, linear
from models.layers.embedding import Embedding, embedding_cost
from models.layers.head import Head, head_cost
from models.layers.initialise import initialise_linears
from models.layers.shape import POOLS, Interface, Shape, require_non_negative, require_one_of
from models.mixers import attention, spatial_gating

NOMINAL_FFN_RATIO = 6
USES_HEADS = False
REFERENCE_OPTIONS = {"kernel": "linear"}
_IMAGENET = Interface(patch_dim=768, num_classes=1000)
VARIANTS: dict[str, tuple[Shape, Interface, dict[str, str]]] = {
    # arXiv 2105.08050, Table 1: 224 px, patch 16, 196 tokens, mean pooling
    "gmlp-ti": (Shape(seq_len=196, width=128, depth=30, heads=1, ffn_width=768), _IMAGENET, {"pool": "mean"}),
    "gmlp-s": (Shape(seq_len=196, width=256, depth=30, heads=1, ffn_width=1536), _IMAGENET, {"pool": "mean"}),
    "gmlp-b": (Shape(seq_len=196, width=512, depth=30, heads=1, ffn_width=3072), _IMAGENET, {"pool": "mean"}),
}


@dataclass(frozen=True, kw_only=True)
class Config:
    """Options.

    pool: `cls` (a class token) or `mean`. spatial_heads: channel groups with a spatial matrix each. tiny_attention: width of the single-head
    attention added to the gate, aMLP (0: none). activation_after: GELU after the last projection of each block. head_hidden: width of a hidden
    layer in the head (0: none). kernel: formulation of the spatial projection.
    """

    shape: Shape
    interface: Interface = Interface()
    pool: str = "cls"
    spatial_heads: int = 1
    tiny_attention: int = 0
    activation_after: bool = False
    head_hidden: int = 0
    kernel: str = "auto"

    def __post_init__(self) -> None:
        require_one_of("pool", self.pool, POOLS)
        require_non_negative("tiny_attention", self.tiny_attention)
        require_non_negative("head_hidden", self.head_hidden)
        _ = self.gating  # refuses an ffn_width that does not split

    @property
    def gating(self) -> spatial_gating.Config:
        shape = self.shape
        return spatial_gating.Config(seq_len=shape.seq_len, width=shape.ffn_width, heads=self.spatial_heads, kernel=self.kernel)

    @property
    def attention(self) -> attention.Config | None:
        if not self.tiny_attention:
            return None
        return attention.Config(
            seq_len=self.shape.seq_len,
            width=self.shape.width,
            inner_width=self.tiny_attention,
            out_width=self.shape.ffn_width // 2,
        )


class GatedBlock(nn.Module):
    """`(batch, n, width)` -> the same: x + V (gate(GELU(U norm(x)))) (arXiv 2105.08050, Fig. 1)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        width, ffn_width = config.shape.width, config.shape.ffn_width
        self.norm = nn.LayerNorm(width)
        self.expand = nn.Linear(width, ffn_width)
        self.gating = spatial_gating.build(config.gating)
        self.attention = attention.build(config.attention) if config.attention else None
        self.contract = nn.Linear(ffn_width // 2, width)
        self.activation_after = config.activation_after

    def forward(self, tokens: Tensor) -> Tensor:
        normed = self.norm(tokens)
        extra = None if self.attention is None else self.attention(normed)
        update = self.contract(self.gating(F.gelu(self.expand(normed)), extra))
        return tokens + (F.gelu(update) if self.activation_after else update)


class GMLP(nn.Module):
    """Patches or token ids -> `(batch, num_classes)` logits. No positions: the spatial matrices know where each token is."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        shape, interface = config.shape, config.interface
        self.embedding = Embedding(shape, interface, pool=config.pool, positions="none")
        self.blocks = nn.Sequential(*(GatedBlock(config) for _ in range(shape.depth)))
        self.norm = nn.LayerNorm(shape.width)
        self.head = Head(shape.width, interface.num_classes, pool=config.pool, hidden=config.head_hidden)
        initialise_linears(self)

    def forward(self, data: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.embedding(data))))


def build(config: Config) -> GMLP:
    return GMLP(config)


def cost(config: Config) -> Cost:
    width, ffn_width = config.shape.width, config.shape.ffn_width
    block = Cost((layer_norm("norm", width), linear("expand", width, ffn_width)))
    block = block + spatial_gating.cost(config.gating).within("gating")
    if config.attention:
        block = block + attention.cost(config.attention).within("tiny_attention")
    block = block + Cost((linear("contract", ffn_width // 2, width),))
    return (
        embedding_cost(config.shape, config.interface, pool=config.pool, positions="none").within("embedding")
        + block.repeated(config.shape.depth).within("blocks")
        + Cost((layer_norm("norm", width, scope="head"),)).within("head")
        + head_cost(width, config.interface.num_classes, hidden=config.head_hidden).within("head")
    )


def uses_attention(config: Config) -> bool:
    return config.tiny_attention > 0
