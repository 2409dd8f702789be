"""What the fused gate is held to on any device: the formula operator by operator, in float64 and in its own type."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from tests.contracts.checks import assert_close_to_largest

TOLERANCES = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}
"""Of the largest entry: about thirty times the rounding of fp32, four of fp16, five of bf16, in which norm(v) and dout * u are rounded."""
EPSILON = 1e-5
NUM_ROUNDINGS = 4
"""How much further than the plain formulation another order of the same sums, with norm(v) and dout * u rounded in between, may be."""


@dataclass(frozen=True, kw_only=True)
class Case:
    n: int
    channels: int
    batch: int = 3
    dtype: torch.dtype = torch.float32
    norm: bool = True
    extra: bool = False
    padded: bool = False


Gate = Callable[..., Tensor]


def plain(z: Tensor, weight: Tensor, bias: Tensor, *, norm: Any = None, extra: Tensor | None = None, valid: Tensor | None = None) -> Tensor:
    """The formula, operator by operator."""
    u, v = z.chunk(2, dim=-1)
    if norm is not None:
        v = F.layer_norm(v, v.shape[-1:], *norm)
    if valid is not None:
        v = v.masked_fill(~valid[..., None], 0.0)
    gate = torch.einsum("ij,bjc->bic", weight, v) + bias[:, None]
    return u * (gate if extra is None else gate + extra)


def drawn(case: Case, device: str = "cpu") -> dict[str, Tensor]:
    """Inputs by name, and the upstream gradient, in float64 but rounded to the type of the case. The same numbers on every device."""
    torch.manual_seed(0)
    batch, n, channels = case.batch, case.n, case.channels
    sizes = {"z": (batch, n, 2 * channels), "weight": (n, n), "bias": (n,), "scale": (channels,), "shift": (channels,)}
    sizes |= {"extra": (batch, n, channels), "upstream": (batch, n, channels)}
    values = {name: torch.randn(*size, dtype=torch.float64) for name, size in sizes.items()}
    values["weight"] /= n**0.5
    return {name: value.to(case.dtype).double().to(device) for name, value in values.items()}


def answers(gate: Gate, case: Case, values: dict[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
    """The gate's answer and its gradients, by the name of what they belong to."""
    names = ["z", "weight", "bias", *(("scale", "shift") if case.norm else ()), *(("extra",) if case.extra else ())]
    leaves = {name: values[name].to(dtype).requires_grad_() for name in names}
    norm = (leaves["scale"], leaves["shift"], EPSILON) if case.norm else None
    valid = drawn_padding(case).to(values["z"].device) if case.padded else None
    out = gate(leaves["z"], leaves["weight"], leaves["bias"], norm=norm, extra=leaves.get("extra"), valid=valid)
    gradients = torch.autograd.grad(out, list(leaves.values()), values["upstream"].to(dtype))
    return {"out": out.detach(), **dict(zip(names, gradients, strict=True))}


def drawn_padding(case: Case) -> Tensor:
    return torch.rand(case.batch, case.n, generator=torch.Generator().manual_seed(1)) < 0.6


def check_gate(gate: Gate, case: Case, device: str = "cpu") -> None:
    """Answers and gradients within a stated part of float64's largest entry."""
    values = drawn(case, device)
    found, expected = answers(gate, case, values, case.dtype), answers(plain, case, values, torch.float64)
    for name, value in found.items():
        assert value.dtype == case.dtype
        assert_close_to_largest(value.double(), expected[name], TOLERANCES[case.dtype], name)


def check_beside_plain(gate: Gate, case: Case, device: str) -> None:
    """Answers and gradients no further from float64 than NUM_ROUNDINGS times as far as the plain formulation of the same type.

    Half a unit in the last place of float64's largest entry is allowed in any case: where the plain formulation happens to be exact, another order
    of the same sums need not be.
    """
    values = drawn(case, device)
    expected, reference = answers(plain, case, values, torch.float64), answers(plain, case, values, case.dtype)
    with nan_in_fresh_memory():
        found = answers(gate, case, values, case.dtype)
    for name, value in found.items():
        assert value.dtype == case.dtype
        assert torch.isfinite(value).all(), f"{name} holds what no kernel wrote"
        largest = expected[name].abs().max().item()
        rounded = max((reference[name].double() - expected[name]).abs().max().item(), torch.finfo(case.dtype).eps / 2 * largest)
        error = (value.double() - expected[name]).abs().max().item()
        assert error <= NUM_ROUNDINGS * rounded, f"{name} differs by {error:.3g}, the plain formulation by {rounded:.3g}"


@contextlib.contextmanager
def nan_in_fresh_memory() -> Iterator[None]:
    """`torch.empty` holds NaN inside the block, on any device: a place that no kernel writes stays so. A sum in no fixed order raises there."""
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def check_single_matrix_memory(*, n: int, channels: int, dtype: torch.dtype, device: str) -> None:
    """The gradient of W from one item is the only tensor of n x n entries that its backward allocates, and is that of float64."""
    from models.kernels import spatial_gating_backward

    values = drawn(Case(n=n, channels=channels, batch=1, dtype=dtype), device)
    upstream, z = values["upstream"].to(dtype), values["z"].to(dtype)
    with Allocations() as allocations:
        found, of_bias = spatial_gating_backward.weight_gradient(upstream, z, None, None, (dtype, dtype))
    assert [kind for shape, kind in allocations.found if shape[-2:] == (n, n)] == [dtype]
    u, v = values["z"][0].chunk(2, dim=-1)
    of_gate = values["upstream"][0] * u
    for rows in torch.arange(n, device=device).split(1024):  # float64 of all would be four times the memory
        assert_close_to_largest(found[rows].double(), of_gate[rows] @ v.T, TOLERANCES[dtype])
    assert_close_to_largest(of_bias.double(), of_gate.sum(dim=1), TOLERANCES[dtype])


class Allocations(TorchDispatchMode):
    """Shapes and types of what is allocated, in order."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: list[tuple[tuple[int, ...], torch.dtype]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # torch's contract
        out = func(*args, **(kwargs or {}))
        if isinstance(out, Tensor) and not any(argument.alias_info for argument in func._schema.returns):
            self.found.append((tuple(out.shape), out.dtype))
        return out
