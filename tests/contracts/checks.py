"""The contracts of an architecture: each raises AssertionError or CountError, and test_broken_specimens.py shows that each can."""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import profile

from bench.flop_counter import (
    HAS_FVCORE,
    TorchCount,
    count_at,
    count_train_with_torch,
    count_with_fvcore,
    count_with_torch,
    fused_encoder_path_disabled,
)
from models.layers.dropout import dropping_places, set_dropout
from tests.contracts.subjects import Subject

SMALL = 17
SHORT = 9
DRAWS = 16
"""Pairs of draws of which one must differ: of a layer of one unit both may drop all."""
BATCH = 4
ROUNDING = 1e-13
"""Rounding in float64, as a share of the largest answer."""
PROFILED_PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::conv2d")
JUNK = (1e6, -1e30, float("inf"), float("nan"))


def check_params(subject: Subject, n: int) -> None:
    """Closed-form parameters, and those of them that depend on seq_len, are the ones that exist.

    Told from n + 2, at which either half of a sequence is longer too.
    """
    counted, longer = _parameter_sizes(subject, n), _parameter_sizes(subject, n + 2)
    closed = subject.cost(n)
    found = {"all": closed.params().at(n), "of the length": closed.params_seq().at(n)}
    expected = {"all": sum(counted.values()), "of the length": sum(size for name, size in counted.items() if longer[name] != size)}
    assert found == expected, f"parameters at n = {n}: {found} by the closed form, {expected} counted"


def check_flops(subject: Subject, n: int) -> None:
    """Closed form, torch and fvcore (where installed) count the same forward FLOPs, and the FFTs that ran are those of the closed form."""
    by_torch = count_at(n, lambda length: _by_torch(subject, length).flops, stepwise=subject.is_stepwise)
    closed = subject.cost(n).flops().at(n)
    by_fvcore = count_at(n, lambda length: _flops_by_fvcore(subject, length), stepwise=subject.is_stepwise) if HAS_FVCORE else closed
    assert (closed, closed) == (by_torch, by_fvcore), (
        f"FLOPs at n = {n}: {closed} by the closed form, {by_torch} by torch, {by_fvcore} by fvcore"
    )
    ran = count_at(n, lambda length: _by_torch(subject, length).fft_flops, stepwise=subject.is_stepwise)
    closed = subject.cost(n).fft_flops()
    assert closed == ran, f"FLOPs of FFTs at n = {n}: {closed} by the closed form, {ran} of those that ran"


def check_profiled_flops(subject: Subject, n: int) -> None:
    """What torch's profiler counts in a real run on the CPU, with attention taken apart, is the closed form.

    Its formulas (torch/csrc/profiler/util.cpp) are neither this project's nor those of torch's flop counter; fvcore's count of the n^2 terms rests on
    handles of ours.
    """
    if subject.is_stepwise:
        n = SHORT
    model, data = subject.reference(n).eval(), subject.data(n)
    with torch.no_grad(), fused_encoder_path_disabled(), sdpa_kernel([SDPBackend.MATH]), profile(with_flops=True) as profiled:
        model(data)
    counted = sum(event.flops for event in profiled.key_averages() if event.key in PROFILED_PRODUCTS)
    closed = subject.cost(n).flops().at(n)
    assert closed == counted, f"FLOPs at n = {n}: {closed} by the closed form, {counted} by the profiler"


def check_train_flops(subject: Subject, n: int) -> None:
    """Closed form and torch count the same FLOPs of forward and backward, of products and of FFTs."""
    counted = count_at(n, lambda length: _train_by_torch(subject, length).flops, stepwise=subject.is_stepwise)
    closed = subject.cost(n).train_flops().at(n)
    assert closed == counted, f"training FLOPs at n = {n}: {closed} by the closed form, {counted} by torch"
    ran = count_at(n, lambda length: _train_by_torch(subject, length).fft_flops, stepwise=subject.is_stepwise)
    closed = subject.cost(n).train_fft_flops()
    assert closed == ran, f"training FLOPs of FFTs at n = {n}: {closed} by the closed form, {ran} of those that ran"


def check_same_cost(subject: Subject) -> None:
    """The formulation that runs costs what the one that is counted costs."""
    assert subject.cost(SMALL) == subject.reference_cost(SMALL)


def check_one_polynomial(subject: Subject) -> None:
    """The terms are polynomials in n: none has the config's own seq_len baked in, but for the length of FFTs; their number is the same.

    Held at lengths that are one more than a multiple of 64 (patches and a class token): a mixer in blocks leaves as many tokens over at either.
    """
    short, long = ([dataclasses.replace(term, fft_length=0) for term in subject.cost(n).terms] for n in (257, 1025))
    assert short == long


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


def check_padding(subject: Subject, *, seed: int) -> None:
    """What padded tokens hold changes no bit of an item's answer, nor, where every token answers, of a valid token's."""
    model, data = randomised(subject, seed=seed)
    valid = random_valid(data, seed=seed)
    with torch.no_grad():
        expected = valid_answers(model(data, valid), valid)
        assert expected.isfinite().all()
        for other in refilled(data, valid):
            assert torch.equal(valid_answers(model(other, valid), valid), expected), "what padded tokens hold reaches the answer"


def check_cut(subject: Subject, *, seed: int) -> None:
    """An item among padding answers as alone, in a model whose weights are cut to its length: padding adds nothing, not even a constant."""
    model, data = randomised(subject, seed=seed)
    short, tokens = subject.build(SHORT).eval(), subject.data(SHORT).shape[1]
    short.load_state_dict({name: _leading(model.state_dict()[name], value) for name, value in short.state_dict().items()})
    valid = torch.ones(data.shape[:2], dtype=torch.bool)
    valid[0] = subject.places(tokens, data.shape[1])
    with torch.no_grad():
        found, expected = valid_answers(model(data, valid)[:1], valid[:1]), short(data[:1, valid[0]])
    assert_close_to_largest(found, expected.reshape(found.shape), 1e-5, "an item among padding")


def check_all_valid(subject: Subject) -> None:
    """Where every token is valid, the answer is that without `valid`."""
    model, data = randomised(subject, seed=0)
    with torch.no_grad():
        assert_close_to_largest(model(data, torch.ones(data.shape[:2], dtype=torch.bool)), model(data), 1e-5)


def check_mixing(subject: Subject) -> None:
    """Another token changes its own answer and those of all tokens that it can reach, and no other. Modules must answer at every token.

    In float64: an FFT sums over all tokens, so rounding reaches those that nothing else does.
    """
    model, data = randomised(subject, seed=0)
    other = data.clone()
    other[:, 3] = subject.data(SMALL)[:, 3] if data.is_floating_point() else data[:, 3] + 1
    model = model.double()
    with torch.no_grad():
        answers, others = (model(item.double() if item.is_floating_point() else item) for item in (data, other))
    changed = ((answers - others).abs() > ROUNDING * answers.abs().max()).any(dim=-1)
    reached = torch.tensor(sorted(subject.reached(3)))
    expected = torch.zeros_like(changed).index_fill(1, reached[reached < changed.shape[1]], True)
    assert torch.equal(changed, expected), "tokens meet that should not, or do not that should"


def check_dropout(subject: Subject) -> None:
    """Embedding, every block and the head drop in training only, at each place where they can; at zero, training answers what evaluation does.

    Unless training moves buffers, as of a norm that takes the batch's own statistics: then it answers the same as without dropout.
    """
    model, data = randomised(subject, seed=0)
    expected, state = model(data), copy.deepcopy(model.state_dict())
    undropped = model.train()(data)
    moved = any(not torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert moved or torch.equal(undropped, expected), "dropout of zero changes the answer"
    for name in ("embedding", *(f"blocks.{block}" for block, _ in model.get_submodule("blocks").named_children()), "head"):
        places = dropping_places(model.get_submodule(name))
        assert places, f"{name} cannot drop"
        for place in places:
            set_dropout(model.get_submodule(name), 0.5, (place,))
            model.load_state_dict(state)
            assert torch.equal(model.eval()(data), expected), f"{name} drops in evaluation ({place})"
            differ = (not torch.equal(model.train()(data), model(data)) for _ in range(DRAWS))
            assert any(differ), f"{name} does not drop in training ({place})"
            set_dropout(model, 0.0)
            assert torch.equal(model(data), undropped), "dropout of zero changes the answer"


def randomised(subject: Subject, *, seed: int) -> tuple[nn.Module, Tensor]:
    """A model in evaluation whose weights all matter, and a batch: fresh weights may be zero, and would hide a leak."""
    torch.manual_seed(seed)
    model = subject.build(SMALL).eval()
    randomise(model)
    return model, torch.cat([subject.data(SMALL) for _ in range(BATCH)]).detach()


def random_valid(data: Tensor, *, seed: int) -> Tensor:
    """`(batch, data tokens)`: each item padded at the end from a length of its own on, the last one anywhere; at least one token is valid."""
    generator = torch.Generator().manual_seed(seed)
    batch, tokens = data.shape[:2]
    lengths = torch.randint(1, tokens + 1, (batch, 1), generator=generator)
    valid = torch.arange(tokens) < lengths
    valid[-1] = torch.rand(tokens, generator=generator) < 0.5
    valid[-1, int(lengths[-1]) - 1] = True
    return valid


def refilled(data: Tensor, valid: Tensor) -> list[Tensor]:
    """The same valid tokens among other padding: other draws, huge values and values that are no numbers, or other ids."""
    padded = ~valid.view(*valid.shape, *(1 for _ in data.shape[2:]))
    if not data.is_floating_point():
        return [torch.where(padded, fill, data) for fill in (0, 255, data.flip(1))]
    return [torch.where(padded, fill, data) for fill in (torch.randn_like(data), *JUNK)]


def valid_answers(output: Tensor, valid: Tensor) -> Tensor:
    """Answers of items, or of the valid tokens where every token answers."""
    return output[valid] if output.dim() == 3 else output


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


# kept: a stepwise subject is counted at the same few lengths whatever n


@functools.cache
def _by_torch(subject: Subject, n: int) -> TorchCount:
    return count_with_torch(*_on_meta(subject, n, training=False))


@functools.cache
def _flops_by_fvcore(subject: Subject, n: int) -> int:
    return count_with_fvcore(*_on_meta(subject, n, training=False))


@functools.cache
def _train_by_torch(subject: Subject, n: int) -> TorchCount:
    return count_train_with_torch(*_on_meta(subject, n, training=True))


def _on_meta(subject: Subject, n: int, *, training: bool) -> tuple[nn.Module, Tensor]:
    """The formulation that is counted, and one sample."""
    with torch.device("meta"):
        return subject.reference(n).train(training), subject.data(n)


def _leading(value: Tensor, like: Tensor) -> Tensor:
    """The first entries of every dimension, as many as `like` has."""
    return value[tuple(slice(size) for size in like.shape)]


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


def assert_bf16_keeps_its_digits(module: nn.Module, tokens: Tensor, *, autocast: bool) -> None:
    """In bf16, by weights or by autocast, a module answers as it does in 64 bits, within 3 % of the largest answer."""
    with torch.no_grad():
        expected = module(tokens)
        if autocast:
            with torch.autocast("cpu", torch.bfloat16):
                found = module.float()(tokens.float())
        else:
            found = module.bfloat16()(tokens.bfloat16())
    assert found.dtype == torch.bfloat16
    assert_close_to_largest(found.double(), expected, 0.03)
