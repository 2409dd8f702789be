"""Small models composed at random from torch.nn's layers and from products as people write them. Each maps `(batch, 17, 192)` to `(batch, 10)`."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

from bench.peers.counted import is_lazy

TOKENS, PATCH_DIM, CLASSES = 17, 192, 10
MOST_PARTS = 5
Draw = Any
"""Hypothesis' function that draws from a strategy."""
Maker = Callable[[Draw, int, int], nn.Module]


class Function(nn.Module):
    """A function of `(batch, n, width)` and of weights, which it holds."""

    def __init__(self, function: Callable[..., Tensor], *shapes: tuple[int, ...], dtype: torch.dtype = torch.float) -> None:
        super().__init__()
        self.function = function
        self.weights = nn.ParameterList(torch.randn(shape, dtype=dtype) * 0.1 for shape in shapes)

    def forward(self, data: Tensor) -> Tensor:
        return self.function(data, *self.weights)


class ChannelsFirst(nn.Module):
    """A layer of `(batch, width, n)`."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, data: Tensor) -> Tensor:
        result: Tensor = self.layer(data.transpose(1, 2)).transpose(1, 2)
        return result


class Picture(nn.Module):
    """A layer of `(batch, 1, n, width)`, averaged over its channels."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, data: Tensor) -> Tensor:
        result: Tensor = self.layer(data[:, None]).mean(1)
        return result


class FirstOf(nn.Module):
    """The first result of a layer that returns more than one."""

    def __init__(self, layer: nn.Module, *, attends: bool = False) -> None:
        super().__init__()
        self.layer = layer
        self.attends = attends

    def forward(self, data: Tensor) -> Tensor:
        result: Tensor = (self.layer(data, data, data) if self.attends else self.layer(data))[0]
        return result


class Stepping(nn.Module):
    """A recurrent cell, called for one token after another."""

    def __init__(self, cell: nn.Module) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, data: Tensor) -> Tensor:
        state, states = None, []
        for token in data.unbind(1):
            state = self.cell(token, state)
            states.append(state[0] if isinstance(state, tuple) else state)
        return torch.stack(states, 1)


class Residual(nn.Module):
    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.part = part

    def forward(self, data: Tensor) -> Tensor:
        result: Tensor = data + self.part(data)
        return result


class Twice(nn.Module):
    """One layer's weights, used twice."""

    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.first, self.second = nn.Sequential(part), nn.Sequential(part)

    def forward(self, data: Tensor) -> Tensor:
        result: Tensor = self.second(self.first(data))
        return result


class Beside(nn.Module):
    """Two parts of one input, joined."""

    def __init__(self, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.first, self.second = first, second

    def forward(self, data: Tensor) -> Tensor:
        return torch.cat([self.first(data), self.second(data)], dim=-1)


class WithoutGradient(nn.Module):
    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.part = part

    def forward(self, data: Tensor) -> Tensor:
        with torch.no_grad():
            result: Tensor = self.part(data)
        return result


class RunAgain(nn.Module):
    """A part whose backward pass runs its forward pass again, to its end: the profiler also notes a last product that an early stop leaves undone."""

    def __init__(self, part: nn.Module, *, reentrant: bool) -> None:
        super().__init__()
        self.part = part
        self.reentrant = reentrant

    def forward(self, data: Tensor) -> Tensor:
        with set_checkpoint_early_stop(False):
            result: Tensor = checkpoint(self.part, data, use_reentrant=self.reentrant)
        return result


class WithGivenWeights(nn.Module):
    """A layer that is called with its weights, as in meta-learning."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, data: Tensor) -> Tensor:
        result: Tensor = torch.func.functional_call(self.layer, dict(self.layer.named_parameters()), (data,))
        return result


class _Product(torch.autograd.Function):
    """A product with a backward pass of its own."""

    @staticmethod
    def forward(context: Any, data: Tensor, weight: Tensor) -> Tensor:
        context.save_for_backward(data, weight)
        return data @ weight

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        data, weight = context.saved_tensors
        return gradient @ weight.T, data.flatten(0, -2).T @ gradient.flatten(0, -2)


def _divisors(*numbers: int) -> list[int]:
    return [number for number in range(1, min(numbers) + 1) if not any(other % number for other in numbers)]


def _width(draw: Draw) -> int:
    return int(draw(st.sampled_from([4, 6, 8, 12, 16, 24])))


def _linear(draw: Draw, n: int, d: int) -> nn.Module:
    return nn.Linear(d, _width(draw), bias=draw(st.booleans()))


def _lazy(draw: Draw, n: int, d: int) -> nn.Module:
    return nn.LazyLinear(_width(draw))


def _normalised_weights(draw: Draw, n: int, d: int) -> nn.Module:
    rule = draw(st.sampled_from([parametrizations.weight_norm, parametrizations.spectral_norm, parametrizations.orthogonal]))
    layer: nn.Module = rule(nn.Linear(d, _width(draw)))
    return layer


def _convolution(draw: Draw, n: int, d: int) -> nn.Module:
    width, kernel = _width(draw), draw(st.sampled_from([1, 2, 3, 5]))
    groups, mode = draw(st.sampled_from(_divisors(d, width))), draw(st.sampled_from(["zeros", "circular", "replicate"]))
    if draw(st.booleans()):
        return ChannelsFirst(nn.Conv1d(d, width, kernel, padding="same", groups=groups, padding_mode=mode))
    stride, dilation = draw(st.sampled_from([1, 2])), draw(st.sampled_from([1, 2]))
    padding = dilation * (kernel - 1)
    return ChannelsFirst(nn.Conv1d(d, width, kernel, stride, padding, dilation, groups, padding_mode="zeros"))


def _transposed_convolution(draw: Draw, n: int, d: int) -> nn.Module:
    width, kernel, stride = _width(draw), draw(st.sampled_from([1, 2, 3, 4])), draw(st.sampled_from([1, 2]))
    groups = draw(st.sampled_from(_divisors(d, width)))
    return ChannelsFirst(nn.ConvTranspose1d(d, width, kernel, stride, groups=groups))


def _picture_convolution(draw: Draw, n: int, d: int) -> nn.Module:
    channels = draw(st.sampled_from([2, 4]))
    layers = [
        nn.Conv2d(1, channels, 3, padding=1),
        nn.Conv2d(channels, channels, 3, padding=1, groups=draw(st.sampled_from([1, channels]))),
    ]
    return Picture(nn.Sequential(*layers, nn.ReLU()))


def _recurrent(draw: Draw, n: int, d: int) -> nn.Module:
    kind, two_ways, layers = draw(st.sampled_from([nn.LSTM, nn.GRU, nn.RNN])), draw(st.booleans()), draw(st.sampled_from([1, 2]))
    projected = {"proj_size": 3} if kind is nn.LSTM and draw(st.booleans()) else {}
    return FirstOf(kind(d, _width(draw), num_layers=layers, batch_first=True, bidirectional=two_ways, **projected))


def _cell(draw: Draw, n: int, d: int) -> nn.Module:
    return Stepping(draw(st.sampled_from([nn.LSTMCell, nn.GRUCell, nn.RNNCell]))(d, _width(draw)))


def _attention(draw: Draw, n: int, d: int) -> nn.Module:
    return FirstOf(nn.MultiheadAttention(d, draw(st.sampled_from(_divisors(d))), batch_first=True, bias=draw(st.booleans())), attends=True)


def _encoder(draw: Draw, n: int, d: int) -> nn.Module:
    return nn.TransformerEncoderLayer(
        d,
        draw(st.sampled_from(_divisors(d))),
        _width(draw),
        activation=draw(st.sampled_from(["relu", "gelu"])),
        batch_first=True,
        norm_first=draw(st.booleans()),
    )


def _fused_attention(draw: Draw, n: int, d: int) -> nn.Module:
    heads, causal = draw(st.sampled_from(_divisors(d))), draw(st.booleans())

    def attend(data: Tensor, weight: Tensor) -> Tensor:
        query, key, value = (data @ weight).unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(query, key, value, is_causal=causal).transpose(1, 2).flatten(2)

    return Function(attend, (d, 3 * d))


def _bilinear(draw: Draw, n: int, d: int) -> nn.Module:
    return Function(lambda data, weight: F.bilinear(data, data.flip(1), weight), (_width(draw), d, d))


def _einsum(draw: Draw, n: int, d: int) -> nn.Module:
    width = _width(draw)
    functions: list[tuple[Callable[..., Tensor], tuple[tuple[int, ...], ...]]] = [
        (lambda x, w: torch.einsum("bnd,de->bne", x, w), ((d, width),)),
        (lambda x, w: torch.einsum("...d,ed", x, w), ((width, d),)),
        (lambda x, u, v: torch.einsum("bnd,dr,re->bne", x, u, v), ((d, 3), (3, width))),
        (lambda x, w: torch.einsum("bnd,mn->bmd", x, w), ((n, n),)),
        (lambda x: torch.einsum("...id,...jd->...ij", x, x), ()),
        (lambda x, w: torch.einsum("bnd,d->bn", x, w)[..., None] * x, ((d,),)),
        (lambda x: torch.einsum("bnd,bmd,bme->bne", x, x, x), ()),
    ]
    function, shapes = draw(st.sampled_from(functions))
    return Function(function, *shapes)


def _product(draw: Draw, n: int, d: int) -> nn.Module:
    width = _width(draw)
    functions: list[tuple[Callable[..., Tensor], tuple[tuple[int, ...], ...]]] = [
        (lambda x, w: x @ w, ((d, width),)),
        (lambda x, w: w @ x, ((n, n),)),
        (lambda x, v: (x @ v).sigmoid()[..., None] * x, ((d,),)),
        (lambda x, u, v: x @ (u @ v), ((d, 5), (5, width))),
        (lambda x, w: torch.tensordot(x, w, dims=1), ((d, width),)),
        (lambda x, w, b: torch.baddbmm(b, x, w.expand(len(x), -1, -1)), ((d, width), (1, 1, width))),
        (lambda x, w, b: torch.addmm(b, x.flatten(0, 1), w).unflatten(0, (len(x), -1)), ((d, width), (width,))),
        (lambda x, u, v: torch.linalg.multi_dot([x.flatten(0, 1), u, v]).unflatten(0, (len(x), -1)), ((d, 3), (3, width))),
        (lambda x, w: torch.inner(x, w), ((width, d),)),
        (lambda x, w: _Product.apply(x, w), ((d, width),)),
        (lambda x, w: torch.vmap(lambda one: x @ one)(w).mean(0), ((3, d, width),)),
        (lambda x, w: torch.vmap(lambda one: one @ w)(x), ((d, width),)),
        (lambda x: (torch.cdist(x, x).neg().softmax(-1)) @ x, ()),
        (lambda x, w: F.conv1d(x.transpose(1, 2), w, padding=1).transpose(1, 2), ((width, d, 3),)),
        (lambda x, w: torch.kron(x.mean(1)[:, :2].sum(), w) + x[..., :1], ((1, d),)),
    ]
    function, shapes = draw(st.sampled_from(functions))
    return Function(function, *shapes)


def _complex(draw: Draw, n: int, d: int) -> nn.Module:
    def mix(data: Tensor, weight: Tensor) -> Tensor:
        spectrum = torch.fft.rfft(data, dim=1)
        mixed: Tensor = torch.fft.irfft(torch.einsum("bkd,kde->bke", spectrum, weight), n=data.shape[1], dim=1)
        return mixed

    if draw(st.booleans()):
        return Function(mix, (n // 2 + 1, d, d), dtype=torch.cfloat)
    return Function(lambda data: torch.fft.fft2(data).real)


def _rescaling(draw: Draw, n: int, d: int) -> nn.Module:
    layers: list[nn.Module] = [
        nn.LayerNorm(d),
        nn.RMSNorm(d),
        ChannelsFirst(nn.BatchNorm1d(d)),
        ChannelsFirst(nn.GroupNorm(draw(st.sampled_from(_divisors(d))), d)),
        ChannelsFirst(nn.InstanceNorm1d(d)),
        nn.Dropout(0.3),
        nn.AlphaDropout(0.3),
    ]
    return draw(st.sampled_from(layers))  # type: ignore[no-any-return]


def _elementwise(draw: Draw, n: int, d: int) -> nn.Module:
    layers: list[nn.Module] = [
        *(nn.GELU(), nn.ReLU(), nn.SiLU(), nn.Softplus(), nn.Softmax(-1), nn.PReLU(), nn.Hardswish(), nn.Mish(), nn.Tanhshrink()),
        Function(lambda data: F.normalize(data, dim=-1)),
        Function(lambda data: data.cumsum(1)),
        Function(lambda data: data.sort(1).values),
        Function(lambda data: data.roll(1, 1)),
    ]
    return draw(st.sampled_from(layers))  # type: ignore[no-any-return]


def _resizing(draw: Draw, n: int, d: int) -> nn.Module:
    layers: list[nn.Module] = [
        ChannelsFirst(nn.AvgPool1d(2, ceil_mode=True)),
        ChannelsFirst(nn.MaxPool1d(2, ceil_mode=True)),
        ChannelsFirst(nn.AdaptiveAvgPool1d(draw(st.sampled_from([3, 8])))),
        ChannelsFirst(nn.LPPool1d(2, 2, ceil_mode=True)),
        *([ChannelsFirst(nn.Upsample(scale_factor=2, mode=draw(st.sampled_from(["nearest", "linear"]))))] if n <= 2 * TOKENS else []),
        ChannelsFirst(nn.ConstantPad1d(1, 0.5)),
        *([nn.GLU()] if d % 2 == 0 and d > 4 else []),
        Function(lambda data: data.unfold(1, 1, 1).squeeze(-1)),
    ]
    return draw(st.sampled_from(layers))  # type: ignore[no-any-return]


LEAVES: tuple[Maker, ...] = (
    *(_linear, _lazy, _normalised_weights, _convolution, _transposed_convolution, _picture_convolution, _recurrent, _cell, _attention),
    *(_encoder, _fused_attention, _bilinear, _einsum, _product, _complex, _rescaling, _elementwise, _resizing),
)


def _frozen(part: nn.Module) -> nn.Module:
    return part.requires_grad_(False)


def _beside_its_input(part: nn.Module) -> nn.Module:
    return Beside(part, nn.Identity())


WRAPPERS: tuple[Callable[[nn.Module], nn.Module], ...] = (
    *(Residual, Twice, _beside_its_input, WithoutGradient, _frozen, nn.Sequential, WithGivenWeights),
    functools.partial(RunAgain, reentrant=False),
    functools.partial(RunAgain, reentrant=True),
)


KEEPING = (Residual, Twice, _beside_its_input)
"""Wrappers of parts that keep the shape of their data."""
MADE: list[nn.Module] = []
"""The model that `made` builds."""


def made() -> nn.Module:
    """Build the model; one with lazy layers on the CPU, which they could not leave."""
    model = copy.deepcopy(MADE[0])
    return model if is_lazy(model) else model.to(torch.get_default_device())


@st.composite
def models(draw: Draw) -> nn.Module:
    """A model with its weights drawn, in training; what its parts make of sizes is found by calling them."""
    torch.manual_seed(0)
    width = _width(draw)
    parts: list[nn.Module] = [nn.Linear(PATCH_DIM, width)]
    data = parts[0](torch.randn(2, TOKENS, PATCH_DIM)).detach()
    for _ in range(draw(st.integers(1, MOST_PARTS))):
        part = draw(st.sampled_from(LEAVES))(draw, *data.shape[1:])
        if draw(st.integers(0, 3)) == 0 and not isinstance(part, nn.LazyLinear):
            wrap = draw(st.sampled_from(WRAPPERS))
            if wrap not in KEEPING or _result(part, data).shape == data.shape:
                part = wrap(part)
        result = _result(part, data)
        if result.shape[1] <= 4 * TOKENS and result.shape[2] <= 64:
            parts.append(part)
            data = result
    return nn.Sequential(*parts, Function(lambda data: data.mean(1)), nn.Linear(data.shape[2], CLASSES))


def _result(part: nn.Module, data: Tensor) -> Tensor:
    """Call a copy: a lazy part stays lazy."""
    with torch.no_grad():
        result: Tensor = copy.deepcopy(part)(data)
    return result
