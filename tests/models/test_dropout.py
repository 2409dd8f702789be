"""Where each family drops, and what `set_dropout` refuses."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench import catalog
from models.layers.dropout import set_dropout
from models.layers.shape import Shape

DEPTH = 3
DROPS_PER_BLOCK = {"gmlp": 1, "vit": 2, "transformer": 2, "metaformer": 2}
"""One per update that a block adds to its residual."""


def build(family: str) -> nn.Module:
    module = catalog.load("families", family)
    model: nn.Module = module.build(module.Config(shape=Shape(seq_len=5, width=16, depth=DEPTH, heads=2, ffn_width=32), pool="cls"))
    return model.train()


@pytest.mark.parametrize("family", DROPS_PER_BLOCK)
@pytest.mark.parametrize("share", [0.0, 0.25])
def test_every_residual_update_and_the_embedding_drop(family: str, share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[float] = []

    def counted(tokens: Tensor, p: float, training: bool) -> Tensor:
        calls.append(p)
        assert training
        return tokens

    monkeypatch.setattr(F, "dropout", counted)
    model = build(family)
    set_dropout(model, share)
    model(torch.randn(2, 4, 192))
    assert calls == ([share] * (1 + DEPTH * DROPS_PER_BLOCK[family]) if share else [])


@pytest.mark.parametrize("share", [-0.1, 1.0, 1.5, float("nan")])
def test_a_share_that_is_none_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match="dropout must be at least 0 and below 1"):
        set_dropout(build("vit"), share)


def test_a_model_that_cannot_drop_is_refused() -> None:
    set_dropout(nn.Linear(2, 2), 0.0)
    with pytest.raises(ValueError, match="without modules that drop"):
        set_dropout(nn.Linear(2, 2), 0.1)


@pytest.mark.parametrize("family", DROPS_PER_BLOCK)
def test_dropout_adds_nothing_to_the_state(family: str) -> None:
    model = build(family)
    before = set(model.state_dict())
    set_dropout(model, 0.5)
    assert set(model.state_dict()) == before
