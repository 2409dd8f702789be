"""Where the fused gate cannot run: the reason is said, and the module answers as without it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from models.kernels import availability
from models.kernels import fused_spatial_gating as fused
from models.kernels.tiling import tiles_of_product
from models.mixers import spatial_gating
from models.mixers.spatial_gating import Config, build
from tests.contracts.checks import assert_close_to_largest, randomise

PROJECT = Path(__file__).parents[3]
RUNS: dict[str, Any] = {"device_type": "cuda", "dtype": torch.bfloat16}
WITHOUT_TRITON = """
import sys
sys.modules["triton"] = None  # as if it were not installed
import torch
from models.mixers.spatial_gating import Config, build
print("torch.utils.flop_counter" in sys.modules)  # which takes its time, and imports Triton where it finds it
from models.kernels import spatial_gating_operator
module, tokens = build(Config(seq_len=5, width=8, kernel="fused")), torch.randn(2, 5, 8)
module(tokens).sum().backward()
print(module.why_fused_unsupported(tokens))
"""


@pytest.fixture
def _triton(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where Triton is installed."""
    monkeypatch.setattr(fused, "HAS_TRITON", True)


@pytest.mark.usefixtures("_triton")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_nothing_forbids_the_default_gate_on_cuda(dtype: torch.dtype) -> None:
    assert fused.why_fused_unsupported(device_type="cuda", dtype=dtype) == ""


@pytest.mark.usefixtures("_triton")
@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"device_type": "cpu"}, "the device is cpu, not cuda"),
        ({"device_type": "meta"}, "the device is meta, not cuda"),
        ({"dtype": torch.float64}, "the tokens are float64, not float32, float16, bfloat16"),
        ({"gating": "additive"}, "gating is additive, not spatial"),
        ({"num_matrices": 4}, "there are 4 spatial matrices, not 1"),
        ({"toeplitz": True}, "W is Toeplitz"),
        ({"rank": 4}, "W has rank 4"),
    ],
)
def test_what_forbids_it_is_said(changed: dict[str, Any], reason: str) -> None:
    assert fused.why_fused_unsupported(**RUNS | changed) == reason


def test_without_triton_that_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "HAS_TRITON", False)
    assert fused.why_fused_unsupported(**RUNS) == "Triton is not installed"


@pytest.mark.usefixtures("_triton")
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "the device is cpu"),
        ({"rank": 3}, "the device is cpu"),
        ({"heads": 2}, "the device is cpu"),
        ({"toeplitz": True, "gating": "linear"}, "the device is cpu"),
    ],
)
def test_the_module_falls_back_and_answers_the_same(options: dict[str, Any], reason: str) -> None:
    module, reference = (build(Config(seq_len=9, width=16, kernel=kernel, **options)) for kernel in ("fused", "auto"))
    torch.manual_seed(0)
    randomise(reference)
    module.load_state_dict(reference.state_dict())
    tokens = torch.randn(2, 9, 16)
    assert reason in module.why_fused_unsupported(tokens)
    assert module.effective_kernel(tokens) == reference.effective_kernel(tokens) != "fused"
    assert_close_to_largest(module(tokens), reference(tokens), 1e-6)


@pytest.mark.usefixtures("_triton")
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, ""),
        ({"gating": "linear"}, "gating is linear, not spatial"),
        ({"heads": 2}, "there are 2 spatial matrices, not 1"),
        ({"heads": 2, "head_mix": "mean"}, "there are 2 spatial matrices, not 1"),
        ({"toeplitz": True}, "W is Toeplitz"),
        ({"rank": 4}, "W has rank 4"),
    ],
)
def test_the_module_asks_with_its_own_options(monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], reason: str) -> None:
    monkeypatch.setattr(fused, "IS_INTERPRETED", True)  # then a CPU will do
    monkeypatch.setattr(spatial_gating, "kernel_failure", lambda *_: "")
    module, tokens = build(Config(seq_len=9, width=16, kernel="fused", **options)), torch.randn(2, 9, 16)
    assert module.why_fused_unsupported(tokens) == reason
    assert (module.effective_kernel(tokens) == "fused") is (reason == "")


@pytest.mark.usefixtures("_triton")
@pytest.mark.parametrize(
    ("kernel", "dtype", "chosen"),
    [
        ("auto", torch.bfloat16, "linear"),
        ("auto", torch.float16, "linear"),
        ("auto", torch.float32, "baddbmm"),
        ("fused", torch.bfloat16, "fused"),
        ("fused", torch.float32, "fused"),
        ("fused", torch.float64, "linear"),
        ("matmul", torch.bfloat16, "matmul"),
    ],
)
def test_on_cuda_the_fused_gate_is_taken_where_it_is_asked_for(kernel: str, dtype: torch.dtype, chosen: str) -> None:
    module = build(Config(seq_len=9, width=32, kernel=kernel))
    with FakeTensorMode(), torch.no_grad():
        assert module.effective_kernel(torch.empty(2, 9, 32, dtype=dtype, device="cuda")) == chosen


def test_kernels_that_cannot_be_launched_are_replaced_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton's own error: it finds no GPU to compile for, or tensors that are not on it."""
    pytest.importorskip("triton")
    if availability.IS_INTERPRETED:
        pytest.skip("Triton's interpreter launches everything")
    monkeypatch.setattr(fused, "IS_INTERPRETED", True)  # so that nothing forbids it on a CPU
    module, reference = (build(Config(seq_len=9, width=16, kernel=kernel)) for kernel in ("fused", "auto"))
    module.load_state_dict(reference.state_dict())
    tokens = torch.randn(2, 9, 16)
    assert torch.equal(module(tokens), reference(tokens))
    reason = module.why_fused_unsupported(tokens)
    assert reason
    assert "\n" not in reason
    assert module.effective_kernel(tokens) == reference.effective_kernel(tokens)


@pytest.mark.parametrize("num_bytes", [2, 4])
def test_small_sizes_stand_for_large_ones(num_bytes: int) -> None:
    """The same side of a tile, and a multiple of 16 or not."""
    for size in (2, 16, 17, 24, 33, 64, 65, 196, 256, 257, 768, 1025, 4096, 4097, 65_537):
        small = fused.smallest_equivalent_size(size, num_bytes)
        assert small <= min(size, 128)
        assert (size - small) % 16 == 0
        assert tiles_of_product(small, small, num_bytes) == tiles_of_product(size, size, num_bytes)


@pytest.mark.usefixtures("_triton")
def test_the_function_itself_refuses_in_one_line() -> None:
    with pytest.raises(ValueError, match="cannot run: the device is cpu, not cuda"):
        fused.fused_spatial_gating(torch.randn(2, 5, 8), torch.eye(5), torch.ones(5))


@pytest.mark.slow
def test_models_need_no_triton() -> None:
    """It works where there is none, and where there is, importing the mixer does not wait for it."""
    done = subprocess.run([sys.executable, "-c", WITHOUT_TRITON], cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["False", "Triton is not installed"], done.stderr
