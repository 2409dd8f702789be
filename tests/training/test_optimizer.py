"""Weight decay falls on matrices, the learning rate follows the schedule."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from bench.build import build_model
from bench.spec import ModelSpec, OptionValue, Recipe
from bench.training.optimizer import build_optimizer, build_scheduler, decay_groups
from models.layers.shape import Interface, Shape

SHAPE = Shape(seq_len=5, width=8, depth=1, heads=2, ffn_width=16)


def decayed_names(family: str, interface: Interface, **options: OptionValue) -> set[str]:
    model = build_model(ModelSpec(name=family, family=family, shape=SHAPE, interface=interface, options=tuple(options.items())))
    decayed, free = decay_groups(model)
    assert len(decayed) + len(free) == len(list(model.parameters()))
    ids = {id(parameter) for parameter in decayed}
    return {name for name, parameter in model.named_parameters() if id(parameter) in ids}


def test_gmlp_decays_projections_and_spatial_matrices() -> None:
    """Not the class token, nor norms, biases, spatial biases."""
    assert decayed_names("gmlp", Interface()) == {
        "embedding.project.weight",
        "blocks.0.expand.weight",
        "blocks.0.gating.weights.0",
        "blocks.0.contract.weight",
        "head.classify.weight",
    }


def test_vit_decays_no_positions() -> None:
    assert decayed_names("vit", Interface()) == {
        "embedding.project.weight",
        "blocks.0.attention.qkv.weight",
        "blocks.0.attention.project.weight",
        "blocks.0.feed_forward.expand.weight",
        "blocks.0.feed_forward.contract.weight",
        "head.classify.weight",
    }


def test_a_table_of_token_embeddings_is_not_decayed() -> None:
    assert "embedding.project.weight" not in decayed_names("vit", Interface(input="tokens"))


def test_decay_shrinks_the_matrix_alone_where_there_is_no_gradient() -> None:
    layer = nn.Linear(3, 3)
    nn.init.ones_(layer.weight)
    nn.init.ones_(layer.bias)
    optimizer = build_optimizer(layer, Recipe(learning_rate=0.1, weight_decay=0.5))
    layer.weight.grad, layer.bias.grad = torch.zeros_like(layer.weight), torch.zeros_like(layer.bias)
    optimizer.step()
    torch.testing.assert_close(layer.weight.detach(), torch.full((3, 3), 0.95))
    torch.testing.assert_close(layer.bias.detach(), torch.ones(3))


def test_a_model_of_vectors_alone_has_one_group() -> None:
    assert len(build_optimizer(nn.LayerNorm(4), Recipe()).param_groups) == 1


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")
def test_every_group_follows_the_schedule_step_by_step() -> None:
    optimizer = build_optimizer(nn.Linear(2, 2), Recipe(learning_rate=0.4, warmup=0.5))
    scheduler = build_scheduler(optimizer, Recipe(learning_rate=0.4, warmup=0.5), num_steps=4)
    rates = []
    for _ in range(4):
        rates.append([group["lr"] for group in optimizer.param_groups])
        scheduler.step()
    # two steps of warm-up, then a third and two thirds of the way: cos 60 and 120 degrees
    assert rates == [pytest.approx([rate] * 2) for rate in (0.2, 0.4, 0.3, 0.1)]
