"""What each mixer costs per layer and how many layers lie between two tokens, as a table of docs/mixers.md.

    python -m tests.docs.paths

The costs are those of `cost`, as polynomials in n and the width d. The layers are counted by gradients: of as few layers as let the first token
change the last. Vaswani et al. compare these two (arXiv 1706.03762, Table 1).
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from bench import catalog
from models.layers.cost import Cost
from models.metaformer import mixer_names

NUM_TOKENS = 65
LONG = 4096
"""A multiple of all windows and chunks, at which costs have no remainder."""
WIDTHS = (64, 128, 192)
WIDTH = 16
VARIANTS = ("attention:window=8",)
POWERS = {2: "n²", 1: "n"}
OF_WIDTH = {2: "d²", 1: "d"}
HEADER = f"| mixer | multiply-adds of a layer | layers from the first to the last of {NUM_TOKENS} tokens |\n|---|---|---:|"


def config_of(mixer: str, *, seq_len: int, width: int) -> Any:
    """The config of `name` or `name:option=number`."""
    name, *options = mixer.split(":")
    given = {key: int(value) for key, _, value in (option.partition("=") for option in options)}
    return catalog.load("mixers", name).Config(seq_len=seq_len, width=width, **given)


def layers_between(mixer: str, num_tokens: int = NUM_TOKENS) -> int | None:
    """The fewest layers through which the first token changes the last; None if none do."""
    config = config_of(mixer, seq_len=num_tokens, width=WIDTH)
    torch.manual_seed(0)
    built: nn.Module = catalog.load("mixers", mixer.partition(":")[0]).build(config).double()
    first = torch.randn(1, num_tokens, WIDTH, dtype=torch.float64, requires_grad=True)
    tokens = first
    for number in range(1, num_tokens):
        tokens = tokens + built(F.layer_norm(tokens, (WIDTH,)))
        (gradient,) = torch.autograd.grad(tokens[0, -1].square().sum(), first, retain_graph=True)
        if gradient[0, 0].any():
            return number
    return None


def cost_text(mixer: str) -> str:
    """The multiply-adds as a sum of powers of n and d, the largest in n first, without what grows with n or d alone; transforms are named."""
    found: list[Cost] = [
        catalog.load("mixers", mixer.partition(":")[0]).cost(config_of(mixer, seq_len=LONG, width=width)) for width in WIDTHS
    ]
    terms = [
        f"{'' if factor == 1 else f'{factor} '}{tokens} {channels}"
        for power, tokens in POWERS.items()
        for degree, channels in OF_WIDTH.items()
        if (factor := _in_width([each.macs().degree(power) for each in found])[degree])
    ]
    return " + ".join([*terms, *(["FFTs, n log n"] if found[0].fft_flops() else [])]) or "none"


def _in_width(values: list[int]) -> list[Fraction]:
    """Coefficients of the powers of the width in a polynomial of degree two, from its values at `WIDTHS`."""
    (x0, x1, x2), (y0, y1, y2) = WIDTHS, map(Fraction, values)
    slope = (y1 - y0) / (x1 - x0)
    second = ((y2 - y1) / (x2 - x1) - slope) / (x2 - x0)
    first = slope - second * (x0 + x1)
    return [y0 - first * x0 - second * x0**2, first, second]


def table() -> str:
    rows = []
    for mixer in sorted((*mixer_names(), *VARIANTS)):
        layers = layers_between(mixer)
        rows.append(f"| `{mixer}` | {cost_text(mixer)} | {'never' if layers is None else layers} |")
    return "\n".join((HEADER, *rows))


if __name__ == "__main__":
    print(table())  # noqa: T201
