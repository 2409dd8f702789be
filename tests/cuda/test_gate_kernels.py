"""The fused gate on a GPU, held to float64 as the interpreter's tests hold it (tests/models/kernels)."""

from __future__ import annotations

import pytest
import torch

from models.kernels.fused_spatial_gating import fused_spatial_gating
from models.mixers.spatial_gating import Config, build
from tests.models.kernels.gate_checks import TOLERANCES, Case, check_beside_plain, check_single_matrix_memory

pytestmark = pytest.mark.cuda
LENGTHS = (17, 64, 65, 256, 257, 1025, 4097)
"""One tile and several, aligned and not."""


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("n", LENGTHS)
def test_answers_and_gradients_err_no_more_than_the_plain_formulation(n: int, dtype: torch.dtype) -> None:
    check_beside_plain(fused_spatial_gating, Case(n=n, channels=96, batch=2 if n > 1025 else 5, dtype=dtype), "cuda")


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize(
    "options", [{"extra": True}, {"padded": True}, {"norm": False}, {"norm": False, "extra": True, "padded": True}], ids=str
)
def test_so_they_do_with_padding_an_addend_and_no_norm(options: dict[str, bool], dtype: torch.dtype) -> None:
    check_beside_plain(fused_spatial_gating, Case(n=257, channels=72, dtype=dtype, **options), "cuda")


@pytest.mark.parametrize("trains", [False, True])
@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("n", [64, 65, 1025])
def test_no_kernel_fails_where_it_is_tried(n: int, dtype: torch.dtype, trains: bool) -> None:
    module = build(Config(seq_len=n, width=1536, kernel="fused")).to("cuda", dtype)
    tokens = torch.randn(2, n, 1536, device="cuda", dtype=dtype)
    with torch.set_grad_enabled(trains):
        assert module.why_fused_unsupported(tokens) == ""


def test_one_item_of_many_tokens_holds_one_matrix() -> None:
    check_single_matrix_memory(n=8193, channels=64, dtype=torch.bfloat16, device="cuda")
