"""gMLP: which of its weights are decayed, and which options do not go together."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from bench.contracts.subjects import family_config
from bench.training.optimizer import decay_groups
from models import gmlp
from models.layers.shape import Interface, Shape
from tests.contracts.family_references import FAMILIES

config = family_config("gmlp", Interface())


@pytest.mark.parametrize("options", [{}, {"toeplitz": True}, {"rank": 3}])
def test_the_weights_of_a_spatial_matrix_are_decayed_however_it_is_held(options: dict[str, Any]) -> None:
    model = gmlp.build(config(**options))
    decayed = {id(parameter) for parameter in decay_groups(model)[0]}
    found = {name for name, parameter in model.blocks[0].named_parameters() if id(parameter) in decayed}
    inner = {"gating.inner_weights.0"} if "rank" in options else set()
    assert found == {"expand.weight", "gating.weights.0", "contract.weight"} | inner


@pytest.mark.parametrize("name", gmlp.MIXING_OPTIONS)
def test_options_of_the_gate_are_refused_where_there_is_none(name: str) -> None:
    values = {"spatial_heads": 4, "tiny_attention": 8, "head_mix": "mean", "weight_init": "0.05", "bias_init": 0, "rank": 3}
    wrong: dict[str, Any] = {name: values.get(name, name in ("toeplitz", "causal"))}
    assert config(**wrong)
    with pytest.raises(ValueError, match=f"{name} must be .* with gating=identity"):
        config(gating="identity", **wrong)


def test_a_gate_narrower_than_the_tokens_costs_and_answers_as_the_formula_says() -> None:
    """A hidden width below the width: the gate contracts (k < 1)."""
    narrow = gmlp.Config(shape=Shape(seq_len=5, width=16, depth=2, heads=1, ffn_width=8), pool="mean")
    torch.manual_seed(0)
    model = gmlp.build(narrow).double()
    parameters = dict(model.named_parameters())
    assert gmlp.cost(narrow).params().at(5) == sum(weight.numel() for weight in parameters.values())
    assert parameters["blocks.0.contract.weight"].shape == (16, 4)
    with torch.no_grad():
        for weight in parameters.values():
            weight.add_(0.1 * torch.randn_like(weight))
        data = torch.randn(1, 5, 192, dtype=torch.float64)
        expected, _ = FAMILIES["gmlp"](narrow, parameters, data[0], torch.ones(5, dtype=torch.bool))
        torch.testing.assert_close(model(data)[0], expected)
