"""oneDNN's products, forward and backward, against the same mathematics in float64."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from bench.measure.engines.onednn import attention as attention_module
from bench.measure.engines.onednn import product
from bench.measure.engines.onednn.attention import attention, bf16_attention
from bench.measure.engines.onednn.product import INNER_CHUNK, PackedLinear, linear, shared_matrix_product

pytestmark = pytest.mark.skipif(bool(product.why_unsupported()), reason=product.why_unsupported())
TOLERANCE = 1e-5


def results(run: Callable[..., Tensor], tensors: tuple[Tensor, ...], dtype: torch.dtype) -> list[Tensor]:
    """What comes out, and the gradient of every tensor."""
    leaves = [tensor.detach().to(dtype).requires_grad_() for tensor in tensors]
    out = run(*leaves)
    torch.manual_seed(7)
    out.backward(torch.randn(out.shape, dtype=torch.float64).to(dtype))
    return [out.detach(), *(leaf.grad for leaf in leaves if leaf.grad is not None)]


def largest_error(run: Callable[..., Tensor], reference: Callable[..., Tensor], *tensors: Tensor) -> float:
    found, exact = results(run, tensors, torch.float32), results(reference, tensors, torch.float64)
    assert len(found) == len(exact) == 1 + len(tensors)
    return max(float((a.double() - b).abs().max() / b.abs().max()) for a, b in zip(found, exact, strict=True))


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("num_rows", [1, 17, INNER_CHUNK, 2 * INNER_CHUNK + 3])
def test_linear(num_rows: int) -> None:
    assert largest_error(linear, F.linear, torch.randn(num_rows, 24), torch.randn(40, 24), torch.randn(40)) < TOLERANCE


@pytest.mark.parametrize("n", [2, 17, 130])
def test_attention(n: int) -> None:
    def reference(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return torch.softmax(0.3 * query @ key.transpose(-2, -1), dim=-1) @ value

    query, key, value = torch.randn(3, 2, 3, n, 8).unbind(0)
    assert largest_error(lambda query, key, value: attention(query, key, value, 0.3), reference, query, key, value) < TOLERANCE


@pytest.mark.skipif(bool(product.why_unsupported(torch.bfloat16)), reason=product.why_unsupported(torch.bfloat16))
@pytest.mark.parametrize("score_bytes", [1, 3 * 33 * 33 * 2, attention_module.SCORE_BYTES])
def test_attention_in_bf16_some_heads_at_a_time(score_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_module, "SCORE_BYTES", score_bytes)
    query, key, value = torch.randn(2, 33, 3, 4, 8).bfloat16().permute(2, 0, 3, 1, 4).unbind(0)
    expected = F.scaled_dot_product_attention(query.double(), key.double(), value.double(), scale=0.3)
    found = bf16_attention(query, key, value, 0.3)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=0.02 * expected.abs().max().item())


@pytest.mark.parametrize("n", [3, 65])
def test_one_matrix_times_every_sample(n: int) -> None:
    assert largest_error(shared_matrix_product, torch.matmul, torch.randn(n, n), torch.randn(4, n, 12)) < TOLERANCE


@torch.no_grad()
def test_packed_weights_follow_the_weights() -> None:
    data, weight, bias = torch.randn(4, 9, 24), torch.randn(40, 24), torch.randn(40)
    packed = PackedLinear()
    torch.testing.assert_close(packed(data, weight, bias), F.linear(data, weight, bias))
    weight.mul_(2.0)
    torch.testing.assert_close(packed(data, weight, bias), F.linear(data, weight, bias))
    other = torch.randn(40, 24)
    torch.testing.assert_close(packed(data, other, bias), F.linear(data, other, bias))
