"""From the flags of `bench kernels` to a checked request and its cases. Imports no torch."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench import catalog
from bench.measure import environment
from bench.operators import ATTENTION, GATE, ITEM_BYTES, KERNELS, PHASES, Case
from bench.planning.request import MAX_COUNT, MAX_SEQ_LEN, MAX_SIZE, MAX_TOKENS, parse_whole_numbers, split_list, whole_number
from bench.spec import DEVICES, RequestError

HELP = "bench kernels --help"
ALL_KERNELS = tuple(dict.fromkeys(itertools.chain.from_iterable(KERNELS.values())))


DEFAULTS = {
    "cpu": {"seq": "65,257,1025", "tokens": "2048", "channels": "256", "head_width": "32", "dtype": "fp32", "blocks": "15"},
    "cuda": {
        "seq": "256,257,1024,1025,4096,4097",
        "tokens": "16384",
        "channels": "768",
        "head_width": "64",
        "dtype": "bf16",
        "blocks": "9",
    },
}
"""By device, for flags that are not given. Each length of n = 2^k + 1, which a class token makes, has its aligned twin on a GPU."""
DEFAULT_OPERATORS = f"{GATE},{ATTENTION}"
MIN_BLOCKS = 2


@dataclass(frozen=True, kw_only=True)
class OperatorRequest:
    """`kernels`: by operator, the first being the one that the others are compared with. `cold`: flush the GPU's L2 cache before each call."""

    kernels: dict[str, tuple[str, ...]]
    seq_lens: tuple[int, ...]
    channels: tuple[int, ...]
    head_widths: tuple[int, ...]
    dtypes: tuple[str, ...]
    phases: tuple[str, ...]
    tokens: int
    device: str
    threads: int
    blocks: int
    cold: bool

    def cases(self) -> Iterator[Case]:
        """Equal tokens per call, as near as whole samples allow; attention once per head width, at the same channels over all heads."""
        for operator, dtype, channels in itertools.product(self.kernels, self.dtypes, self.channels):
            for head_width, phase, n in itertools.product(self.head_widths if operator == ATTENTION else (0,), self.phases, self.seq_lens):
                yield Case(
                    operator=operator,
                    phase=phase,
                    n=n,
                    batch=max(1, round(self.tokens / n)),
                    channels=channels,
                    head_width=head_width,
                    dtype=dtype,
                    device=self.device,
                )


def parse(
    *,
    operators: str = "",
    kernels: str = "",
    seq: str = "",
    tokens: str = "",
    channels: str = "",
    head_width: str = "",
    dtype: str = "",
    phase: str = "",
    device: str = "auto",
    threads: str = "1",
    blocks: str = "",
    cold: bool = False,
) -> OperatorRequest:
    """Check every flag; an empty one takes the default of the device. Raises RequestError for the first that is wrong."""
    chosen = _several("--operators", operators or DEFAULT_OPERATORS, tuple(KERNELS))
    (wanted_device,) = _several("--device", device, ("auto", *DEVICES))
    dtypes = _several("--dtype", dtype, tuple(ITEM_BYTES)) if dtype else ()
    found_device = environment.resolve_device(wanted_device)
    default = DEFAULTS[found_device]
    if cold and found_device != "cuda":
        raise RequestError("--cold flushes the L2 cache of a GPU, and the device is cpu", "leave --cold out")
    if "tf32" in dtypes and found_device != "cuda":
        raise RequestError("--dtype tf32 is a precision of CUDA devices, and the device is cpu", "try --dtype fp32,bf16")
    request = OperatorRequest(
        kernels=_kernels(chosen, kernels),
        seq_lens=parse_whole_numbers("--seq", seq or default["seq"], low=2, high=MAX_SEQ_LEN),
        channels=parse_whole_numbers("--channels", channels or default["channels"], low=1, high=MAX_SIZE),
        head_widths=parse_whole_numbers("--head-width", head_width or default["head_width"], low=1, high=MAX_SIZE),
        dtypes=dtypes or (default["dtype"],),
        phases=_several("--phase", phase or ",".join(PHASES), PHASES),
        tokens=whole_number("--tokens", tokens or default["tokens"], low=2, high=MAX_TOKENS),
        device=found_device,
        threads=whole_number("--threads", threads, low=1, high=environment.num_cores()),
        blocks=whole_number("--blocks", blocks or default["blocks"], low=MIN_BLOCKS, high=MAX_COUNT),
        cold=cold,
    )
    for width, per_head in itertools.product(request.channels, request.head_widths if ATTENTION in request.kernels else ()):
        if width % per_head:
            raise RequestError(f"--channels {width} is not a multiple of --head-width {per_head}", f"try --channels {per_head * 8}")
    return request


def _kernels(operators: Sequence[str], text: str) -> dict[str, tuple[str, ...]]:
    """Those asked for, in that order, of the operators that have them; all where none is asked for."""
    if not text:
        return {operator: KERNELS[operator] for operator in operators}
    wanted = _several("--kernels", text, tuple(name for name in ALL_KERNELS if any(name in KERNELS[operator] for operator in operators)))
    found = {operator: tuple(name for name in wanted if name in KERNELS[operator]) for operator in operators}
    return {operator: names for operator, names in found.items() if names}


def _several(flag: str, text: str, allowed: tuple[str, ...]) -> tuple[str, ...]:
    found = split_list(flag, text, allowed[0])
    for name in found:
        if name not in allowed:
            raise catalog.unknown(f"value of {flag}:", name, allowed, HELP)
    return found
