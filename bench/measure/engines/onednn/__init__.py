"""Run matrix products on a CPU by oneDNN instead of MKL.

Each call uses the faster of the two, chosen when it first runs. `engine_effective` tells how many calls of each kind run by which
implementation (`packed`: by oneDNN with weights in its own layout; `torch`: as without the engine), and in pieces of how many samples. The
choice is by timing, so two processes may choose differently. The operators are torch's own, but private.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.measure.engines import Facts, Prepared

if TYPE_CHECKING:
    from torch import Tensor, fx, nn

    from bench.measure.engines.onednn.site import Site
    from bench.spec import Workload

HIDES_OPERATORS = True
DTYPES = ("fp32", "bf16")


@dataclass(frozen=True, kw_only=True)
class Config:
    """This engine has no options."""


def why_unsupported(config: Config, workload: Workload) -> str:  # noqa: ARG001  # the signature of every engine
    if workload.device != "cpu":
        return "it needs --device cpu"
    if workload.dtype == "bf16" and workload.phase == "train":
        return "in bf16 it needs --phase infer"
    return "" if workload.dtype in DTYPES else f"it needs --dtype {' or '.join(DTYPES)}, not {workload.dtype}"


def prepare(model: nn.Module, data: Tensor, config: Config, *, trains: bool) -> Prepared:  # noqa: ARG001
    """Compile the model with a backend that replaces matrix products.

    The front end of torch.compile finds the calls in any model; the resulting graph runs operator by operator. Raises RuntimeError if this
    build of torch has no such products.
    """
    from bench.measure.engines.compile import graphs_since, graphs_so_far
    from bench.measure.engines.onednn import product
    from bench.measure.engines.onednn.direct import Direct
    from bench.measure.engines.onednn.pieces import Pieces, joins_samples
    from bench.measure.engines.onednn.rewrite import rewrite

    if reason := product.why_unsupported(data.dtype):
        raise RuntimeError(f"engine onednn cannot run: {reason}")
    sites: dict[int, list[Site]] = {}  # by the size of the piece of the batch that they process
    choices: dict[object, str] = {}

    def replace(graph: fx.GraphModule) -> None:
        sites.setdefault(pieces.running, []).extend(rewrite(graph, choices))

    def num_rows() -> int:
        return max((site.num_rows for site in sites.get(len(data), ())), default=1)

    def facts() -> Facts:
        split = f"in pieces of {pieces.running}" if 0 < pieces.running < len(data) else ""
        return _facts(sites.get(pieces.running, ()), split, graphs_since(before))

    before = graphs_so_far()
    pieces = Pieces(Direct(model, replace), model, num_rows, may_split=not (trains and joins_samples(model)))
    return Prepared(forward=pieces, facts=facts)


def _facts(sites: Sequence[Site], split: str, compiled: str) -> Facts:
    """Describe the implementation of every call site.

    Example: `linear: 24 packed, 2 torch; attention: 6 onednn; 1 graph, 0 graph breaks`. `attention_effective` is added if oneDNN
    computes attention.
    """
    words = []
    for kind in dict.fromkeys(site.kind for site in sites):
        chosen = Counter(site.choice for site in sites if site.kind == kind)
        words.append(f"{kind}: {', '.join(f'{count} {choice}' for choice, count in sorted(chosen.items()))}")
    by_onednn = any(site.kind == "attention" and site.choice == "onednn" for site in sites)
    return {
        "engine_effective": "; ".join(filter(None, (*words, split, compiled))),
        **({"attention_effective": "onednn"} if by_onednn else {}),
    }
