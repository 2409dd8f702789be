"""The spatial projection in every formulation, at several n: which one `fastest_kernel` should pick. Compare within a group only."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from models.mixers.spatial_gating import KERNELS

CHANNELS, BATCH_SIZE = 288, 32


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("n", [17, 65, 197, 257, 1025])
@pytest.mark.parametrize("phase", ["infer", "train"])
def test_spatial_projection(benchmark: Any, phase: str, n: int, kernel: str) -> None:
    benchmark.group = f"spatial projection, {phase}, n = {n}, {CHANNELS} channels, batch {BATCH_SIZE}"
    trains = phase == "train"
    torch.manual_seed(0)
    weight, bias = torch.randn(n, n).mul_(0.01).requires_grad_(trains), torch.ones(n, requires_grad=trains)
    # the second half of a wider tensor, as after the split into u and v and the normalisation
    v = torch.nn.functional.layer_norm(torch.randn(BATCH_SIZE, n, 2 * CHANNELS)[..., CHANNELS:], (CHANNELS,)).requires_grad_(trains)
    project = KERNELS[kernel]
    gradient = torch.ones(BATCH_SIZE, n, CHANNELS)

    def step() -> torch.Tensor:
        with torch.set_grad_enabled(trains):
            mixed = project(v, weight, bias)
        if trains:
            torch.autograd.grad(mixed, (v, weight, bias), gradient)
        return mixed

    assert benchmark(step).shape == v.shape
