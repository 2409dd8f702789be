"""Fused spatial gating against float64, run by Triton's interpreter on CPU: collected by test_interpreted.py alone, which sets TRITON_INTERPRET."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from bench.measure.memory_tracker import ACTIVATION, Ledger, Watch
from models.gmlp import Config as FamilyConfig
from models.gmlp import build as build_family
from models.kernels.fused_spatial_gating import fused_spatial_gating
from models.kernels.spatial_gating_operator import backward, forward
from models.layers.shape import Interface, Shape
from models.mixers.spatial_gating import Config, SpatialGating, build
from tests.contracts.checks import assert_close_to_largest, randomise

TOLERANCES = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}
"""Of the largest entry: about thirty times the rounding of fp32, four of fp16, five of bf16, in which norm(v) and dout * u are rounded."""
EPSILON = 1e-5


@dataclass(frozen=True, kw_only=True)
class Case:
    n: int
    channels: int
    batch: int = 3
    dtype: torch.dtype = torch.float32
    norm: bool = True
    extra: bool = False
    padded: bool = False


CASES = (
    # one tile, of fewer tokens than it holds, and several; channels that are no power of two
    Case(n=17, channels=8),
    Case(n=17, channels=24, batch=1, extra=True),
    Case(n=33, channels=48, norm=False),
    Case(n=33, channels=96, norm=False, extra=True),
    Case(n=64, channels=24, padded=True),
    Case(n=64, channels=8, norm=False, padded=True, extra=True),
    Case(n=70, channels=72, batch=1),
    Case(n=17, channels=24, batch=11),  # eleven items in slices that are not alike
    *(Case(n=33, channels=24, dtype=dtype, extra=extra) for dtype in (torch.float16, torch.bfloat16) for extra in (False, True)),
    *(Case(n=17, channels=48, batch=1, dtype=dtype, norm=False) for dtype in (torch.float16, torch.bfloat16)),
    Case(n=130, channels=24, batch=1, dtype=torch.bfloat16, padded=True),
)


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


def drawn(case: Case) -> dict[str, Tensor]:
    """Inputs by name, and the upstream gradient, in float64 but rounded to the type of the case."""
    torch.manual_seed(0)
    batch, n, channels = case.batch, case.n, case.channels
    sizes = {"z": (batch, n, 2 * channels), "weight": (n, n), "bias": (n,), "scale": (channels,), "shift": (channels,)}
    sizes |= {"extra": (batch, n, channels), "upstream": (batch, n, channels)}
    values = {name: torch.randn(*size, dtype=torch.float64) for name, size in sizes.items()}
    values["weight"] /= n**0.5
    return {name: value.to(case.dtype).double() for name, value in values.items()}


def answers(gate: Gate, case: Case, values: dict[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
    """The gate's answer and its gradients, by the name of what they belong to."""
    names = ["z", "weight", "bias", *(("scale", "shift") if case.norm else ()), *(("extra",) if case.extra else ())]
    leaves = {name: values[name].to(dtype).requires_grad_() for name in names}
    norm = (leaves["scale"], leaves["shift"], EPSILON) if case.norm else None
    valid = torch.rand(case.batch, case.n, generator=torch.Generator().manual_seed(1)) < 0.6 if case.padded else None
    out = gate(leaves["z"], leaves["weight"], leaves["bias"], norm=norm, extra=leaves.get("extra"), valid=valid)
    gradients = torch.autograd.grad(out, list(leaves.values()), values["upstream"].to(dtype))
    return {"out": out.detach(), **dict(zip(names, gradients, strict=True))}


def check_gate(gate: Gate, case: Case) -> None:
    values = drawn(case)
    found, expected = answers(gate, case, values, case.dtype), answers(plain, case, values, torch.float64)
    for name, value in found.items():
        assert value.dtype == case.dtype
        assert_close_to_largest(value.double(), expected[name], TOLERANCES[case.dtype], name)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_answers_and_gradients_are_those_of_float64(case: Case) -> None:
    check_gate(fused_spatial_gating, case)


def _transposed(z: Tensor, weight: Tensor, bias: Tensor, **others: Any) -> Tensor:
    return fused_spatial_gating(z, weight.T, bias, **others)


def _swapped(z: Tensor, weight: Tensor, bias: Tensor, **others: Any) -> Tensor:
    return fused_spatial_gating(torch.cat(z.chunk(2, dim=-1)[::-1], dim=-1), weight, bias, **others)


def _unpadded(z: Tensor, weight: Tensor, bias: Tensor, **others: Any) -> Tensor:
    return fused_spatial_gating(z, weight, bias, **others | {"valid": None})


def _detached_statistics(z: Tensor, weight: Tensor, bias: Tensor, *, norm: Any, **others: Any) -> Tensor:
    """Right forward; backward as if mean and deviation did not depend on v."""
    u, v = z.chunk(2, dim=-1)
    centre, spread = v.detach().mean(-1, keepdim=True), (v.detach().var(-1, keepdim=True, unbiased=False) + norm[2]).sqrt()
    normed = (v - centre) / spread * norm[0] + norm[1]
    return fused_spatial_gating(torch.cat((u, normed), dim=-1), weight, bias, extra=others["extra"])


@pytest.mark.parametrize("broken", [_transposed, _swapped, _unpadded, _detached_statistics])
def test_a_wrong_gate_is_seen(broken: Gate) -> None:
    case = Case(n=17, channels=24, padded=broken is _unpadded)
    with pytest.raises(AssertionError, match="differs by"):
        check_gate(broken, case)


def test_halves_and_gradients_may_lie_anywhere() -> None:
    """Every second token of a wider tensor, channels that are not side by side, an upstream gradient that is one number."""
    case = Case(n=17, channels=24, extra=True)
    values = drawn(case)
    wide = torch.stack((values["z"], -values["z"]), dim=2).flatten(1, 2).float()
    for z in (wide[:, ::2], values["z"].float().transpose(1, 2).contiguous().transpose(1, 2)):
        assert not z.is_contiguous()
        leaf = z.detach().requires_grad_()
        fused_spatial_gating(leaf, values["weight"].float(), values["bias"].float(), extra=wide[:, ::2, 24:]).sum().backward()
        exact = values["z"].requires_grad_()
        (expected,) = torch.autograd.grad(plain(exact, values["weight"], values["bias"], extra=exact[..., 24:].detach()).sum(), exact)
        assert leaf.grad is not None
        assert_close_to_largest(leaf.grad.double(), expected, 1e-5)


def test_what_padding_holds_is_not_read() -> None:
    case = Case(n=17, channels=8)
    values = {name: value.float() for name, value in drawn(case).items()}
    valid = torch.arange(17).expand(3, 17) < torch.tensor([[5], [17], [9]])
    found = []
    for junk in (0.0, float("nan")):
        v = values["z"][..., 8:].masked_fill(~valid[..., None], junk)
        z = torch.cat((values["z"][..., :8], v), dim=-1).requires_grad_()
        norm = (values["scale"].requires_grad_(), values["shift"], EPSILON)
        out = fused_spatial_gating(z, values["weight"].requires_grad_(), values["bias"], norm=norm, valid=valid)
        found.append((out, *torch.autograd.grad(out, (z, values["weight"], values["scale"]), values["upstream"])))
    for without, with_junk in zip(*found, strict=True):
        assert torch.equal(without, with_junk)


def test_no_items_have_no_answer_and_no_gradient() -> None:
    module, tokens = gating("fused"), torch.randn(0, 17, 48, requires_grad=True)
    module(tokens).sum().backward()
    assert tokens.grad is not None
    assert tokens.grad.shape == tokens.shape
    for parameter in module.parameters():
        assert parameter.grad is not None
        assert not parameter.grad.any()


def test_sums_run_in_a_fixed_order() -> None:
    case = Case(n=17, channels=8, batch=11)
    first, second = (answers(fused_spatial_gating, case, drawn(case), torch.float32) for _ in range(2))
    for name, value in first.items():
        assert torch.equal(value, second[name])


@pytest.mark.parametrize("case", [Case(n=17, channels=8, extra=True, padded=True), Case(n=17, channels=8, norm=False)], ids=str)
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # torch's checker looks at them
def test_torch_finds_nothing_wrong_with_the_operators(case: Case) -> None:
    values = {name: value.float() for name, value in drawn(case).items()}
    norm = (values["scale"], values["shift"]) if case.norm else (None, None)
    extra = values["extra"] if case.extra else None
    valid = torch.rand(3, 17) < 0.6 if case.padded else None
    given = (values["z"], values["weight"], values["bias"], *norm, extra)
    leaves = [value.clone().requires_grad_() if value is not None else None for value in given]
    torch.library.opcheck(forward, (*leaves, valid, EPSILON, True))
    _, gate, statistics = forward(*given, valid, EPSILON, True)
    torch.library.opcheck(backward, (values["upstream"], *given[:-1], torch.float32 if case.extra else None, valid, gate, statistics))


def gating(kernel: str, **options: Any) -> SpatialGating:
    module = build(Config(seq_len=17, width=48, kernel=kernel, **options))
    torch.manual_seed(0)
    randomise(module)
    return module


def flops(module: SpatialGating, tokens: Tensor) -> tuple[int, int]:
    """Of the forward, and of forward and backward."""
    with FlopCounterMode(display=False) as counter:
        out = module(tokens)
        forward_flops = counter.get_total_flops()
        out.sum().backward()
    return forward_flops, counter.get_total_flops()


def test_flops_are_those_of_the_plain_formulation() -> None:
    tokens = torch.randn(3, 17, 48, requires_grad=True)
    fused, reference = gating("fused"), gating("linear")
    assert fused.effective_kernel(tokens) == "fused"
    product = 2 * 3 * 17 * 17 * 24
    assert flops(fused, tokens) == flops(reference, tokens) == (product, 3 * product)


@pytest.mark.parametrize("dtype", TOLERANCES)
def test_shapes_are_known_without_running(dtype: torch.dtype) -> None:
    module = gating("fused").to(dtype)
    real = module(torch.randn(2, 17, 48, dtype=dtype))
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake = module(mode.from_tensor(torch.empty(2, 17, 48, dtype=dtype)))
    assert (fake.shape, fake.dtype, fake.stride(), fake.device) == (real.shape, real.dtype, real.stride(), real.device)


def test_a_compiled_module_is_one_graph_and_answers_the_same() -> None:
    module, tokens = gating("fused"), torch.randn(2, 17, 48, requires_grad=True)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    found, expected = compiled(tokens), module(tokens)
    assert torch.equal(found, expected)
    upstream = torch.randn_like(expected)
    leaves = (tokens, *module.parameters())
    for a, b in zip(torch.autograd.grad(found, leaves, upstream), torch.autograd.grad(expected, leaves, upstream), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("keeps", [True, False])
def test_the_memory_meter_sees_the_answer_the_gate_and_the_statistics(keeps: bool) -> None:
    module, tokens = gating("fused"), torch.randn(2, 17, 48)
    ledger = Ledger()
    ledger.label((tokens,), ACTIVATION)
    ledger.label(module.parameters(), "weight")
    before = ledger.now.activation
    with torch.set_grad_enabled(keeps), Watch(ledger):
        out = module(tokens, extra=torch.ones(2, 17, 24))  # which is not kept
    gc.collect()  # the interpreter leaves what it was given in cycles
    entries = 2 * 17 * 24
    # in training out and the gate, without out alone: its statistics go when it is done
    assert ledger.now.activation - before == (4 * (2 * entries + 2 * 2 * 17) if keeps else 4 * entries)
    assert out.shape == (2, 17, 24)


@pytest.mark.parametrize("padded", [False, True])
def test_the_family_answers_the_same_with_tiny_attention_and_padding(padded: bool) -> None:
    shape, interface = Shape(seq_len=17, width=16, depth=2, heads=1, ffn_width=32), Interface(patch_dim=12, num_classes=5)
    models = [
        build_family(FamilyConfig(shape=shape, interface=interface, tiny_attention=8, kernel=kernel)) for kernel in ("fused", "linear")
    ]
    torch.manual_seed(0)
    randomise(models[1])
    models[0].load_state_dict(models[1].state_dict())
    data, valid = torch.randn(3, 16, 12), torch.arange(16).expand(3, 16) < torch.tensor([[16], [3], [9]])
    found, expected = (model(data, valid if padded else None) for model in models)
    assert_close_to_largest(found, expected, 1e-5)
    gradients = [
        torch.autograd.grad(out.square().sum(), list(model.parameters())) for out, model in ((found, models[0]), (expected, models[1]))
    ]
    for a, b in zip(*gradients, strict=True):
        assert_close_to_largest(a, b, 1e-4)


def test_under_autocast_weights_stay_as_they_are() -> None:
    module, tokens = gating("fused"), torch.randn(2, 17, 48)
    exact = gating("linear").double()(tokens.bfloat16().double())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert "autocast" in module.fused_refusal(tokens)
        found = module(tokens.bfloat16())
    found.sum().backward()
    assert found.dtype == torch.bfloat16
    assert_close_to_largest(found.double(), exact, TOLERANCES[torch.bfloat16])
    assert all(parameter.grad is not None and parameter.grad.dtype == torch.float32 for parameter in module.parameters())


def test_a_gate_that_was_not_kept_has_no_gradient() -> None:
    values = {name: value.float() for name, value in drawn(replace(CASES[0], norm=False)).items()}
    out, gate, _ = forward(values["z"].requires_grad_(), values["weight"], values["bias"], None, None, None, None, EPSILON, False)
    assert gate.numel() == 0
    with pytest.raises(RuntimeError, match="without keep_gate"):
        out.sum().backward()
