"""A long convolution mixes all tokens by learned filters, between two gates.

Its cost is n log n. It is Hyena's operator of order 2 (Poli et al., arXiv 2302.10866, Sec. 3), also in a form that reads both directions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.layers.autocast import without_autocast
from models.layers.cost import Cost, N, Polynomial, Term, constant, linear
from models.layers.fft_convolution import convolve_by_fft, convolve_by_products, fft_length
from models.layers.initialise import initialise_linears
from models.layers.padding import zero_padding
from models.layers.shape import require_choices, require_sizes
from models.layers.short_convolution import CONVOLUTIONS, ShortConvolution, short_convolution

REFERENCE_OPTIONS = {"convolution": "products"}
FFT, PRODUCTS = "fft", "products"
KERNELS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {FFT: convolve_by_fft, PRODUCTS: convolve_by_products}
"""Formulations of the long convolution: `(batch, channels, n)`, `(channels, taps)` -> `(batch, channels, n)`.

They give the same answers. `products` multiplies by a dense Toeplitz matrix per channel: n^2 multiply-adds instead of FFTs. It is the plain form,
not the reference that FLOP counters need, because FFTs are counted as such.
"""
SHORT_TAPS = 3
BANDS = 16
"""Pairs of a cosine and a sine among the features of a distance: 1 to 16 periods over the sequence."""
NUM_FEATURES = 1 + 2 * BANDS
SINE_FREQUENCY = 10.0
"""Factor inside the sine activations: filters are rough enough to pick out single tokens (Sec. 3.3)."""
FADED = 0.01
SLOWEST, FASTEST = 1.5, 0.3
"""Distances at which the windows of the last and the first channel have faded to `FADED`, in sequence lengths."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """Sizes and options of the long convolution.

    `filter_width`: hidden width of the network that computes the filters.
    `kernel`: `fft`, or `products` with dense matrices, which takes n^2; both give the same answers.
    `causal`: a token reads itself and earlier ones; otherwise filters have taps on both sides, 2 n - 1.
    `convolution`: formulation of the short convolution, `native` or `products`; both give the same answers.

    Raises ValueError for an unknown value or an invalid size.
    """

    seq_len: int
    width: int
    filter_width: int = 64
    kernel: str = "fft"
    causal: bool = False
    convolution: str = "native"

    def __post_init__(self) -> None:
        require_sizes(self, "seq_len", "width", "filter_width")
        require_choices(self, kernel=KERNELS, convolution=CONVOLUTIONS)


class ImplicitFilter(nn.Module):
    """Compute the taps of a filter per channel from their distance.

    `()` -> `(width, taps)`, taps by distance, for `convolve_by_fft`. A tap is a network of the features of its distance, times a window that
    fades exponentially, faster in the first channels. At distance zero a weight per channel is added: the skip of the operator.

    Unlike the paper's, each window has unit energy over an endless sequence, so fresh filters keep the scale of the tokens at any n.

    `period`: the distance at which features repeat and by which windows are scaled. It is stored with the weights, so that a model with fewer
    tokens takes the same filters.
    """

    period: Tensor
    distances: Tensor

    def __init__(self, seq_len: int, width: int, hidden: int, *, causal: bool) -> None:
        super().__init__()
        self.causal = causal
        self.expand = nn.Linear(NUM_FEATURES, hidden)
        self.inner = nn.Linear(hidden, hidden)
        self.contract = nn.Linear(hidden, width, bias=False)
        self.skip = nn.Parameter(torch.ones(width))
        self.register_buffer("period", torch.tensor(seq_len))  # an integer, which stays exact in half types
        self.register_buffer("distances", torch.arange(0 if causal else 1 - seq_len, seq_len), persistent=False)

    def forward(self) -> Tensor:
        """Return the taps, in fp32 for half types, because phases need it."""
        with without_autocast(self.skip):
            return self._taps()

    def _taps(self) -> Tensor:
        dtype = torch.promote_types(self.skip.dtype, torch.float32)
        time = self.distances.to(dtype) / self.period.to(dtype)
        hidden = _features(time)
        for layer in (self.expand, self.inner):
            hidden = torch.sin(SINE_FREQUENCY * F.linear(hidden, layer.weight.to(dtype), layer.bias.to(dtype)))
        taps = F.linear(hidden, self.contract.weight.to(dtype)) * self._window(time)
        zero = 0 if self.causal else len(time) // 2
        skip = F.pad(self.skip.to(dtype)[None], (0, 0, zero, len(time) - 1 - zero))
        return (taps + skip).transpose(0, 1)

    def _window(self, time: Tensor) -> Tensor:
        """Return exp(-rate |time|), scaled to a sum of squares of one over all distances: `(taps, width)`."""
        width = len(self.skip)
        fades = torch.linspace(FASTEST, SLOWEST, width, dtype=time.dtype, device=time.device)
        rates = -math.log(FADED) / fades
        per_tap = rates / self.period
        # one over the sum of exp(-2 x rate x distance) over all distances, on one side or on both
        scale = -torch.expm1(-2 * per_tap) if self.causal else torch.tanh(per_tap)
        return torch.exp(-rates * time.abs()[:, None]) * scale.sqrt()


def _features(time: Tensor) -> Tensor:
    """Return a distance and its sines and cosines in all bands: `(taps,)` -> `(taps, features)`."""
    bands = torch.arange(1, BANDS + 1, dtype=time.dtype, device=time.device)
    angles = 2 * math.pi * time[:, None] * bands
    return torch.cat((time[:, None], angles.cos(), angles.sin()), dim=-1)


class LongConvolution(nn.Module):
    """Mix tokens by x2 * (filter convolved with (x1 * v)).

    `(batch, n, width)` -> `(batch, n, width)`. x1, x2 and v are projections of the tokens, each convolved over three neighbouring tokens: over
    itself and the token on either side, or with `causal` over itself and the two before it.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.convolve = KERNELS[config.kernel]
        self.expand = nn.Linear(config.width, 3 * config.width)
        self.short = ShortConvolution(3 * config.width, SHORT_TAPS, convolution=config.convolution, centred=not config.causal)
        self.filter = ImplicitFilter(config.seq_len, config.width, config.filter_width, causal=config.causal)
        self.contract = nn.Linear(config.width, config.width)

    def forward(self, tokens: Tensor, valid: Tensor | None = None) -> Tensor:
        # zeros before the projection too, so that its gradient takes no NaN
        projected = zero_padding(self.expand(zero_padding(tokens, valid)), valid)
        first, second, value = self.short(projected).chunk(3, dim=-1)
        value = zero_padding(first * value, valid)
        mixed = self.convolve(value.transpose(1, 2), self.filter()).transpose(1, 2)
        return self.contract(second * mixed)


def build(config: Config) -> LongConvolution:
    return initialise_linears(LongConvolution(config))


def cost(config: Config) -> Cost:
    """Return the cost of `LongConvolution`.

    The filters are computed once for a batch, so at batch 1: their network takes its multiply-adds per tap, of which there are 2 n - 1, or n
    with `causal`. The long convolution takes FFTs of every channel forth and back and of every filter, or n^2 multiply-adds per channel.

    Read token by token, it keeps the gated values of all tokens, and the short convolution its last inputs.
    """
    width, hidden = config.width, config.filter_width
    taps: Polynomial = N if config.causal else N * 2 + constant(-1)
    network = (
        linear("expand", NUM_FEATURES, hidden, tokens=taps, backward_products=1),  # features need no gradient
        linear("inner", hidden, hidden, tokens=taps),
        linear("contract", hidden, width, tokens=taps, bias=False),
        Term(name="skip", params=constant(width)),
    )
    convolution = (
        Term(name="convolution", ffts=3 * width, fft_length=fft_length(config.seq_len), state=N * width)
        if config.kernel == FFT
        else Term(name="convolution", macs=N * N * width, state=N * width)
    )
    return (
        Cost((linear("expand", width, 3 * width), short_convolution("short", 3 * width, SHORT_TAPS)))
        + Cost(network).within("filter")
        + Cost((convolution, linear("contract", width, width)))
    )
