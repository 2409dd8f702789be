"""Fused spatial gating against float64, run by Triton's interpreter on CPU: collected by test_interpreted.py alone, which sets TRITON_INTERPRET."""

from __future__ import annotations

import functools
import gc
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from bench.measure.kernels import spatial_kernel
from bench.measure.memory_tracker import ACTIVATION, Ledger, Watch
from bench.measure.step import build_step
from bench.planning.build import build_plan
from bench.spec import Recipe, Settings
from models.gmlp import Config as FamilyConfig
from models.gmlp import build as build_family
from models.kernels import spatial_gating_backward, spatial_gating_forward
from models.kernels.fused_spatial_gating import _failure as trials
from models.kernels.fused_spatial_gating import fused_spatial_gating
from models.kernels.spatial_gating_operator import backward, forward
from models.layers.shape import Interface, Shape
from models.mixers.spatial_gating import Config, SpatialGating, build
from tests.contracts.checks import assert_close_to_largest, randomise
from tests.models.kernels.gate_checks import (
    EPSILON,
    TOLERANCES,
    Allocations,
    Case,
    Gate,
    answers,
    check_beside_plain,
    check_gate,
    check_single_matrix_memory,
    drawn,
    plain,
)
from tests.requested import parse_request

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


@pytest.mark.parametrize("case", CASES, ids=str)
def test_answers_and_gradients_are_those_of_float64(case: Case) -> None:
    check_gate(fused_spatial_gating, case)


@pytest.mark.parametrize("dtype", TOLERANCES)
def test_errors_are_those_of_the_plain_formulation(dtype: torch.dtype) -> None:
    """What tests/cuda asks of a GPU, at lengths that an interpreter can take."""
    for n in (17, 64, 65):
        check_beside_plain(fused_spatial_gating, Case(n=n, channels=24, dtype=dtype, extra=True), "cpu")


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
    for check in (check_gate, functools.partial(check_beside_plain, device="cpu")):
        with pytest.raises(AssertionError, match="differs by"):
            check(broken, case)


def test_what_no_kernel_writes_is_seen() -> None:
    def unwritten(z: Tensor, weight: Tensor, bias: Tensor, **others: Any) -> Tensor:
        return fused_spatial_gating(z, weight, bias, **others) + torch.empty(1, dtype=z.dtype)

    with pytest.raises(AssertionError, match="out holds what no kernel wrote"):
        check_beside_plain(unwritten, Case(n=17, channels=24), "cpu")


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


@pytest.fixture
def fresh_trials() -> Iterator[None]:
    """Kernels are tried as if for the first time, and what these tests break is forgotten."""
    trials.cache_clear()
    yield
    trials.cache_clear()


def _out_of_resources(*_arguments: Any, **_options: Any) -> Any:
    raise RuntimeError("out of resource: shared memory, Required: 294912, Hardware limit: 232448.\nReducing block sizes may help.")


@pytest.mark.usefixtures("fresh_trials")
@pytest.mark.parametrize("is_compiled", [False, True])
def test_a_backward_that_cannot_be_launched_is_noticed_before_the_forward(monkeypatch: pytest.MonkeyPatch, is_compiled: bool) -> None:
    monkeypatch.setattr(spatial_gating_backward, "weight_gradient", _out_of_resources)
    module, tokens = gating("fused"), torch.randn(2, 17, 48)
    expected = gating("linear")(tokens)
    call = torch.compile(module, fullgraph=True, backend="aot_eager") if is_compiled else module
    found = call(tokens)
    found.sum().backward()
    assert_close_to_largest(found, expected, 1e-5)
    assert module.why_fused_unsupported(tokens) == "out of resource: shared memory, Required: 294912, Hardware limit: 232448."
    assert module.effective_kernel(tokens) == gating("auto").effective_kernel(tokens) != "fused"
    with torch.no_grad():  # which needs no backward
        assert module.effective_kernel(tokens) == "fused"


@pytest.mark.usefixtures("fresh_trials")
def test_the_reason_is_a_column(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spatial_gating_forward, "mix_and_gate", _out_of_resources)
    request = parse_request(models="gmlp+kernel=fused,gmlp", seq="17", width="32", depth="1", batch="2", dtype="bf16")
    fused, auto = (p.cell for p in build_plan(request, settings=Settings(), recipe=Recipe(), device="cpu").cells)
    kernel = spatial_kernel(fused, build_step(fused))
    assert kernel == "baddbmm (not fused: out of resource: shared memory, Required: 294912, Hardware limit: 232448.)"
    assert spatial_kernel(auto, build_step(auto)) == "baddbmm"


@pytest.mark.usefixtures("fresh_trials")
@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA out of memory."), RuntimeError("Triton Error [CUDA]: out of memory"), MemoryError()]
)
def test_memory_that_runs_out_is_no_failure_of_a_kernel(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def exhausted(*_arguments: Any) -> Any:
        raise error

    module, tokens = gating("fused"), torch.randn(2, 17, 48)
    with monkeypatch.context() as patched:
        patched.setattr(spatial_gating_forward, "mix_and_gate", exhausted)
        with pytest.raises(type(error)):
            module(tokens)
    assert module.effective_kernel(tokens) == "fused"


@pytest.mark.usefixtures("fresh_trials")
def test_a_trial_is_made_once_and_counted_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    launched: list[tuple[int, ...]] = []
    mix_and_gate = spatial_gating_forward.mix_and_gate

    def counted(z: Tensor, *arguments: Any) -> Any:
        launched.append(tuple(z.shape))
        return mix_and_gate(z, *arguments)

    monkeypatch.setattr(spatial_gating_forward, "mix_and_gate", counted)
    tokens = torch.randn(3, 17, 48, requires_grad=True)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:  # which runs nothing, and leaves nothing behind
        gating("fused")(mode.from_tensor(tokens.detach()))
    product = 2 * 3 * 17 * 17 * 24
    assert flops(gating("fused"), tokens) == flops(gating("fused"), tokens) == (product, 3 * product)
    assert launched == [(1, 17, 48), (2, 17, 48), (3, 17, 48), (3, 17, 48)]


@pytest.mark.parametrize("dtype", TOLERANCES)
def test_a_single_slice_of_the_batch_is_written_in_the_type_of_the_gradient(dtype: torch.dtype) -> None:
    check_single_matrix_memory(n=17, channels=24, dtype=dtype, device="cpu")


def test_several_slices_are_summed_in_fp32() -> None:
    case = Case(n=17, channels=24, batch=11, dtype=torch.bfloat16)
    values = {name: value.bfloat16() for name, value in drawn(case).items()}
    with Allocations() as allocations:
        found = spatial_gating_backward.weight_gradient(values["upstream"], values["z"], None, None, (torch.bfloat16, torch.float16))
    assert [gradient.dtype for gradient in found] == [torch.bfloat16, torch.float16]
    assert next(kind for shape, kind in allocations.found if shape[1:] == (17, 17)) == torch.float32


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
        assert "autocast" in module.why_fused_unsupported(tokens)
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
