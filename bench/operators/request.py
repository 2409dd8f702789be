"""Convert flags of `bench kernels` to a checked request and cases.

Imports no torch.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bench import catalog
from bench.measure import environment
from bench.operators import ATTENTION, DEFAULT_OPERATORS, KERNELS, PHASES, Case
from bench.spec import RequestError

DEFAULTS: dict[str, dict[str, Any]] = {
    "cpu": {"seq_lens": (65, 257, 1025), "tokens": 2048, "channels": (256,), "head_widths": (32,), "dtypes": ("fp32",), "blocks": 15},
    "cuda": {
        "seq_lens": (256, 257, 1024, 1025, 4096, 4097),
        "tokens": 16384,
        "channels": (768,),
        "head_widths": (64,),
        "dtypes": ("bf16",),
        "blocks": 9,
    },
}
"""Defaults of flags, by device.

On a GPU, each length n = 2^k + 1 (with a class token) is paired with the aligned 2^k.
"""


@dataclass(frozen=True, kw_only=True)
class OperatorRequest:
    """A checked request of `bench kernels`.

    `kernels`: by operator; the others are compared with the first.
    `tokens`: tokens per call, over the batch.
    `blocks`: how often each kernel is timed.
    `cold`: flush the GPU's L2 cache before each call.
    """

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
        """Yield the cases, with about equal tokens per call.

        Batches are rounded to whole samples. Attention gets one case per head width, with the same channels over all heads.
        """
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


def request_of(
    *,
    operators: Sequence[str] = DEFAULT_OPERATORS,
    kernels: Sequence[str] = (),
    device: str = "auto",
    phases: tuple[str, ...] = PHASES,
    threads: int = 1,
    cold: bool = False,
    **given: Any,
) -> OperatorRequest:
    """Return the checked request of these flags.

    An empty flag or None takes the device's default. Raises RequestError for a request that cannot be timed here.
    """
    found = environment.resolve_device(device)
    if threads > environment.num_cores():
        raise RequestError(f"--threads {threads} is more than the {environment.num_cores()} cores here", "try --threads 1")
    if cold and found != "cuda":
        raise RequestError("--cold flushes a GPU's L2 cache; the device is cpu", "leave --cold out")
    chosen = DEFAULTS[found] | {name: value for name, value in given.items() if value}
    tokens, longest = given.get("tokens"), max(chosen["seq_lens"])
    if tokens and tokens < longest:
        raise RequestError(f"--tokens {tokens} is less than one sample of n = {longest}", f"try --tokens {longest}, or shorter --seq")
    request = OperatorRequest(kernels=_kernels(operators, kernels), phases=phases, device=found, threads=threads, cold=cold, **chosen)
    if "tf32" in request.dtypes and found != "cuda":
        raise RequestError("--dtype tf32 needs a CUDA device; the device is cpu", "try --dtype fp32,bf16")
    if given.get("head_widths") and ATTENTION not in request.kernels:
        raise RequestError("--head-width needs the operator attention", "add attention to --operators, or leave --head-width out")
    for width, per_head in itertools.product(request.channels, request.head_widths if ATTENTION in request.kernels else ()):
        if width % per_head:
            raise RequestError(f"--channels {width} is not a multiple of --head-width {per_head}", f"try --channels {per_head * 8}")
    return request


def _kernels(operators: Sequence[str], names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the named kernels of each operator, or all.

    Kernels keep the order of `names`.
    """
    if not names:
        return {operator: KERNELS[operator] for operator in operators}
    known = tuple(dict.fromkeys(itertools.chain.from_iterable(KERNELS[operator] for operator in operators)))
    if unknown := [name for name in names if name not in known]:
        raise catalog.unknown("value of --kernels:", unknown[0], known, "bench kernels --help")
    found = {operator: tuple(name for name in names if name in KERNELS[operator]) for operator in operators}
    return {operator: chosen for operator, chosen in found.items() if chosen}
