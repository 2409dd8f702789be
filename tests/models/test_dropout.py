"""Where each family drops, and what `set_dropout` refuses."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench import catalog
from models.layers.dropout import DROPOUT_PLACES, dropping_places, set_dropout
from models.layers.head import Head
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
    with pytest.raises(ValueError, match="for a model without dropout modules"):
        set_dropout(nn.Linear(2, 2), 0.1)


@pytest.mark.parametrize("family", DROPS_PER_BLOCK)
def test_dropout_adds_nothing_to_the_state(family: str) -> None:
    model = build(family)
    before = set(model.state_dict())
    set_dropout(model, 0.5)
    assert set(model.state_dict()) == before


def test_places_that_a_model_does_not_have_are_refused_by_name() -> None:
    model = build("transformer")
    for share, places in ((0.1, ("everywhere",)), (0.0, ("everywhere",))):
        with pytest.raises(ValueError, match="dropout_at must be one of embedding, residual, attention, head, not 'everywhere'"):
            set_dropout(model, share, places)
    without_head = nn.ModuleList(module for name, module in model.named_children() if name != "head")
    with pytest.raises(ValueError, match=r"dropout_at must be one of embedding, residual.* for this model, not 'head'"):
        set_dropout(without_head, 0.1, ("embedding", "head"))
    set_dropout(without_head, 0.0, ("head",))


class Attending(nn.Module):
    """A mixer that names its own place."""

    DROPS_AT = "attention"

    def __init__(self) -> None:
        super().__init__()
        self.dropout = 0.0


def test_each_module_drops_at_its_place_alone() -> None:
    model = build("gmlp")
    model.mixer = Attending()
    places = {type(module).__name__: getattr(module, "DROPS_AT", "residual") for module in model.modules() if hasattr(module, "dropout")}
    assert set(places.values()) == set(DROPOUT_PLACES) == set(dropping_places(model))
    for place in DROPOUT_PLACES:
        set_dropout(model, 0.25, (place,))
        found = {type(module).__name__: module.dropout for module in model.modules() if type(module).__name__ in places}
        assert found == {name: 0.25 if its_place == place else 0.0 for name, its_place in places.items()}


def test_modules_of_torch_are_left_alone() -> None:
    """The dropout of a GRU lies between its layers: no place of a recipe."""
    gru = nn.GRU(4, 4, num_layers=2)
    assert dropping_places(gru) == ()
    set_dropout(nn.ModuleList([gru, build("vit")]), 0.5)
    assert gru.dropout == 0.0


@pytest.mark.parametrize("pool", ["cls", "mean", "none"])
@pytest.mark.parametrize("hidden", [0, 8])
def test_the_head_drops_of_what_its_classifier_reads(pool: str, hidden: int) -> None:
    torch.manual_seed(0)
    head = Head(64, 4, pool=pool, hidden=hidden)
    tokens, read = torch.rand(3, 5, 64), list[Tensor]()
    head.classify.register_forward_pre_hook(lambda _, inputs: read.append(inputs[0]))
    set_dropout(head, 0.5, ("head",))
    head.eval()(tokens)
    head.train()(tokens)
    kept, dropped = read
    gone = dropped == 0
    assert not (kept == 0).any()
    assert 0.2 < gone.double().mean() < 0.8
    torch.testing.assert_close(dropped[~gone], 2 * kept[~gone])
