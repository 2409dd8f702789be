"""The contracts of an architecture: each raises AssertionError or CountError, and test_broken_specimens.py shows that each can."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from bench.counters import count_train_with_torch, count_with_fvcore, count_with_torch
from tests.contracts.subjects import Subject

SMALL = 17


def check_params(subject: Subject, n: int) -> None:
    """Closed-form parameters, and those of them that depend on seq_len, are the ones that exist."""
    counted, longer = _parameter_sizes(subject, n), _parameter_sizes(subject, n + 1)
    closed = subject.cost(n).params()
    assert closed.at(n) == sum(counted.values())
    assert closed.varying().at(n) == sum(size for name, size in counted.items() if longer[name] != size)


def check_flops(subject: Subject, n: int) -> None:
    """Closed form, torch and fvcore count the same forward FLOPs."""
    with torch.device("meta"):
        model, data = subject.reference(n).eval(), subject.data(n)
    closed = subject.cost(n).flops().at(n)
    assert (closed, closed) == (count_with_torch(model, data).flops, count_with_fvcore(model, data))


def check_train_flops(subject: Subject, n: int) -> None:
    """Closed form and torch count the same FLOPs of forward and backward."""
    with torch.device("meta"):
        model, data = subject.reference(n).train(), subject.data(n)
    assert subject.cost(n).train_flops().at(n) == count_train_with_torch(model, data).flops


def check_same_cost(subject: Subject) -> None:
    """The formulation that runs costs what the one that is counted costs."""
    assert subject.cost(SMALL) == subject.reference_cost(SMALL)


def check_one_polynomial(subject: Subject) -> None:
    """The terms are polynomials in n: none has the config's own seq_len baked in."""
    assert subject.cost(SMALL) == subject.cost(257)


def check_gradients(subject: Subject) -> None:
    """The gradient reaches every parameter. Weights are randomised first: fresh ones may be zero, and stop it by design."""
    torch.manual_seed(0)
    model, data = subject.build(SMALL), subject.data(SMALL)
    randomise(model)
    output = model(data)
    (output * torch.randn_like(output)).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, f"no gradient reaches {name}"
        assert parameter.grad.isfinite().all(), f"the gradient of {name} is not finite"
        assert parameter.grad.any(), f"the gradient of {name} is zero"


def check_same_seed(subject: Subject) -> None:
    first, second = (_weights(subject, seed=1) for _ in range(2))
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert torch.equal(value, second[name]), f"{name} differs between two builds with the same seed"


def check_refused(make: Callable[[], object], rule: str) -> None:
    """An impossible size is refused with a ValueError that names the rule."""
    with pytest.raises(ValueError, match=rule):
        make()


def check_same_projection(
    kernel: Callable[[Tensor, Tensor, Tensor], Tensor],
    reference: Callable[[Tensor, Tensor, Tensor], Tensor],
    *,
    n: int,
    channels: int,
    batch: int,
) -> None:
    """Two formulations of W v + b agree: outputs and all three gradients, to 1e-5 of the largest entry."""
    torch.manual_seed(0)
    inputs = (torch.randn(batch, n, channels), torch.randn(n, n) / n**0.5, torch.randn(n))
    upstream = torch.randn(batch, n, channels)
    for found, expected in zip(_values(kernel, inputs, upstream), _values(reference, inputs, upstream), strict=True):
        assert_close_to_largest(found, expected, 1e-5)


def assert_close_to_largest(found: Tensor, expected: Tensor, tolerance: float, name: str = "") -> None:
    """The largest difference is within `tolerance` of the largest expected entry, which is not zero."""
    largest = expected.abs().max()
    assert found.shape == expected.shape
    assert largest > 0, f"{name}: comparing zeros with zeros proves nothing"
    error = ((found - expected).abs().max() / largest).item()
    assert error <= tolerance, f"{name}: differs by {error:.1e} of the largest entry"


def randomise(model: nn.Module, std: float = 0.2) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=std)


def _parameter_sizes(subject: Subject, n: int) -> dict[str, int]:
    with torch.device("meta"):
        return {name: parameter.numel() for name, parameter in subject.build(n).named_parameters()}


def _weights(subject: Subject, *, seed: int) -> dict[str, Tensor]:
    torch.manual_seed(seed)
    return dict(subject.build(SMALL).named_parameters())


def _values(kernel: Callable[[Tensor, Tensor, Tensor], Tensor], inputs: tuple[Tensor, ...], upstream: Tensor) -> tuple[Tensor, ...]:
    v, weight, bias = (tensor.clone().requires_grad_() for tensor in inputs)
    output = kernel(v, weight, bias)
    return output.detach(), *torch.autograd.grad(output, (v, weight, bias), upstream)
