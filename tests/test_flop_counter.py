"""The two counters: exact on what they know, loud about what they do not."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from bench.flop_counter import (
    HAS_FVCORE,
    CountError,
    count_train_with_torch,
    count_with_fvcore,
    count_with_torch,
    is_matrix_work,
    visible_products,
)

needs_fvcore = pytest.mark.skipif(not HAS_FVCORE, reason="fvcore is not installed")
BATCH, N, WIDTH = 3, 5, 8
SQUARE = 2 * BATCH * N * WIDTH * WIDTH
"""FLOPs of a width x width matrix applied to every token."""
PAIRS = 2 * BATCH * N * N * WIDTH
"""FLOPs of one product between all pairs of tokens."""


def flops_by_torch(module: nn.Module, data: Tensor) -> int:
    return count_with_torch(module, data).flops


COUNTERS = (flops_by_torch, *((count_with_fvcore,) if HAS_FVCORE else ()))


class Call(nn.Module):
    """A function of the data and of one weight, as a module."""

    def __init__(self, function: Callable[[Tensor, Tensor], Tensor], *sizes: int) -> None:
        super().__init__()
        self.function = function
        self.weight = nn.Parameter(torch.empty(sizes, device="meta"))

    def forward(self, data: Tensor) -> Tensor:
        return self.function(data, self.weight)


class AttendToSelf(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, 2, batch_first=True, device="meta")

    def forward(self, data: Tensor) -> Tensor:
        mixed: Tensor = self.attention(data, data, data, need_weights=False)[0]
        return mixed


def tokens(batch: int = BATCH) -> Tensor:
    return torch.empty(batch, N, WIDTH, device="meta")


def sdpa(data: Tensor, _: Tensor) -> Tensor:
    heads = data.unflatten(-1, (2, -1)).transpose(1, 2)
    return F.scaled_dot_product_attention(heads, heads, heads)


PRODUCTS: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], tuple[int, ...], int]] = {
    "linear": (lambda x, w: F.linear(x, w), (WIDTH, WIDTH), SQUARE),
    "tokens times matrix": (lambda x, w: x @ w, (WIDTH, WIDTH), SQUARE),
    "matrix times tokens, in every sample": (lambda x, w: w @ x, (N, N), PAIRS),
    "bmm": (lambda x, _: torch.bmm(x, x.transpose(1, 2)), (1,), PAIRS),
    "baddbmm": (lambda x, w: torch.baddbmm(w, x, x.transpose(1, 2)), (N, N), PAIRS),
    "einsum": (lambda x, w: torch.einsum("ij,bjc->bic", w, x), (N, N), PAIRS),
    "einsum that only scales": (lambda x, w: torch.einsum("bnc,c->bnc", x, w), (WIDTH,), 0),
    "solve": (lambda x, w: torch.linalg.solve_triangular(w, x, upper=False), (N, N), BATCH * WIDTH * N * (N - 1)),
    "solve from the right": (
        lambda x, w: torch.linalg.solve_triangular(w, x, upper=True, left=False),
        (WIDTH, WIDTH),
        BATCH * N * WIDTH * (WIDTH - 1),
    ),
    "scaled_dot_product_attention, any number of heads": (sdpa, (1,), 2 * PAIRS),
    "complex, four real products each": (
        lambda x, w: torch.view_as_real(torch.complex(x, x) @ torch.complex(w, w)),
        (WIDTH, WIDTH),
        4 * SQUARE,
    ),
    "no matrix product": (lambda x, w: F.layer_norm(x * w, (WIDTH,)).softmax(-1), (WIDTH,), 0),
}


@pytest.mark.parametrize(("function", "sizes", "flops"), PRODUCTS.values(), ids=PRODUCTS)
def test_counts_by_hand(function: Callable[[Tensor, Tensor], Tensor], sizes: tuple[int, ...], flops: int) -> None:
    module = Call(function, *sizes)
    assert count_with_torch(module, tokens()).flops == flops
    assert not HAS_FVCORE or count_with_fvcore(module, tokens()) == flops


@needs_fvcore
def test_einsum_stays_exact_where_fvcore_alone_would_round() -> None:
    module = Call(lambda x, w: torch.einsum("ij,bjc->bic", w, x), 65_537, 65_537)
    data = torch.empty(1, 65_537, 24, device="meta")
    assert count_with_fvcore(module, data) == count_with_torch(module, data).flops == 2 * 65_537**2 * 24


def test_backward_of_a_linear_layer_costs_one_product_for_the_weight_and_none_for_the_data() -> None:
    module = Call(lambda x, w: (x @ w).mean(dim=1), WIDTH, WIDTH)
    assert count_train_with_torch(module, tokens()).flops == 2 * SQUARE
    assert module.weight.grad is None


@pytest.mark.parametrize("enabled", [True, False])
def test_multi_head_attention_is_seen_in_eval_and_the_fused_path_left_as_found(enabled: bool) -> None:
    module = AttendToSelf().eval()
    with visible_products(module):
        torch.backends.mha.set_fastpath_enabled(enabled)
        expected = 4 * SQUARE + 2 * PAIRS
        assert {count(module, tokens()) for count in COUNTERS} == {expected}
        assert torch.backends.mha.get_fastpath_enabled() is enabled


ONLY_TORCH: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], tuple[int, ...], int]] = {
    "mv": (lambda x, w: torch.mv(w, x[0, 0]), (WIDTH, WIDTH), 2 * WIDTH**2),
    "vdot": (lambda x, w: torch.vdot(x[0, 0], w), (WIDTH,), 2 * WIDTH),
    "linear": (lambda x, w: F.bilinear(x, x, w), (4, WIDTH, WIDTH), 4 * (SQUARE + SQUARE // WIDTH)),
}
"""By a part of the name that fvcore gives in its refusal."""


@pytest.mark.parametrize("name", ONLY_TORCH)
def test_vectors_are_counted_by_torch_alone(name: str) -> None:
    function, sizes, flops = ONLY_TORCH[name]
    module = Call(function, *sizes)
    assert count_with_torch(module, tokens()).flops == flops
    if HAS_FVCORE:
        with pytest.raises(CountError, match=rf"cannot count .*{name}"):
            count_with_fvcore(module, tokens())


class Convolving(nn.Module):
    """One grouped convolution, or one for each group of channels."""

    def __init__(self, kind: type[nn.Conv1d | nn.ConvTranspose1d], groups: int, *, is_apart: bool) -> None:
        super().__init__()
        num, each = (groups, 1) if is_apart else (1, groups)
        self.scale = nn.Parameter(torch.empty(WIDTH, device="meta"))  # so the data has a gradient
        self.parts = nn.ModuleList(kind(WIDTH // num, 2 * WIDTH // num, 3, groups=each, device="meta") for _ in range(num))

    def forward(self, data: Tensor) -> Tensor:
        shared = (data * self.scale).transpose(1, 2).chunk(len(self.parts), 1)
        return torch.cat([part(channels) for part, channels in zip(self.parts, shared, strict=True)], 1)


@pytest.mark.parametrize("kind", [nn.Conv1d, nn.ConvTranspose1d])
@pytest.mark.parametrize("groups", [1, 4, WIDTH])
def test_a_grouped_convolution_costs_what_its_groups_cost_apart(kind: type[nn.Conv1d | nn.ConvTranspose1d], groups: int) -> None:
    """torch's formula for the gradient of the weight ignores groups."""
    whole, apart = (Convolving(kind, groups, is_apart=is_apart) for is_apart in (False, True))
    forward = count_with_torch(whole, tokens()).flops
    assert forward == count_with_torch(apart, tokens()).flops
    assert count_train_with_torch(whole, tokens()).flops == count_train_with_torch(apart, tokens()).flops == 3 * forward


@pytest.mark.parametrize(("reentrant", "recomputed"), [(False, SQUARE), (True, 2 * SQUARE)])
def test_what_the_backward_pass_runs_again_is_counted_apart(reentrant: bool, recomputed: int) -> None:
    """Only the older way runs the last product too, which no gradient needs."""

    def twice(x: Tensor, w: Tensor) -> Tensor:
        return torch.tanh(x * w.mean() @ w) @ w

    kept = count_train_with_torch(Call(twice, WIDTH, WIDTH), tokens())
    again = count_train_with_torch(Call(lambda x, w: checkpoint(twice, x, w, use_reentrant=reentrant), WIDTH, WIDTH), tokens())
    assert (kept.recomputed, again.recomputed) == (0, recomputed)
    assert again.flops == kept.flops


UNSEEN: list[tuple[str, Callable[[Tensor, Tensor], Tensor], tuple[int, ...]]] = [
    ("cdist", lambda x, _: torch.cdist(x, x), (1,)),
    ("dist", lambda x, _: torch.cdist(x, x, compute_mode="use_mm_for_euclid_dist"), (1,)),
    ("solve", lambda _, w: torch.linalg.solve(w, w), (WIDTH, WIDTH)),
]


@pytest.mark.parametrize("count", [*COUNTERS, count_train_with_torch])
@pytest.mark.parametrize(("name", "function", "sizes"), UNSEEN, ids=[name for name, *_ in UNSEEN])
def test_unseen_matrix_work_is_refused_by_name(
    name: str,
    function: Callable[[Tensor, Tensor], Tensor],
    sizes: tuple[int, ...],
    count: Callable[[nn.Module, Tensor], object],
) -> None:
    module = Call(lambda x, w: function(x * w.mean(), w).flatten().expand(x.shape[0], -1), *sizes)
    with pytest.raises(CountError, match=rf"cannot count .*{name}"):
        count(module, tokens())


FFTS: dict[str, tuple[Callable[[Tensor], Tensor], dict[int, int]]] = {
    "real, along tokens, filled up with zeros": (lambda x: torch.fft.rfft(x, 12, dim=1), {12: BATCH * WIDTH}),
    "to real": (lambda x: torch.fft.irfft(torch.complex(x, x), 15), {15: BATCH * N}),
    "complex, twice a real one": (lambda x: torch.fft.ifft(torch.complex(x, x)), {WIDTH: 2 * BATCH * N}),
    "real, both halves of the spectrum": (lambda x: torch.fft.fft(x), {WIDTH: BATCH * N}),
    "complex, in two dimensions": (lambda x: torch.fft.fft2(torch.complex(x, x)), {N * WIDTH: 2 * BATCH}),
    "in two dimensions and back": (lambda x: torch.fft.irfft2(torch.fft.rfft2(x), (N, WIDTH)), {N * WIDTH: 2 * BATCH}),
    "no transform": (lambda x: torch.fft.fftshift(x) * torch.fft.rfftfreq(2 * WIDTH - 1, device="meta"), {}),
}


@pytest.mark.parametrize(("transform", "ffts"), FFTS.values(), ids=FFTS)
def test_ffts_are_counted_apart_from_products(transform: Callable[[Tensor], Tensor], ffts: dict[int, int]) -> None:
    module = Call(lambda x, w: transform(x @ w), WIDTH, WIDTH)
    count = count_with_torch(module, tokens())
    assert (count.flops, count.ffts) == (SQUARE, ffts)
    assert count.fft_flops == sum(number * round(2.5 * length * math.log2(length)) for length, number in ffts.items())
    assert not HAS_FVCORE or count_with_fvcore(module, tokens()) == SQUARE


def test_ffts_of_the_backward_are_counted() -> None:
    module = Call(lambda x, w: torch.fft.rfft(x * w).real, WIDTH)
    assert count_train_with_torch(module, tokens()).ffts == {WIDTH: 3 * BATCH * N}  # torch's own backward is complex
    module = Call(lambda x, w: torch.ops.prims.fft_r2c(x * w, dim=(2,), onesided=True).real, WIDTH)
    with pytest.raises(CountError, match="cannot count prims::fft_r2c"):
        count_with_torch(module, tokens())


@needs_fvcore
def test_fvcore_refuses_what_it_would_count_wrong() -> None:
    class Recurrence(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.GRU(WIDTH, WIDTH, batch_first=True, device="meta")

        def forward(self, data: Tensor) -> Tensor:
            output: Tensor = self.inner(data)[0]
            return output

    with pytest.raises(CountError, match="aten::gru"):
        count_with_fvcore(Recurrence(), tokens())
    with pytest.raises(CountError, match="only two operands"):
        count_with_fvcore(Call(lambda x, w: torch.einsum("bnc,cd,de->bne", x, w, w), WIDTH, WIDTH), tokens())


def test_custom_operators_are_opaque_and_counting_says_nothing(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> None:
    module = Call(lambda x, w: (x @ w) @ x.transpose(1, 2), WIDTH, WIDTH)
    with caplog.at_level(logging.DEBUG):
        assert {count(module, tokens()) for count in COUNTERS} == {SQUARE + PAIRS}
    assert not caplog.records
    assert capfd.readouterr() == ("", "")
    with torch.library._scoped_library("gmlp_bench_test", "FRAGMENT") as library:
        library.define("hidden(Tensor x) -> Tensor")
        library.impl("hidden", lambda x: x @ x.transpose(1, 2), "Meta")
        module = Call(lambda x, _: torch.ops.gmlp_bench_test.hidden(x), 1)
        for count in COUNTERS:
            with pytest.raises(CountError, match="gmlp_bench_test::hidden"):
                count(module, tokens())


MATRIX_WORK = """
    aten::addmm aten::mm aten::_scaled_mm aten::mv aten::conv2d aten::_convolution aten::gru_cell aten::rnn_tanh aten::_flash_attention_forward
    aten::tensordot aten::linalg_inv_ex aten::matrix_exp mine::gate prim::PythonOp.Function
"""
OTHER_WORK = """
    aten::lgamma aten::softmax aten::upsample_bilinear2d aten::_convert_indices_from_csr_to_coo aten::linalg_vector_norm aten::add_
    aten::transpose aten::matrix_H aten::index_put_ prim::Constant aten::fft_rfft aten::_fft_c2c
"""


def test_matrix_work_is_recognised_by_name_and_other_work_is_not() -> None:
    assert [name for name in MATRIX_WORK.split() if not is_matrix_work(name)] == []
    assert [name for name in OTHER_WORK.split() if is_matrix_work(name)] == []
