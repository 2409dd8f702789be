"""gMLP: what its options make of a block, and which do not go together."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from bench.training.optimizer import decay_groups
from models import gmlp
from models.layers.cost import constant
from models.layers.options import reference_config
from models.layers.shape import Shape
from models.mixers import spatial_gating
from tests.contracts.checks import assert_close_to_largest, randomise

N, WIDTH, FFN_WIDTH, ATTENTION = 9, 8, 16, 4
SHAPE = Shape(seq_len=N, width=WIDTH, depth=2, heads=1, ffn_width=FFN_WIDTH)


def config(**options: Any) -> gmlp.Config:
    return gmlp.Config(shape=SHAPE, **options)


@pytest.mark.parametrize("gating", spatial_gating.GATINGS)
@pytest.mark.parametrize("options", [{}, {"tiny_attention": ATTENTION}, {"tiny_attention": ATTENTION, "activation_after": True}])
@pytest.mark.parametrize(
    "variant",
    [
        {},
        {"head_mix": "mean", "spatial_heads": 4, "toeplitz": True, "gate_norm": False},
        {"kernel": "fft", "toeplitz": True},
        {"rank": 3, "spatial_heads": 2},
    ],
)
@torch.no_grad()
def test_a_block_is_its_formula(gating: str, options: dict[str, Any], variant: dict[str, Any]) -> None:
    block = gmlp.GatedBlock(config(gating=gating, **options, **variant)).double()
    torch.manual_seed(0)
    randomise(block, std=0.5)
    x = torch.randn(3, N, WIDTH, dtype=torch.float64)
    normed = F.layer_norm(x, (WIDTH,), block.norm.weight, block.norm.bias)
    z = F.gelu(normed @ block.expand.weight.T + block.expand.bias)
    u, v = z.chunk(2, dim=-1) if gating == "spatial" else (z, z)
    assert isinstance(block.gating, spatial_gating.SpatialGating)
    gate = block.gating.mix_tokens(block.gating.norm(v))
    if block.attention is not None:
        query, key, value = (normed @ block.attention.qkv.weight.T + block.attention.qkv.bias).chunk(3, dim=-1)
        weights = torch.softmax(query @ key.transpose(1, 2) / ATTENTION**0.5, dim=-1)
        gate = gate + weights @ value @ block.attention.project.weight.T + block.attention.project.bias
    gated = {"spatial": u * gate, "linear": gate, "additive": u + gate, "multiplicative": u * gate}[gating]
    update = gated @ block.contract.weight.T + block.contract.bias
    expected = x + (F.gelu(update) if block.activation_after else update)
    assert_close_to_largest(block(x), expected, 1e-12)


@pytest.mark.parametrize(
    ("gating", "taken"), [("spatial", FFN_WIDTH // 2), ("identity", FFN_WIDTH), ("linear", FFN_WIDTH), ("additive", FFN_WIDTH)]
)
def test_the_last_projection_takes_what_the_gate_leaves(gating: str, taken: int) -> None:
    chosen = config(gating=gating)
    assert gmlp.build(chosen).blocks[0].contract.in_features == taken  # type: ignore[union-attr]
    (term,) = [term for term in gmlp.cost(chosen).terms if term.name == "blocks.contract"]
    assert term.params == constant(SHAPE.depth * (taken * WIDTH + WIDTH))


def test_every_option_of_the_gate_reaches_it() -> None:
    chosen = {"gating": "additive", "head_mix": "mean", "weight_init": "0.05", "bias_init": 0, "gate_norm": False, "toeplitz": True}
    spatial = config(spatial_heads=4, kernel="matmul", **chosen).spatial
    assert spatial == spatial_gating.Config(seq_len=N, width=FFN_WIDTH, heads=4, kernel="matmul", **chosen)  # type: ignore[arg-type]
    assert config(rank=3).spatial == spatial_gating.Config(seq_len=N, width=FFN_WIDTH, rank=3)


@pytest.mark.parametrize("name", gmlp.MIXING_OPTIONS)
def test_options_of_the_gate_are_refused_where_there_is_none(name: str) -> None:
    values = {"spatial_heads": 4, "tiny_attention": 8, "head_mix": "mean", "weight_init": "0.05", "bias_init": 0, "rank": 3}
    wrong: dict[str, Any] = {name: values.get(name, name == "toeplitz")}
    assert config(**wrong)
    with pytest.raises(ValueError, match=f"{name} must be .* with gating=identity"):
        config(gating="identity", **wrong)


@pytest.mark.parametrize("gating", gmlp.GATINGS)
def test_an_fft_needs_diagonals_in_any_form(gating: str) -> None:
    with pytest.raises(ValueError, match=r"kernel=fft needs toeplitz=true"):
        config(gating=gating, kernel="fft")


def test_the_reference_keeps_ffts_and_no_other_kernel() -> None:
    for kernel, kept in (("auto", "linear"), ("matmul", "linear"), ("fft", "fft")):
        chosen = config(kernel=kernel, toeplitz=True)
        reference = reference_config(gmlp, chosen)
        assert reference == dataclasses.replace(chosen, kernel=kept)
        assert gmlp.cost(reference) == gmlp.cost(chosen)


@pytest.mark.parametrize("options", [{"kernel": "fft", "toeplitz": True}, {"rank": 3}])
def test_forms_without_n2_cost_none_in_blocks(options: dict[str, Any]) -> None:
    found = gmlp.cost(config(**options))
    assert found.flops().degree(2) == 0
    assert (found.fft_flops() > 0) is (options.get("kernel") == "fft")
    assert gmlp.cost(config()).flops().degree(2) > 0


@pytest.mark.parametrize("positions", ["learned", "sinusoidal"])
@torch.no_grad()
def test_positions_are_added_to_the_tokens(positions: str) -> None:
    plain, placed = (gmlp.build(config(pool="mean", positions=name)).eval() for name in ("none", positions))
    torch.manual_seed(0)
    randomise(plain)
    placed.load_state_dict(plain.state_dict(), strict=False)
    data = torch.randn(3, N, 192)
    table = placed.embedding.positions
    assert table is not None
    assert table.shape == (1, N, WIDTH)
    table.copy_(torch.randn_like(table))
    assert (placed(data) - plain(data)).abs().max() > 0.01
    table.zero_()
    assert torch.equal(placed(data), plain(data))


def test_learned_positions_cost_a_vector_per_token() -> None:
    plain, learned = (gmlp.cost(config(positions=name)) for name in ("none", "learned"))
    assert learned.params_seq().at(N) - plain.params_seq().at(N) == N * WIDTH
    assert gmlp.cost(config(positions="sinusoidal")) == plain


@pytest.mark.parametrize("options", [{}, {"toeplitz": True}, {"rank": 3}])
def test_the_weights_of_a_spatial_matrix_are_decayed_however_it_is_held(options: dict[str, Any]) -> None:
    model = gmlp.build(config(**options))
    decayed = {id(parameter) for parameter in decay_groups(model)[0]}
    found = {name for name, parameter in model.blocks[0].named_parameters() if id(parameter) in decayed}
    inner = {"gating.inner_weights.0"} if "rank" in options else set()
    assert found == {"expand.weight", "gating.weights.0", "contract.weight"} | inner
