"""Mixers and blocks, forward, each beside matrix products of equal FLOPs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from bench import catalog
from bench.measure.model import build_model, cost_of
from bench.spec import ModelSpec
from models.layers.shape import Interface, Shape
from tests.benchmarks.conftest import Against

SEQ_LEN, WIDTH, BATCH_SIZE, DEPTH = 65, 128, 16, 2
FFN_WIDTH = {"gmlp": 6 * WIDTH}
ROUNDS = 30


@pytest.mark.parametrize("name", catalog.names("mixers"))
def test_mixer(against: Against, name: str) -> None:
    module = catalog.load("mixers", name)
    config = module.Config(seq_len=SEQ_LEN, width=WIDTH)
    macs = module.cost(config).macs().at(SEQ_LEN)
    tokens = torch.randn(BATCH_SIZE, SEQ_LEN, WIDTH)
    reference = product_of(macs) if macs else tokens.clone
    what = "matrix product" if macs else "copy"
    against(f"{name} / {what}", forward(module.build(config), tokens), reference, rounds=ROUNDS)


@pytest.mark.parametrize("family", ["gmlp", "vit", "transformer"])
def test_blocks(against: Against, family: str) -> None:
    shape = Shape(seq_len=SEQ_LEN, width=WIDTH, depth=DEPTH, heads=4, ffn_width=FFN_WIDTH.get(family, 4 * WIDTH))
    spec = ModelSpec(name=family, family=family, shape=shape, interface=Interface())
    patches = torch.randn(BATCH_SIZE, SEQ_LEN - 1, spec.interface.patch_dim)
    against(f"{family} / matrix product", forward(build_model(spec), patches), product_of(cost_of(spec).macs().at(SEQ_LEN)), rounds=ROUNDS)


def forward(module: nn.Module, data: Tensor) -> Callable[[], object]:
    module.eval()

    def step() -> object:
        with torch.inference_mode():
            return module(data)

    return step


def product_of(macs: int) -> Callable[[], object]:
    """One product of all tokens with a matrix that has as many columns as it takes, of `macs` multiply-adds per sample."""
    tokens, weight = torch.randn(BATCH_SIZE * SEQ_LEN, WIDTH), torch.randn(WIDTH, max(1, round(macs / SEQ_LEN / WIDTH)))

    def product() -> object:
        with torch.inference_mode():
            return tokens @ weight

    return product
