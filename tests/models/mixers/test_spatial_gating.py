"""Spatial gating: every form of s(Z) against its formula, Toeplitz matrices, averaged heads, and what fresh weights are."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from models.layers.cost import real_fft_flops
from models.mixers.spatial_gating import (
    FFT,
    GATINGS,
    KERNELS,
    WEIGHT_STDS,
    Config,
    SpatialGating,
    build,
    cost,
    fastest_kernel,
    toeplitz_matrix,
)
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


FFT_VARIANTS: tuple[dict[str, Any], ...] = (
    {},
    {"heads": 4},
    {"heads": 4, "head_mix": "mean"},
    {"gating": "linear", "gate_norm": False},
    {"gating": "additive", "heads": 2},
)


@pytest.mark.parametrize("n", [1, 2, 3, N, 16, 17])
@pytest.mark.parametrize("options", FFT_VARIANTS)
@pytest.mark.parametrize("padded", [False, True])
def test_by_fft_a_toeplitz_product_is_the_dense_one_in_outputs_and_gradients(n: int, options: dict[str, Any], padded: bool) -> None:
    found = []
    for kernel in (FFT, "linear"):
        module = build(Config(seq_len=n, width=WIDTH, kernel=kernel, toeplitz=True, **options)).double()
        torch.manual_seed(0)
        randomise(module, std=0.5)
        z, extra = drawn(3, n, WIDTH).requires_grad_(), drawn(5, n, module.channels)[:3]
        valid = torch.ones(3, n, dtype=torch.bool)
        valid[0, n // 2 + 1 :] = False
        answer = module(z.masked_fill(~valid[..., None], 1e3) if padded else z, valid if padded else None, extra)
        kept = answer[valid]
        gradients = torch.autograd.grad((kept * drawn(*kept.shape)).sum(), [z, *module.parameters()])
        assert module.effective_kernel(z) == kernel
        with torch.no_grad():
            assert torch.allclose(module(z), module(z.detach()), rtol=0, atol=1e-12)
        found.append([kept, *gradients, module.token_weights(z)])
    for ours, theirs in zip(*found, strict=True):
        assert (ours - theirs).abs().max() <= 1e-12 * max(1.0, theirs.abs().max().item())
    assert found[1][0].abs().max() > 0.1


@pytest.mark.parametrize(
    ("dtype", "trains", "n", "chosen"),
    [
        (torch.float32, False, 99, "baddbmm"),
        (torch.float32, True, 8, "baddbmm"),
        (torch.float32, True, 9, "conv1d"),
        (torch.bfloat16, False, 8, "baddbmm"),
        (torch.bfloat16, False, 9, "einsum"),
        (torch.bfloat16, True, 8, "baddbmm"),
        (torch.bfloat16, True, 9, "einsum"),
    ],
)
def test_on_a_cpu_auto_takes_the_batched_product_unless_it_would_hold_a_matrix_per_sample(
    dtype: torch.dtype, trains: bool, n: int, chosen: str
) -> None:
    module, tokens = build(Config(seq_len=n, width=16)), torch.randn(3, n, 16)
    with torch.set_grad_enabled(trains):
        assert module.to(dtype).effective_kernel(tokens.to(dtype)) == chosen
        if dtype == torch.bfloat16:
            with torch.autocast("cpu", dtype):
                assert module.float().effective_kernel(tokens) == chosen
                assert module(tokens.to(dtype)).dtype == dtype


def test_ffts_are_those_of_channels_and_groups_and_leave_no_products() -> None:
    n = 257
    for heads, head_mix, groups in ((1, "split", 1), (4, "split", 4), (4, "mean", 1)):
        options: dict[str, Any] = {"seq_len": n, "width": WIDTH, "heads": heads, "head_mix": head_mix, "toeplitz": True}
        found, dense = cost(Config(kernel=FFT, **options)), cost(Config(**options))
        assert found.fft_flops() == (2 * WIDTH // 2 + groups) * real_fft_flops(540)
        assert (found.macs().at(n), dense.fft_flops()) == (0, 0)
        assert found.params() == dense.params()
        assert found.params_seq().at(n) == heads * (3 * n - 1)


@pytest.mark.parametrize("form", GATINGS)
@pytest.mark.parametrize(("heads", "head_mix"), [(1, "split"), (4, "split"), (4, "mean")])
@pytest.mark.parametrize("kernel", ["auto", *KERNELS])
@pytest.mark.parametrize("rank", [1, 3, N])
def test_a_matrix_of_low_rank_is_the_product_of_its_factors(form: str, heads: int, head_mix: str, kernel: str, rank: int) -> None:
    module = gating(gating=form, heads=heads, head_mix=head_mix, rank=rank, kernel=kernel)
    dense = gating(gating=form, heads=heads, head_mix=head_mix)
    state = {name: value for name, value in module.state_dict().items() if not name.startswith(("weights", "inner_weights"))}
    products = {f"weights.{head}": (a @ b).detach() for head, (a, b) in enumerate(zip(module.weights, module.inner_weights, strict=True))}
    dense.load_state_dict(state | products)
    z, upstream = drawn(3, N, WIDTH), drawn(5, N, module.channels)[:3]
    answers = [each(z) for each in (module, dense)]
    assert_close_to_largest(answers[0], answers[1], 1e-12)
    with torch.no_grad():
        assert_close_to_largest(module(z), answers[1], 1e-12)
    assert_close_to_largest(module.token_weights(z), dense.token_weights(z), 1e-12)
    for answer in answers:
        (answer * upstream).sum().backward()
    for place in range(heads):  # the chain rule by hand
        a, b, of_product = module.weights[place], module.inner_weights[place], dense.weights[place].grad
        assert a.grad is not None
        assert b.grad is not None
        assert of_product is not None
        assert_close_to_largest(a.grad, of_product @ b.T, 1e-12)
        assert_close_to_largest(b.grad, a.T @ of_product, 1e-12)


@torch.no_grad()
def test_padding_is_left_out_of_a_matrix_of_low_rank() -> None:
    module, z = gating(rank=3, heads=2), drawn(2, N, WIDTH)
    valid = torch.ones(2, N, dtype=torch.bool)
    valid[0, 3:5] = False
    u, v = z.chunk(2, dim=-1)
    v = normed(v, module.norm).masked_fill(~valid[..., None], 0)
    parts = zip(module.token_weights(z), v.chunk(2, dim=-1), module.biases, strict=True)
    expected = u * torch.cat([w @ part + bias[:, None] for w, part, bias in parts], dim=-1)
    found = module(z.masked_fill(~valid[..., None], float("nan")), valid)
    assert_close_to_largest(found[valid], expected[valid], 1e-12)


@pytest.mark.parametrize(("heads", "head_mix", "times"), [(1, "split", 1), (4, "split", 1), (4, "mean", 4)])
def test_a_matrix_of_low_rank_costs_two_thin_products(heads: int, head_mix: str, times: int) -> None:
    n, rank, channels = 257, 3, WIDTH // 2
    found = cost(Config(seq_len=n, width=WIDTH, heads=heads, head_mix=head_mix, rank=rank))
    assert found.macs().at(n) == times * 2 * n * rank * channels
    assert found.params_seq().at(n) == heads * (2 * n * rank + n)
    assert found.macs().degree(2) == 0


@pytest.mark.parametrize(("name", "std"), [*((name, std) for name, std in WEIGHT_STDS.items()), ("default", (3 * 512) ** -0.5)])
@pytest.mark.parametrize("rank", [4, 64])
def test_entries_of_a_fresh_matrix_of_low_rank_have_the_deviation_asked_for(name: str, std: float, rank: int) -> None:
    torch.manual_seed(0)
    module = build(Config(seq_len=512, width=2, weight_init=name, rank=rank))
    assert module.token_weights(torch.empty(1, 512, 2)).std().item() == pytest.approx(std, rel=0.15)
    assert module.inner_weights[0].std().item() == pytest.approx(512**-0.5, rel=0.1)


@pytest.mark.parametrize("options", [{}, {"toeplitz": True}, {"heads": 2}, {"heads": 2, "toeplitz": True}, {"heads": 2, "rank": 3}])
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
        ({"kernel": "fft"}, "kernel=fft needs toeplitz=true"),
        ({"rank": 2, "toeplitz": True}, "rank must be 0 with toeplitz=true, not 2"),
        ({"rank": N + 1}, f"rank must be at most seq_len: {N + 1} is more than {N}"),
        ({"rank": -1}, "rank must be zero or a positive whole number"),
        ({"width": 15, "heads": 3, "head_mix": "mean"}, "ffn_width must be a multiple of 2: 15"),
    ],
)
def test_what_cannot_be_built_is_refused(options: dict[str, Any], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        Config(**{"seq_len": N, "width": WIDTH, **options})


def test_heads_that_act_on_every_channel_need_not_divide_them() -> None:
    assert build(Config(seq_len=N, width=WIDTH, heads=3, head_mix="mean"))(torch.randn(1, N, WIDTH)).shape == (1, N, WIDTH // 2)


@pytest.mark.parametrize("fp32", [True, False])
@pytest.mark.parametrize(
    ("training", "n", "expected"), [(False, 257, "baddbmm"), (False, 4097, "baddbmm"), (True, 257, "baddbmm"), (True, 4097, "linear")]
)
def test_on_a_gpu_the_gate_is_one_batched_product_unless_its_gradient_is_a_large_matrix_per_sample(
    fp32: bool, training: bool, n: int, expected: str
) -> None:
    assert fastest_kernel(device_type="cuda", fp32=fp32, training=training, n=n, channels=1152) == expected
