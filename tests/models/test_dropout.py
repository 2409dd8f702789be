"""Dropout: how often each family drops, what `set_dropout` refuses, and what is left of attention weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench import catalog
from bench.contracts.subjects import family_config
from models.layers.dropout import dropping_places, set_dropout
from models.layers.shape import Interface
from models.mixers import attention, low_rank_attention

DEPTH = 3
DROPS_PER_BLOCK = {"gmlp": 1, "vit": 2, "transformer": 2, "metaformer": 2}
"""One per update that a block adds to its residual."""


def build(family: str) -> nn.Module:
    model: nn.Module = catalog.load("families", family).build(family_config(family, Interface(), seq_len=5, depth=DEPTH)(pool="cls"))
    return model.train()


@pytest.mark.parametrize("family", DROPS_PER_BLOCK)
@pytest.mark.parametrize("share", [0.0, 0.25])
def test_every_residual_update_and_the_embedding_drop_and_the_state_stays(
    family: str, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[float] = []

    def counted(tokens: Tensor, p: float, training: bool) -> Tensor:
        calls.append(p)
        assert training
        return tokens

    monkeypatch.setattr(F, "dropout", counted)
    model = build(family)
    before = set(model.state_dict())
    set_dropout(model, share)
    model(torch.randn(2, 4, 192))
    assert calls == ([share] * (1 + DEPTH * DROPS_PER_BLOCK[family]) if share else [])
    assert set(model.state_dict()) == before


@pytest.mark.parametrize("share", [-0.1, 1.0, float("nan")])
def test_a_share_that_is_none_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match="at least 0 and below 1"):
        set_dropout(build("vit"), share)


def test_places_that_a_model_does_not_have_are_refused_by_name() -> None:
    model = build("transformer")
    for share in (0.1, 0.0):
        with pytest.raises(ValueError, match="not 'everywhere'"):
            set_dropout(model, share, ("everywhere",))
    without_head = nn.ModuleList(module for name, module in model.named_children() if name != "head")
    with pytest.raises(ValueError, match="not 'head'"):
        set_dropout(without_head, 0.1, ("embedding", "head"))
    set_dropout(without_head, 0.0, ("head",))
    with pytest.raises(ValueError, match="without dropout modules"):
        set_dropout(nn.Linear(2, 2), 0.1)


def test_modules_of_torch_are_left_alone() -> None:
    """The dropout of a GRU lies between its layers: no place of a recipe."""
    gru = nn.GRU(4, 4, num_layers=2)
    assert dropping_places(gru) == ()
    set_dropout(nn.ModuleList([gru, build("vit")]), 0.5)
    assert gru.dropout == 0.0


@pytest.mark.parametrize(("mixer", "keys"), [(attention, 7), (low_rank_attention, 64)])
def test_attention_drops_weights(mixer: Any, keys: int) -> None:
    """With values of one and no projection, an answer is the sum of what is left of the weights: multiples of weight / (1 - share)."""
    torch.manual_seed(0)
    module, tokens = mixer.build(mixer.Config(seq_len=7, width=8, heads=2)), torch.randn(3, 7, 8)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
        (module.qkv.bias[16:] if mixer is attention else module.value.bias).fill_(1.0)
        module.project.weight.copy_(torch.eye(8))
        set_dropout(module, 0.5, ("attention",))
        assert torch.allclose(module.eval()(tokens), torch.ones(3, 7, 8))
        kept = module.train()(tokens) * keys / 2
    assert torch.allclose(kept, kept.round(), atol=1e-4)
    assert kept.std() > 0.5
