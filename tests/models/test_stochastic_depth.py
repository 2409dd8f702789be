"""Stochastic depth: which updates a sample skips, how often, and that what it does not skip keeps its expected value."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench import catalog
from bench.contracts.subjects import family_config
from bench.spec import Recipe, RequestError
from models import vit
from models.layers.dropout import set_stochastic_depth
from models.layers.residual import ResidualBlock
from models.layers.shape import Interface
from tests.planning.plans import plan_of

SHARE = 0.4
SAMPLES = 4000
FAMILIES: dict[str, tuple[dict[str, Any], int]] = {
    "gmlp": ({}, 1),
    "vit": ({}, 2),
    "transformer": ({}, 2),
    "encoder_decoder": ({}, 5),
    **{f"metaformer, {residual}": ({"residual": residual}, 2) for residual in ("pre", "post", "inner")},
}
"""By family: options, and updates in a model of one block, or of one in encoder and decoder."""


def build(name: str, depth: int = 1, **options: Any) -> nn.Module:
    family = name.partition(",")[0]
    torch.manual_seed(0)
    model: nn.Module = catalog.load("families", family).build(family_config(family, Interface(), seq_len=4, depth=depth)(**options))
    return model


@pytest.mark.parametrize("name", FAMILIES)
@torch.no_grad()
def test_each_sample_skips_updates_as_often_as_asked_and_scales_the_others(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answer is that of one of the models in which some updates are zero and the others are divided by their share."""
    options, num_updates = FAMILIES[name]
    model = build(name, **options).eval().double()
    data = torch.randn(1, 4 - (model.pool == "cls" if hasattr(model, "pool") else 0), 192, dtype=torch.float64)
    plain = model(data)
    shares = [SHARE / 2, SHARE / 2, *[SHARE] * 3] if name == "encoder_decoder" else [SHARE] * num_updates
    expected = {}
    for kept in itertools.product((False, True), repeat=num_updates):
        scales = iter([keep / (1 - share) for keep, share in zip(kept, shares, strict=True)])
        with monkeypatch.context() as patch:
            patch.setattr(ResidualBlock, "drop", lambda _, update, left=scales: update * next(left))
            expected[kept] = model(data)
    set_stochastic_depth(model, SHARE)
    assert torch.equal(model(data), plain), "it skips in evaluation"
    answers = model.train()(data.expand(SAMPLES, -1, -1))
    distances, outcome = (answers[:, None] - torch.cat(list(expected.values()))).abs().amax(dim=-1).min(dim=1)
    assert (distances < 1e-9).all()
    for place, kept in enumerate(expected):
        chance = math.prod(1 - share if keep else share for keep, share in zip(kept, shares, strict=True))
        assert float((outcome == place).double().mean()) == pytest.approx(chance, abs=0.03)
    set_stochastic_depth(model, 0.0)
    assert torch.equal(model(data), plain)


@torch.no_grad()
def test_a_block_of_vit_by_hand() -> None:
    """Each sample is x + a + f, x + a, x + f or x, with a and f doubled where half of them are skipped."""
    block = build("vit").double().get_submodule("blocks.0")
    assert isinstance(block, vit.PreNormBlock)
    block.stochastic_depth = 0.5
    tokens = torch.randn(1, 4, 16, dtype=torch.float64)

    def fed(tokens: Tensor) -> Tensor:
        answer: Tensor = block.feed_forward(F.layer_norm(tokens, (16,)))
        return answer

    attended = tokens + 2 * block.attention(F.layer_norm(tokens, (16,)))
    outcomes = torch.cat([tokens, tokens + 2 * fed(tokens), attended, attended + 2 * fed(attended)])
    answers = block.train()(tokens.expand(100, -1, -1))
    distances = (answers[:, None] - outcomes).abs().amax(dim=(2, 3))
    assert (distances.min(dim=1).values < 1e-12).all()
    assert distances.argmin(dim=1).unique().tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(("name", "num_blocks"), [("gmlp", 4), ("encoder_decoder", 8)])
def test_the_share_rises_linearly_to_the_last_block(name: str, num_blocks: int) -> None:
    model = build(name, depth=4)
    set_stochastic_depth(model, SHARE)
    blocks = list(model.get_submodule("blocks").children())
    shares = [{m.stochastic_depth for m in block.modules() if isinstance(m, ResidualBlock)} for block in blocks]
    assert [len(found) for found in shares] == [1] * num_blocks
    assert [found.pop() for found in shares] == pytest.approx([SHARE * place / num_blocks for place in range(1, num_blocks + 1)])


def test_what_has_no_residual_is_refused() -> None:
    for model in (build("recurrent_attention"), build("metaformer", residual="none"), nn.Linear(2, 2)):
        with pytest.raises(ValueError, match="without blocks that add to a residual"):
            set_stochastic_depth(model, SHARE)
        set_stochastic_depth(model, 0.0)
    with pytest.raises(ValueError, match="at least 0 and below 1"):
        set_stochastic_depth(build("vit"), 1.0)


def test_it_is_refused_when_planned() -> None:
    flags: dict[str, Any] = {"task": "digits", "metrics": "params,accuracy", "seq": "16", "params": "250k"}
    with pytest.raises(RequestError, match=r"metaformer\+residual=none has no blocks that add to a residual"):
        plan_of(recipe=Recipe(stochastic_depth=0.1), models="metaformer+residual=none", **flags)
    assert plan_of(recipe=Recipe(stochastic_depth=0.1), models="metaformer,gmlp+pool=mean,encoder_decoder", **flags).cells
