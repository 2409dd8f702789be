"""Looking into models: which matrices are found, in which order, and that looking changes nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from bench.contracts.architectures import randomise
from bench.measure.model import build_model
from bench.spec import OptionValue
from bench.tasks import IGNORED, Split
from bench.training import inspection
from bench.training.data import TrainingData
from bench.training.inspection import MAX_ITEMS, mixing_of
from bench.training.weight_maps import ALIGNMENT, POSITIONS, TokenLayout
from models.layers.embedding import Embedding
from models.layers.shape import Interface
from tests.made_jobs import small_model
from tests.training.small_trainings import made_data, made_images

LAYOUT = TokenLayout(seq_len=5, class_token=True, grid=(2, 2))


def built(
    family: str, interface: Interface = Interface(patch_dim=48, num_classes=3), seq_len: int = 5, **options: OptionValue
) -> nn.Module:
    torch.manual_seed(0)
    return build_model(small_model(family, options=options, interface=interface, seq_len=seq_len, depth=3, heads=2))


def images(num_test: int = 15) -> TrainingData:
    return dataclasses.replace(made_data(), test=made_images(num_test, 2))


def test_spatial_matrices_are_found_layer_by_layer_and_head_by_head() -> None:
    model = built("gmlp", spatial_heads=2)
    found = mixing_of(model, images(), LAYOUT)
    assert list(found) == ["spatial_gating"]
    maps = np.stack([layer.maps for layer in found["spatial_gating"]])
    matrices = [weight.tolist() for name, weight in model.named_parameters() if ".gating.weights." in name]
    weights = np.reshape(matrices, (3, 2, 5, 5))
    assert maps.shape == (3, 2, 5, 5)
    assert np.allclose(maps, weights, rtol=1e-5, atol=0.0)
    assert mixing_of(built("gmlp", gating="identity", pool="mean"), images(), LAYOUT) == {}
    both = mixing_of(built("gmlp", tiny_attention=8), images(), LAYOUT)
    assert {kind: len(layers) for kind, layers in both.items()} == {"spatial_gating": 3, "attention": 3}


def test_attention_is_the_mean_over_the_first_items() -> None:
    model = built("vit")
    found = mixing_of(model, images(), LAYOUT)
    assert set(found) == {"attention", POSITIONS}
    assert [layer.maps.shape for layer in found["attention"]] == [(2, 5, 5)] * 3
    assert np.allclose(found["attention"][0].maps.sum(axis=-1), 1.0, atol=1e-5)
    fewer = mixing_of(model, images(3), LAYOUT)
    assert not np.array_equal(fewer["attention"][0].maps, found["attention"][0].maps)
    # what comes after the first items takes no part
    first, more = made_images(MAX_ITEMS, 2), made_images(10, 9)
    both = Split(inputs=torch.cat([first.inputs, more.inputs]), targets=torch.cat([first.targets, more.targets]))
    whole, begun = (mixing_of(model, dataclasses.replace(made_data(), test=test), LAYOUT)["attention"][2] for test in (both, first))
    assert np.array_equal(whole.maps, begun.maps)


def test_items_taken_a_few_at_a_time_give_the_same_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    model = built("vit")
    whole = mixing_of(model, images(), LAYOUT)["attention"]
    monkeypatch.setattr(inspection, "MAX_ENTRIES", 4 * 50)
    parts = mixing_of(model, images(), LAYOUT)["attention"]
    for layer, other in zip(whole, parts, strict=True):
        assert np.allclose(layer.maps, other.maps, atol=1e-6)
    monkeypatch.setattr(inspection, "MAX_SEQ_LEN", 4)
    assert mixing_of(model, images(), LAYOUT) == {}


def test_what_mixes_a_half_of_the_sequence_is_not_taken_for_the_whole() -> None:
    model = built("encoder_decoder", seq_len=4)
    assert [module for module in model.modules() if hasattr(module, "token_weights")]
    assert mixing_of(model, images(), TokenLayout(seq_len=4, class_token=False, grid=(2, 2))) == {}


def test_positions_are_alike_by_their_angle() -> None:
    model = built("transformer", positions="sinusoidal")
    (layer,) = mixing_of(model, images(), LAYOUT)[POSITIONS]
    (embedding,) = (module for module in model.modules() if isinstance(module, Embedding))
    assert embedding.positions is not None
    vectors = embedding.positions[0].detach().numpy()
    assert np.allclose(np.diagonal(layer.maps[0]), 1.0, atol=1e-6)
    expected = vectors[1] @ vectors[3] / np.linalg.norm(vectors[1]) / np.linalg.norm(vectors[3])
    assert layer.maps[0, 1, 3] == pytest.approx(expected, abs=1e-6)
    assert (layer.line, layer.grid) == ((), ())


def test_looking_changes_no_weight_and_draws_no_random_number() -> None:
    model = built("vit")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    mixing_of(model, images(), LAYOUT)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not any(module._forward_pre_hooks for module in model.modules())
    assert all(parameter.grad is None for parameter in model.parameters())


def made_sequences(lengths: list[int]) -> TrainingData:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randint(1, 9, (len(lengths), 5), generator=generator)
    examples = Split(inputs=inputs, targets=torch.zeros(len(lengths), dtype=torch.int64), lengths=torch.tensor(lengths))
    return dataclasses.replace(made_data(), test=examples, reader=dataclasses.replace(made_data().reader, patch_side=None))


def test_padded_items_are_left_out() -> None:
    model = built("vit", Interface(input="tokens", vocab_size=9, num_classes=3), seq_len=6)
    layout = TokenLayout(seq_len=6, class_token=True)
    data = made_sequences([5, 2, 5, 1])
    found = mixing_of(model, data, layout)["attention"]
    whole = dataclasses.replace(data, test=data.test.select(torch.tensor([0, 2])))
    assert np.array_equal(found[0].maps, mixing_of(model, whole, layout)["attention"][0].maps)
    assert mixing_of(model, made_sequences([4, 2, 1]), layout) == {}


def gru(inputs: NDArray[Any], state: NDArray[Any], weights: Mapping[str, NDArray[Any]], suffix: str = "") -> NDArray[Any]:
    """One step of a gated recurrent unit, in torch's order of the gates (Cho et al., arXiv 1406.1078)."""
    reset, update, new = (weights[f"weight_ih{suffix}"] @ inputs + weights[f"bias_ih{suffix}"]).reshape(3, -1)
    reset_state, update_state, new_state = (weights[f"weight_hh{suffix}"] @ state + weights[f"bias_hh{suffix}"]).reshape(3, -1)
    z = 1 / (1 + np.exp(-update - update_state))
    r = 1 / (1 + np.exp(-reset - reset_state))
    following: NDArray[Any] = (1 - z) * np.tanh(new + r * new_state) + z * state
    return following


def test_an_alignment_is_the_softmax_of_the_additive_scores_step_by_step() -> None:
    interface = Interface(input="tokens", vocab_size=9, num_classes=9, output="tokens")
    torch.manual_seed(0)
    model = build_model(small_model("recurrent_attention", interface=interface, seq_len=6, width=8, depth=1, ffn_width=16))
    randomise(model, std=1.5)
    ids = torch.randint(9, (5, 6), generator=torch.Generator().manual_seed(0))
    answers = torch.cat((torch.full((5, 3), IGNORED), ids[:, :3].flip(1)), dim=1)
    test = Split(inputs=ids, targets=answers)
    data = dataclasses.replace(made_data(), test=test, reader=dataclasses.replace(made_data().reader, patch_side=None))
    (layer,) = mixing_of(model, data, TokenLayout(seq_len=6, class_token=False))[ALIGNMENT]

    state = {name: value.numpy().astype(float) for name, value in model.state_dict().items()}

    def part(prefix: str) -> dict[str, NDArray[Any]]:
        return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}

    hidden, memory = np.zeros(8), []
    for token in ids[0, :3]:
        hidden = gru(state["embedding.source.project.weight"][token], hidden, part("blocks.encoder.layers.0."), "_l0")
        memory.append(hidden)
    score = part("blocks.decoder.score.")
    for step, token in enumerate(ids[0, 3:]):
        scores = [score["combine.weight"][0] @ np.tanh(score["query.weight"] @ hidden + score["key.weight"] @ key) for key in memory]
        weights = np.exp(scores) / np.exp(scores).sum()
        assert layer.maps[0, step] == pytest.approx(weights, abs=1e-5)
        context = sum(weight * key for weight, key in zip(weights, memory, strict=True))
        hidden = gru(np.concatenate((state["embedding.target.project.weight"][token], context)), hidden, part("blocks.decoder.layers.0."))
    assert np.ptp(layer.maps) > 0.1
    assert (layer.source, layer.answers) == (tuple(ids[0, :3].tolist()), tuple(answers[0, 3:].tolist()))


def test_position_vectors_are_kept_beside_their_similarity() -> None:
    model = built("vit")
    (layer,) = mixing_of(model, images(), LAYOUT)[POSITIONS]
    assert layer.vectors is not None
    weights = dict(model.named_parameters())["embedding.positions"]
    before = weights[0].detach().clone().numpy()
    with torch.no_grad():
        weights.add_(1)
    assert np.array_equal(layer.vectors, before), "what was kept at the start is not what training makes of it"


def test_tokens_of_kernel_regression_are_sorted_by_x() -> None:
    """The mean over items whose x are drawn at random is a band all the same."""
    generator = torch.Generator().manual_seed(0)
    x = 5 * torch.rand(40, 12, 1, generator=generator)
    inputs = torch.cat((x, x.sin(), torch.zeros_like(x)), dim=-1)
    data = dataclasses.replace(
        made_data(), test=Split(inputs=inputs, targets=x[..., 0]), reader=dataclasses.replace(made_data().reader, patch_side=None)
    )
    model = build_model(small_model("kernel_regression", interface=Interface(patch_dim=3, num_classes=1, output="tokens"), seq_len=12))
    (layer,) = mixing_of(model, data, TokenLayout(seq_len=12, class_token=False))["kernel_regression"]
    assert layer.order == "x"
    for row, entries in enumerate(layer.maps[0]):
        assert (np.diff(entries[: row + 1]) > 0).all()
        assert (np.diff(entries[row:]) < 0).all()
