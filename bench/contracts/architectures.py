"""The contract of a family or mixer; each check raises AssertionError or CountError.

tests/contracts/ holds the project's own to it, and to plain references besides; test_broken_specimens.py shows that each check can fail.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import math
import os
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.profiler import profile

from bench import catalog
from bench.contracts.subjects import (
    EVERY_DAY,
    MIXER_SIZES,
    Subject,
    family_config,
    family_defaults,
    interfaces,
    mixer_config,
    mixer_defaults,
    refusal,
)
from bench.flop_counter import (
    HAS_FVCORE,
    TorchCount,
    count_at,
    count_train_with_torch,
    count_with_fvcore,
    count_with_torch,
    visible_products,
)
from bench.metrics.profile import QUIET
from models.layers.cost import Polynomial
from models.layers.dropout import dropping_places, set_dropout
from models.layers.recurrence import GATES
from models.layers.shape import Interface

SMALL = 17
SHORT = 9
DRAWS = 16
"""Pairs of draws of which one must differ: of a layer of one unit both may drop all."""
BATCH = 4
ROUNDING = 1e-13
"""Rounding in float64, as a share of the largest answer."""
BF16_TOLERANCE = 0.15
PROFILED_PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::conv2d")
LARGE = 1e3
JUNK = (1e6, float("nan"))
"""What padding may hold: numbers that are seen where they are added, and one that is seen wherever it is read."""
BLIND = "embedding.project."
"""What gets no gradient where a class token meets no other token."""


def check_params(subject: Subject) -> None:
    """Closed-form parameters, those of them that depend on seq_len and those of the blocks are the ones that exist.

    What depends on the length is told from n + 2, at which either half of a sequence is longer too.
    """
    for n in sorted({*subject.every_day, *(EVERY_DAY if subject.is_counted else ())}):
        counted, longer, closed = _parameter_sizes(subject, n), _parameter_sizes(subject, n + 2), subject.cost(n)
        found = [closed.params().at(n), closed.params().at(n + 2), closed.params_seq().at(n), closed.params("blocks").at(n)]
        expected = [sum(counted.values()), sum(longer.values()), sum(size for name, size in counted.items() if longer[name] != size)]
        expected.append(sum(size for name, size in counted.items() if name.startswith("blocks.") or not subject.is_family))
        assert found == expected, (
            f"parameters at n = {n}, n + 2, of the length, of the blocks: {found} by the closed form, {expected} counted"
        )


def check_flops(subject: Subject, lengths: tuple[int, ...] = ()) -> None:
    """Closed form and torch count the same FLOPs of forward and backward, of products and FFTs, as does fvcore (where installed) of forward.

    The formulation that runs costs what the one that is counted costs. Every day, each term is counted in some subject, and forward alone in plain
    ones; at given `lengths`, all are.
    """
    assert subject.cost(SMALL) == subject.reference_cost(SMALL), "another formulation costs something else"
    for n in lengths or (subject.every_day if subject.is_counted else ()):
        cost = subject.cost(n)
        forward = ((cost.flops().at(n), cost.fft_flops(), _by_torch, "forward"),) if lengths or subject.is_plain else ()
        for closed, ffts, count, kind in ((cost.train_flops().at(n), cost.train_fft_flops(), _train_by_torch, "training"), *forward):
            by_torch = count_at(n, lambda length, count=count: count(subject, length).flops, stepwise=subject.is_stepwise)  # type: ignore[misc]
            assert closed == by_torch, f"{kind} FLOPs at n = {n}: {closed} by the closed form, {by_torch} by torch"
            ran = count_at(n, lambda length, count=count: count(subject, length).fft_flops, stepwise=subject.is_stepwise)  # type: ignore[misc]
            assert ffts == ran, f"{kind} FLOPs of FFTs at n = {n}: {ffts} by the closed form, {ran} of those that ran"
        if HAS_FVCORE and forward:
            by_fvcore = count_at(n, lambda length: _flops_by_fvcore(subject, length), stepwise=subject.is_stepwise)
            assert cost.flops().at(n) == by_fvcore, f"FLOPs at n = {n}: {cost.flops().at(n)} by the closed form, {by_fvcore} by fvcore"


def check_profiled_flops(subject: Subject) -> None:
    """What torch's profiler counts in a real run on the CPU, with attention taken apart, is the closed form; what calls attention recomputes a term.

    Its formulas (torch/csrc/profiler/util.cpp) are neither this project's nor those of torch's flop counter; fvcore's count of the n^2 terms rests on
    handles of ours.
    """
    n = SHORT if subject.is_stepwise else SMALL
    model, data = subject.reference(n).eval(), subject.data(n)
    os.environ.setdefault("KINETO_LOG_LEVEL", QUIET)  # read when the first profile of a process begins
    with torch.no_grad(), visible_products(model), profile(with_flops=True) as profiled:
        model(data)
    events = profiled.key_averages()
    counted = sum(event.flops for event in events if event.key in PROFILED_PRODUCTS)
    cost = subject.cost(n)
    assert cost.flops().at(n) == counted, f"FLOPs at n = {n}: {cost.flops().at(n)} by the closed form, {counted} by the profiler"
    attends = any(event.key == "aten::scaled_dot_product_attention" for event in events)
    assert attends == bool(cost.recompute_flops().coefficients), "what is recomputed is not the attention that runs"
    told = catalog.load("families", subject.name).uses_attention(subject.config(n)) if subject.is_family else attends
    assert told == attends, "a family is mistaken about its attention"
    assert all(term.recompute_macs in (Polynomial(), term.macs) for term in cost.terms), "a term is recomputed in part"


def check_one_polynomial(subject: Subject) -> None:
    """The terms are polynomials in n: none has the config's own seq_len baked in, but for the length of FFTs; their number is the same.

    Held at lengths that are one more than a multiple of 64 (patches and a class token), where a mixer in blocks leaves as many tokens over, and at
    even ones where a family parts its tokens in halves.
    """
    for pair in ((257, 1025), (258, 1026)):
        short, long = ([dataclasses.replace(term, fft_length=0) for term in subject.cost(n).terms] for n in pair)
        assert short == long, f"other terms at n = {pair[1]} than at {pair[0]}"


def check_gradients(subject: Subject) -> None:
    """The gradient reaches every parameter. Weights are randomised first: fresh ones may be zero, and stop it by design.

    A class token that meets no other token answers the same to everything: the data's own parameters get none.
    """
    model, data = randomised(subject)
    output = model(data)
    if not subject.reads_data:
        assert torch.equal(output, model(torch.zeros_like(data))), "the answer depends on data that no token of it meets"
    if output.requires_grad:
        (output * torch.randn_like(output)).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, f"no gradient reaches {name}"
        assert parameter.grad.isfinite().all(), f"the gradient of {name} is not finite"
        assert parameter.grad.any() or (name.startswith(BLIND) and not subject.reads_data), f"the gradient of {name} is zero"


def check_fresh_weights(subject: Subject) -> None:
    """A seed decides all weights. Linear layers and units start Xavier-uniform with biases of zero, norms as no norm at all."""
    first, same, other = (dict(_seeded(subject, seed).named_parameters()) for seed in (1, 1, 2))
    for name, value in first.items():
        assert torch.equal(value, same[name]), f"{name} differs between two builds with the same seed"
    assert len(first) < 2 or any(not torch.equal(value, other[name]) for name, value in first.items()), "the seed changes no weight"
    for path, module in _seeded(subject, 1).named_modules():
        if isinstance(module, nn.Linear | nn.GRU | nn.GRUCell):
            for name, parameter in module.named_parameters():
                for gate in parameter.chunk(1 if isinstance(module, nn.Linear) else GATES):
                    _assert_xavier(gate.detach(), f"{path}.{name}")
        elif isinstance(module, nn.LayerNorm | nn.RMSNorm):
            assert all(value.eq(float(name == "weight")).all() for name, value in module.named_parameters()), f"{path} is not neutral"


def _assert_xavier(values: Tensor, name: str) -> None:
    if values.dim() == 1:
        assert not values.any(), f"{name} does not start at zero"
        return
    bound = math.sqrt(6 / sum(values.shape))
    assert values.abs().max() <= bound * (1 + 1e-6), f"{name} starts beyond the bound of Xavier"
    # the mean square of a uniform draw is a third of its bound's, give or take 0.3 / sqrt(entries)
    mean_square = values.square().mean().item() / bound**2
    assert abs(mean_square - 1 / 3) < 1.5 / math.sqrt(values.numel()), f"{name} does not start uniform up to the bound of Xavier"


def check_padding(subject: Subject) -> None:
    """What padded tokens hold changes no bit of an answer; an item among padding answers as alone, in any batch and with weights cut to its length.

    Where every token is valid, the answer is that without `valid`. A model that cannot tell padding from data refuses `valid`.
    """
    model, data = randomised(subject)
    whole, valid = torch.ones(data.shape[:2], dtype=torch.bool), _among_padding(data, subject)
    if not getattr(model, "takes_padding", True):
        assert "valid must be None" in _refused(lambda: model(data, whole)), "valid is not refused: 'valid must be None'"
        return
    short = subject.build(SHORT).eval()
    short.load_state_dict({name: _leading(model.state_dict()[name], value) for name, value in short.state_dict().items()})
    with torch.no_grad():
        expected = valid_answers(model(data, valid), valid)
        assert expected.isfinite().all(), "answers among padding are not finite"
        for other in refilled(data, valid):
            assert torch.equal(valid_answers(model(other, valid), valid), expected), "what padded tokens hold reaches the answer"
        found = valid_answers(model(data, valid)[:1], valid[:1])
        alone = valid_answers(model(data[:1], valid[:1]), valid[:1])
        assert_close_to_largest(found, alone, 1e-5, "an item among others")
        assert_close_to_largest(found, short(data[:1, valid[0]]).reshape(found.shape), 1e-5, "an item among padding")
        assert_close_to_largest(model(data, whole), model(data), 1e-5, "all valid")


def check_mixing(subject: Subject) -> None:
    """Where every token answers, another token changes its own answer and those of all tokens that it can reach, and no other.

    Of a package's plugin it is only known that one which is causal reaches no earlier token.

    In float64: an FFT sums over all tokens, so rounding reaches those that nothing else does.
    """
    model, data = randomised(subject)
    other = data.clone()
    other[:, 3] = subject.data(SMALL)[:, 3] if data.is_floating_point() else 255 - data[:, 3]
    model = model.double()
    with torch.no_grad():
        answers, others = (model(item.double() if item.is_floating_point() else item) for item in (data, other))
    if answers.dim() < 3:
        return
    changed = ((answers - others).abs() > ROUNDING * answers.abs().max()).any(dim=-1)
    reached = torch.tensor(sorted(subject.reached(3)))
    expected = torch.zeros_like(changed).index_fill(1, reached[reached < changed.shape[1]], True)
    meets = torch.equal(changed, expected) if subject.knows_reach else not (changed & ~expected).any()
    assert meets, "tokens meet that should not, or do not that should"


def check_dropout(subject: Subject) -> None:
    """In a family, embedding, every block and the head drop; all drop in training only, at each place where they can, and nothing at zero.

    Unless training moves buffers, as of a norm that takes the batch's own statistics: then it answers the same as without dropout.
    """
    model, data = randomised(subject)
    if not dropping_places(model):
        assert not subject.is_family or not hasattr(model, "head"), "the head cannot drop"
        return
    expected, state = model(data), copy.deepcopy(model.state_dict())
    undropped = model.train()(data)
    moved = any(not torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert moved or torch.equal(undropped, expected), "dropout of zero changes the answer"
    blocks = [f"blocks.{name}" for name, _ in model.get_submodule("blocks").named_children()] if subject.is_family else [""]
    for name in ("embedding", *blocks, "head") if subject.is_family else blocks:
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


def check_precision(subject: Subject) -> None:
    """In bf16, by weights or by autocast, it answers nearly as in 64 bits; in fp32 large tokens and repeated ones leave gradients finite."""
    model, data = randomised(subject)
    plain = data.is_floating_point()
    with torch.no_grad():
        expected = copy.deepcopy(model).double()(data.double() if plain else data)
        narrow = copy.deepcopy(model).bfloat16()(data.bfloat16() if plain else data)
        with torch.autocast("cpu", torch.bfloat16):
            automatic = model(data)
    assert narrow.dtype == torch.bfloat16, f"the answer with weights in bf16 is {narrow.dtype}"
    for found in (narrow, automatic):
        assert_close_to_largest(found.double(), expected, BF16_TOLERANCE, "bf16")
    for other in (LARGE * data, data[:, :1].expand_as(data)) if plain else ():
        answers = model(other)
        assert answers.isfinite().all(), "answers to large or repeated tokens are not finite"
        if answers.requires_grad:
            answers.square().mean().backward()
        finite = all(parameter.grad is None or parameter.grad.isfinite().all() for parameter in model.parameters())
        assert finite, "gradients of large or repeated tokens are not finite"


CONTRACT: tuple[Callable[[Subject], None], ...] = (
    check_params,
    check_flops,
    check_profiled_flops,
    check_one_polynomial,
    check_gradients,
    check_fresh_weights,
    check_padding,
    check_mixing,
    check_dropout,
    check_precision,
)


def check_refusals(kind: str, name: str) -> None:
    """A `Config` refuses sizes and options that are impossible, and names them."""
    is_family = kind == "families"
    config, defaults = (
        (family_config(name, interfaces(name)[0]), family_defaults(name)) if is_family else (mixer_config(name), mixer_defaults(name))
    )
    for size in () if is_family else MIXER_SIZES:
        sizes = {"seq_len": SMALL, "width": 16, size: 0}
        said = _refused(lambda sizes=sizes: catalog.load(kind, name).Config(**sizes))  # type: ignore[misc]
        assert f"{size} must be a positive whole number" in said, f"{size} = 0 is not refused: '{size} must be a positive whole number'"
    for option, default in defaults.items():
        if not isinstance(default, bool):
            value = "nonsense" if isinstance(default, str) else -1
            assert option.split("_")[-1] in refusal(config, {option: value}), f"{option} = {value!r} is not refused by name"
    if is_family and catalog.load(kind, name).USES_HEADS:
        said = refusal(family_config(name, Interface(), heads=3), {})
        assert "width must be a multiple of heads" in said, "heads = 3 is not refused: 'width must be a multiple of heads'"
    assert "heads" not in defaults or "must be a multiple of" in refusal(config, {"heads": 3}), "heads = 3 is not refused"


def _refused(call: Callable[[], object]) -> str:
    """The message of the ValueError that a call raises; empty if it raises none."""
    try:
        call()
    except ValueError as error:
        return str(error)
    return ""


def randomised(subject: Subject) -> tuple[nn.Module, Tensor]:
    """A model in evaluation whose weights all matter, and a batch: fresh weights may be zero, and would hide a leak."""
    torch.manual_seed(0)
    model = subject.build(SMALL).eval()
    randomise(model)
    return model, torch.cat([subject.data(SMALL) for _ in range(BATCH)]).detach()


def randomise(model: nn.Module, std: float = 0.2) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=std)


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


def in_float64(subject: Subject, n: int) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    model = subject.build(n).double().eval()
    randomise(model, std=0.3)
    data = torch.cat([subject.data(n) for _ in range(BATCH)]).detach()
    return model, data.double() if data.is_floating_point() else data


def _among_padding(data: Tensor, subject: Subject) -> Tensor:
    """`(batch, data tokens)`: the first item as long as one at `SHORT`, the others padded at the end, at the front and anywhere."""
    valid = padded_everywhere(data)
    valid[0] = subject.places(subject.data(SHORT).shape[1], data.shape[1])
    return valid


def padded_everywhere(data: Tensor) -> Tensor:
    """`(batch, data tokens)`: an item without padding, one padded at its end, one at its front, and one anywhere."""
    n = data.shape[1]
    valid = torch.ones(data.shape[:2], dtype=torch.bool)
    valid[1, n // 2 :] = False
    valid[2, : (2 * n) // 3] = False
    valid[3, [0, n // 2, n - 1]] = False
    return valid


def refilled(data: Tensor, valid: Tensor) -> list[Tensor]:
    """The same valid tokens among other padding: huge values and values that are no numbers, or other ids."""
    padded = ~valid.view(*valid.shape, *(1 for _ in data.shape[2:]))
    return [torch.where(padded, fill, data) for fill in (JUNK if data.is_floating_point() else (0, 255, data.flip(1)))]


def _leading(value: Tensor, like: Tensor) -> Tensor:
    """The first entries of every dimension, as many as `like` has."""
    return value[tuple(slice(size) for size in like.shape)]


def _parameter_sizes(subject: Subject, n: int) -> dict[str, int]:
    with torch.device("meta"):
        return {name: parameter.numel() for name, parameter in subject.build(n).named_parameters()}


def _seeded(subject: Subject, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return subject.build(SMALL)


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
