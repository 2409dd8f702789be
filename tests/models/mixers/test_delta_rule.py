"""Delta rule where numbers are hard: alike keys, long runs, half precision, fresh decays; and Qwen3-Next's layer gives the same answers."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bench.contracts.architectures import assert_close_to_largest, randomise
from bench.peers.transformers import delta_net_mixer
from models.layers.chunks import join_chunks, split_chunks
from models.layers.shape import Shape
from models.layers.short_convolution import ShortConvolution
from models.mixers import delta_rule as rule
from models.mixers.delta_rule import Config, DeltaRule, build, delta_rule, invert_unit_triangular, unit

WIDTH, HEADS = 8, 2
over_gated = pytest.mark.parametrize("gated", [False, True])


def over_tokens(query: Tensor, key: Tensor, value: Tensor, strength: Tensor, decay: Tensor) -> Tensor:
    """`(n, channels)`, one head: S_t = a_t S_{t-1} (I - b_t k_t k_t^T) + b_t v_t k_t^T, o_t = S_t q_t (arXiv 2412.06464, Sec. 3.1)."""
    state, answers = value.new_zeros(value.shape[-1], key.shape[-1]), []
    for q, k, v, b, a in zip(query, key, value, strength, decay, strict=True):
        state = a * state @ (torch.eye(len(k), dtype=k.dtype) - b * torch.outer(k, k)) + b * torch.outer(v, k)
        answers.append(state @ q)
    return torch.stack(answers)


def over_chunks(query: Tensor, key: Tensor, value: Tensor, strength: Tensor, log_decay: Tensor | None, *, chunk: int) -> Tensor:
    """`delta_rule` with `(items, n, channels)` and `(items, n)`."""

    def split(tokens: Tensor) -> Tensor:
        return split_chunks(tokens, chunk).transpose(0, 1)

    def split_numbers(numbers: Tensor) -> Tensor:
        return split(numbers[..., None])[..., 0]

    decays = None if log_decay is None else split_numbers(log_decay)
    found = delta_rule(split(query), split(key), split(value), split_numbers(strength), decays)
    return join_chunks(found.transpose(0, 1), query.shape[1])


@pytest.mark.parametrize("size", [1, 2, 3, 7, 16, 17, 64])
def test_the_inverse_reads_only_what_lies_below_the_diagonal(size: int) -> None:
    torch.manual_seed(0)
    matrices = (torch.randn(2, 3, size, size).double() / size**0.5).requires_grad_()
    unit_triangular = torch.eye(size) - matrices.tril(-1)
    found, expected = invert_unit_triangular(matrices), torch.linalg.inv(unit_triangular)
    assert_close_to_largest(found, expected, 1e-11)
    if size > 1:
        upstream = torch.randn_like(expected)
        ours, theirs = (torch.autograd.grad(inverse, matrices, upstream)[0] for inverse in (found, expected))
        assert_close_to_largest(ours, theirs, 1e-9)


def test_the_inverse_of_equal_keys_is_exact_where_powers_overflow() -> None:
    """Each token overwrites what the one before it wrote; a sum of powers would hold entries beyond 1e17."""
    ones = torch.ones(1, 64, 64)
    assert torch.linalg.matrix_power(ones[0].tril(-1).double(), 32).max() > 1e17
    expected = torch.eye(64) - torch.eye(64).roll(1, dims=0).tril()
    assert torch.equal(invert_unit_triangular(-ones)[0], expected)


@pytest.mark.parametrize("decay", [0.0, -1e-4, -1.0, -200.0])
@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_long_runs_of_nearly_equal_keys_stay_as_the_recurrence_in_fp32(decay: float, scale: float) -> None:
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 1, 400, 8)
    strength, log_decay = 1 - 0.01 * torch.rand(1, 400), torch.full((1, 400), decay)
    given = [query, unit(key[:, :1] + 1e-3 * key), scale * value, strength, log_decay]
    found = over_chunks(*given, chunk=64)
    query, key, value, strength, log_decay = (each[0].double() for each in given)
    expected = over_tokens(query, key, value, strength, log_decay.exp())
    assert_close_to_largest(found[0].double(), expected, 3e-6)


@pytest.mark.parametrize("autocast", [False, True])
@over_gated
def test_bf16_inverts_in_fp32(autocast: bool, gated: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    invert, seen = invert_unit_triangular, []

    def watched(matrices: Tensor) -> Tensor:
        inverse = invert(matrices)
        with torch.autocast("cpu", enabled=False):
            assert torch.equal(inverse, invert(matrices))
        seen.append(inverse.dtype)
        return inverse

    monkeypatch.setattr(rule, "invert_unit_triangular", watched)
    torch.manual_seed(0)
    module, tokens = build(Config(seq_len=100, width=WIDTH, heads=HEADS, gated=gated)).double(), torch.randn(2, 100, WIDTH).double()
    randomise(module, std=0.5)
    expected = module(tokens)
    seen.clear()
    if autocast:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = module.float()(tokens.float())
    else:
        found = module.bfloat16()(tokens.bfloat16())
    assert found.dtype == torch.bfloat16
    assert seen == [torch.float32]
    assert_close_to_largest(found.double(), expected, 0.1)


@over_gated
def test_a_state_in_bf16_would_lose_small_changes(gated: bool) -> None:
    """600 chunks each change the state by a six-hundredth: less than half a step of bf16 at the end."""
    n, strength = 9600, 1e-5
    key = torch.zeros(1, n, 4, dtype=torch.bfloat16)
    key[..., 0] = 1
    strengths = torch.full((1, n), strength, dtype=torch.bfloat16)
    found = over_chunks(key, key, torch.ones_like(key), strengths, torch.zeros(1, n) if gated else None, chunk=16)
    expected = 1 - (1 - float(strengths[0, 0])) ** n
    assert found[0, -1].double().mean().item() == pytest.approx(expected, rel=0.02)


def test_fresh_rates_and_steps_fill_their_published_ranges() -> None:
    torch.manual_seed(0)
    decay = build(Config(seq_len=17, width=256, heads=128)).decay
    assert decay is not None
    for found, low, high in ((decay.log_rate.exp(), 1.0, 16.0), (nn.functional.softplus(decay.step_bias), 1e-3, 1e-1)):
        tenth, rounding = (high - low) / 10, 1e-5 * high
        assert low - rounding <= found.min() <= low + tenth + rounding
        assert high - tenth - rounding <= found.max() <= high + rounding


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [("chunk", 8, "a power of two and at least 16"), ("chunk", 48, "a power of two and at least 16"), ("conv_width", 1, "at least 2")],
)
def test_impossible_options_are_refused(name: str, value: int, rule: str) -> None:
    options: dict[str, Any] = {name: value}
    with pytest.raises(ValueError, match=f"{name} must be {rule}, not {value}"):
        Config(seq_len=17, width=8, **options)


@pytest.fixture
def qwen() -> Any:
    """Qwen3-Next's gated delta rule, in torch alone."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip(
            "transformers.models.qwen3_next.modeling_qwen3_next", reason="the peer needs transformers: pip install transformers"
        )


@pytest.mark.parametrize("n", [5, 150])
@pytest.mark.usefixtures("qwen")
def test_transformers_layer_gives_the_same_answers_with_the_same_weights(n: int) -> None:
    torch.manual_seed(0)
    width = 32
    peer = delta_net_mixer(Shape(seq_len=n, width=width, depth=1, heads=HEADS, ffn_width=width), 0)
    randomise(peer, std=0.3)
    module = build(Config(seq_len=n, width=width, heads=HEADS, causal=True))
    with torch.no_grad():
        _copy_weights(peer, module)
    tokens = torch.randn(2, n, width, requires_grad=True)
    ours, theirs = module(tokens), peer(tokens)
    assert_close_to_largest(ours, theirs, 1e-5)
    upstream = torch.randn_like(ours)
    one, other = (torch.autograd.grad(answers, tokens, upstream)[0] for answers in (ours, theirs))
    assert_close_to_largest(one, other, 1e-5)


def _copy_weights(peer: Any, module: DeltaRule) -> None:
    """The peer holds q, k, v and gate side by side for each head, and strength and step; it has no biases but that of the step."""
    convolve = module.convolve[0]
    assert module.decay is not None
    assert isinstance(convolve, ShortConvolution)
    for name, parameter in module.named_parameters():
        if name.endswith("bias"):
            parameter.zero_()
    # (heads, 4 x channels, width) -> four of (width out, width)
    q, k, v, gate = (part.flatten(0, 1) for part in peer.in_proj_qkvz.weight.unflatten(0, (HEADS, 4, -1)).unbind(1))
    strength, step = peer.in_proj_ba.weight.unflatten(0, (HEADS, 2)).unbind(1)
    module.qkv.weight.copy_(torch.cat((q, k, v)))
    for ours, theirs in (
        (module.gate.weight, gate),
        (module.strength.weight, strength),
        (module.decay.step.weight, step),
        (module.decay.step_bias, peer.dt_bias),
        (module.decay.log_rate, peer.A_log),
        (convolve.weight, peer.conv1d.weight[:, 0]),
        (module.norm, peer.norm.weight),
        (module.project.weight, peer.out_proj.weight),
    ):
        ours.copy_(theirs)
