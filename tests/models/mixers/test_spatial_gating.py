"""Spatial gating: every form of s(Z) against its formula, Toeplitz matrices, averaged heads, and what fresh weights are."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from models.mixers.spatial_gating import GATINGS, KERNELS, WEIGHT_STDS, Config, SpatialGating, build, cost, toeplitz_matrix
from tests.contracts.checks import assert_close_to_largest, randomise

N, WIDTH = 7, 16


def gating(**options: Any) -> SpatialGating:
    """In float64, all weights redrawn."""
    module = build(Config(seq_len=N, width=WIDTH, **options)).double()
    torch.manual_seed(0)
    randomise(module, std=0.5)
    return module


def drawn(*sizes: int) -> Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def matrix_of(weight: Tensor) -> Tensor:
    """W, entry by entry: as it is, or from its diagonals."""
    if weight.shape == (N, N):
        return weight
    entries = [[weight[0, 0 if i == j else 2 * abs(i - j) - (i > j)] for j in range(N)] for i in range(N)]
    return torch.tensor(entries, dtype=torch.float64)


def projected(module: SpatialGating, v: Tensor, *, mean: bool) -> Tensor:
    """W v + b, every head by its sum over tokens, in its group of channels or averaged over heads."""
    heads = [(matrix_of(weight), bias) for weight, bias in zip(module.weights, module.biases, strict=True)]
    parts = [v] * len(heads) if mean else v.chunk(len(heads), dim=-1)
    answers = [torch.einsum("ij,bjc->bic", w, part) + b[None, :, None] for (w, b), part in zip(heads, parts, strict=True)]
    return sum(answers) / len(answers) if mean else torch.cat(answers, dim=-1)


def normed(v: Tensor, norm: nn.Module) -> Tensor:
    if not isinstance(norm, nn.LayerNorm):
        return v
    centred = v - v.mean(dim=-1, keepdim=True)
    return centred / (centred.square().mean(dim=-1, keepdim=True) + norm.eps).sqrt() * norm.weight + norm.bias


def by_formula(form: str, z: Tensor, module: SpatialGating, *, mean: bool, extra: Tensor | float = 0.0) -> Tensor:
    """arXiv 2105.08050, Sec. 2.1: f on the second half of Z or on all of it."""
    u, v = (z[..., : WIDTH // 2], z[..., WIDTH // 2 :]) if form == "spatial" else (z, z)
    f = projected(module, normed(v, module.norm), mean=mean) + extra
    return {"spatial": u * f, "linear": f, "additive": u + f, "multiplicative": u * f}[form]


@pytest.mark.parametrize("form", GATINGS)
@pytest.mark.parametrize(("heads", "head_mix"), [(1, "split"), (4, "split"), (4, "mean"), (1, "mean")])
@pytest.mark.parametrize("gate_norm", [True, False])
@pytest.mark.parametrize("toeplitz", [False, True])
@torch.no_grad()
def test_every_form_is_its_formula(form: str, heads: int, head_mix: str, gate_norm: bool, toeplitz: bool) -> None:
    module = gating(gating=form, heads=heads, head_mix=head_mix, gate_norm=gate_norm, toeplitz=toeplitz)
    z, extra = drawn(3, N, WIDTH), drawn(3, N, module.channels)
    mean = head_mix == "mean"
    assert_close_to_largest(module(z), by_formula(form, z, module, mean=mean), 1e-12)
    assert_close_to_largest(module(z, extra=extra), by_formula(form, z, module, mean=mean, extra=extra), 1e-12)


@torch.no_grad()
def test_the_forms_differ() -> None:
    z = drawn(3, N, WIDTH)
    answers = [by_formula(form, z, gating(gating=form), mean=False) for form in GATINGS if form != "spatial"]
    for first, second in ((0, 1), (0, 2), (1, 2)):
        assert (answers[first] - answers[second]).abs().max() > 0.1


@pytest.mark.parametrize("form", GATINGS)
@pytest.mark.parametrize("kernel", ["auto", *KERNELS])
@pytest.mark.parametrize("training", [False, True])
def test_every_kernel_answers_the_same_in_every_form(form: str, kernel: str, training: bool) -> None:
    options = {"gating": form, "heads": 2, "head_mix": "mean", "toeplitz": True}
    z = drawn(3, N, WIDTH)
    with torch.set_grad_enabled(training):
        assert_close_to_largest(gating(kernel=kernel, **options)(z), gating(kernel="linear", **options)(z), 1e-12)


@pytest.mark.parametrize(("form", "heads", "channels"), [("spatial", 2, WIDTH // 2), ("linear", 2, WIDTH), ("additive", 1, WIDTH)])
def test_without_a_split_every_channel_comes_out(form: str, heads: int, channels: int) -> None:
    config = Config(seq_len=N, width=WIDTH, gating=form, heads=heads)
    assert build(config)(torch.randn(2, N, WIDTH)).shape == (2, N, channels)
    assert cost(config).macs().at(N) == N * N * channels


@pytest.mark.parametrize("n", [1, 2, 3, N])
def test_a_toeplitz_matrix_is_constant_along_diagonals_that_lie_by_distance(n: int) -> None:
    diagonals = torch.arange(1.0, 2 * n)
    matrix = toeplitz_matrix(diagonals)
    assert matrix.shape == (n, n)
    for offset in range(1 - n, n):
        place = 0 if offset == 0 else 2 * abs(offset) - (offset < 0)
        assert matrix.diagonal(offset).tolist() == [diagonals[place].item()] * (n - abs(offset))


def test_fewer_tokens_take_the_first_diagonals() -> None:
    diagonals = drawn(2 * N - 1)
    assert torch.equal(toeplitz_matrix(diagonals[: 2 * 4 - 1]), toeplitz_matrix(diagonals)[:4, :4])


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_gradient_of_a_diagonal_is_the_sum_over_it(kernel: str) -> None:
    constrained, free = gating(toeplitz=True, kernel=kernel), gating(kernel=kernel)
    state = free.state_dict() | {name: value for name, value in constrained.state_dict().items() if not name.startswith("weights")}
    free.load_state_dict(state | {"weights.0": matrix_of(constrained.weights[0].detach())})
    z, upstream = drawn(3, N, WIDTH), drawn(5, N, WIDTH // 2)[:3]
    for module in (constrained, free):
        (module(z) * upstream).sum().backward()
    dense, found = free.weights[0].grad, constrained.weights[0].grad
    assert dense is not None
    assert found is not None
    offsets = [0, *(sign * distance for distance in range(1, N) for sign in (-1, 1))]
    expected = torch.stack([dense.diagonal(offset).sum() for offset in offsets])
    assert_close_to_largest(found[0], expected, 1e-12)


def test_a_toeplitz_matrix_has_linear_weights_and_a_quadratic_product() -> None:
    constrained, free = (cost(Config(seq_len=N, width=WIDTH, heads=2, toeplitz=toeplitz)) for toeplitz in (True, False))
    assert constrained.params_seq().at(N) == 2 * (2 * N - 1 + N)
    assert free.params_seq().at(N) == 2 * (N * N + N)
    assert constrained.macs() == free.macs()


@pytest.mark.parametrize("toeplitz", [False, True])
@torch.no_grad()
def test_averaged_heads_are_one_head_with_the_mean_matrix(toeplitz: bool) -> None:
    averaged, single = gating(heads=4, head_mix="mean", toeplitz=toeplitz), gating(toeplitz=toeplitz)
    for name, parameter in single.named_parameters():
        list_name = name.partition(".")[0]
        held = [value for key, value in averaged.named_parameters() if key.partition(".")[0] == list_name]
        parameter.copy_(torch.stack(tuple(held)).mean(dim=0) if len(held) == 4 else dict(averaged.named_parameters())[name])
    z = drawn(3, N, WIDTH)
    assert_close_to_largest(averaged(z), single(z), 1e-12)
    assert_close_to_largest(averaged.token_weights(z), single.token_weights(z), 1e-12)
    assert (averaged(z) - gating(heads=4, toeplitz=toeplitz)(z)).abs().max() > 0.1


def test_averaged_heads_take_one_product_and_hold_every_matrix() -> None:
    averaged, single = (cost(Config(seq_len=N, width=WIDTH, heads=heads, head_mix="mean")) for heads in (4, 1))
    assert averaged.macs() == single.macs()
    assert averaged.params_seq() == single.params_seq() * 4


@pytest.mark.parametrize("options", [{}, {"toeplitz": True}, {"heads": 2}, {"heads": 2, "toeplitz": True}])
@torch.no_grad()
def test_token_weights_are_what_one_token_adds_to_another(options: dict[str, Any]) -> None:
    module = gating(gating="linear", gate_norm=False, **options)
    weights = module.token_weights(drawn(1, N, WIDTH))
    groups = options.get("heads", 1)
    assert weights.shape == (groups, N, N)
    for j in range(N):
        z = torch.zeros(1, N, WIDTH, dtype=torch.float64)
        before = module(z)
        z[:, j] = 1.0
        added = (module(z) - before)[0].unflatten(-1, (groups, -1))[..., 0]
        assert_close_to_largest(added, weights[:, :, j].T, 1e-12)


@pytest.mark.parametrize("toeplitz", [False, True])
@pytest.mark.parametrize("name", WEIGHT_STDS)
def test_fresh_weights_are_normal_with_the_deviation_asked_for(name: str, toeplitz: bool) -> None:
    torch.manual_seed(0)
    n = 2048 if toeplitz else 64  # about 4,096 draws either way
    (weight,) = build(Config(seq_len=n, width=2, weight_init=name, toeplitz=toeplitz)).weights
    std = float(name)
    assert weight.std().item() == pytest.approx(std, rel=0.05)
    assert weight.mean().abs().item() < 0.06 * std
    assert 3.0 * std < weight.abs().max().item() < 6.0 * std


def test_by_default_weights_are_drawn_as_ever() -> None:
    torch.manual_seed(3)
    module = build(Config(seq_len=N, width=WIDTH, heads=2))
    torch.manual_seed(3)
    for weight, bias in zip(module.weights, module.biases, strict=True):
        assert torch.equal(weight, torch.empty(N, N).normal_(std=1e-6))
        assert torch.equal(bias, torch.ones(N))


def test_default_weights_are_those_of_a_fresh_linear_layer() -> None:
    torch.manual_seed(3)
    module = build(Config(seq_len=N, width=WIDTH, weight_init="default"))
    torch.manual_seed(3)
    assert torch.allclose(module.weights[0], nn.Linear(N, N).weight, rtol=1e-6)
    diagonals = build(Config(seq_len=1024, width=2, weight_init="default", toeplitz=True)).weights[0]
    assert 0.99 / 32 < diagonals.abs().max().item() <= 1 / 32


@pytest.mark.parametrize("value", [0, 1])
def test_fresh_biases_are_the_number_asked_for(value: int) -> None:
    assert build(Config(seq_len=N, width=WIDTH, bias_init=value)).biases[0].tolist() == [float(value)] * N


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"bias_init": 2}, "bias_init must be 0 or 1, not 2"),
        ({"bias_init": True}, "bias_init must be 0 or 1, not True"),
        ({"weight_init": "1"}, "weight_init must be one of 1e-6, 1e-3, 0.05, default"),
        ({"head_mix": "sum"}, "head_mix must be one of split, mean"),
        ({"gating": "cubic"}, "gating must be one of spatial, linear, additive, multiplicative"),
        ({"heads": 3}, "ffn_width must be a multiple of 2 x spatial_heads"),
        ({"heads": 3, "gating": "linear"}, "ffn_width must be a multiple of spatial_heads"),
        ({"width": 15, "heads": 3, "head_mix": "mean"}, "ffn_width must be a multiple of 2: 15"),
    ],
)
def test_what_cannot_be_built_is_refused(options: dict[str, Any], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        Config(**{"seq_len": N, "width": WIDTH, **options})


def test_heads_that_act_on_every_channel_need_not_divide_them() -> None:
    assert build(Config(seq_len=N, width=WIDTH, heads=3, head_mix="mean"))(torch.randn(1, N, WIDTH)).shape == (1, N, WIDTH // 2)
