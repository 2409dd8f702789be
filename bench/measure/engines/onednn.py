"""Run matrix products on a CPU by oneDNN instead of MKL.

Each call site uses the faster of the two, chosen when it first runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench.measure.engines import Facts, Prepared

if TYPE_CHECKING:
    from torch import Tensor, fx, nn

    from bench.measure.onednn.site import Site
    from bench.spec import Workload

HIDES_OPERATORS = True
DTYPES = ("fp32", "bf16")


@dataclass(frozen=True, kw_only=True)
class Config:
    """Options of the oneDNN engine.

    `prepack`: in inference, keep a second copy of the weights in oneDNN's own layout.
    `split`: allow a large batch to run in pieces that fit a cache.
    """

    prepack: bool = True
    split: bool = True


def why_unsupported(config: Config, workload: Workload) -> str:  # noqa: ARG001  # the signature of every engine
    if workload.device != "cpu":
        return "it needs --device cpu"
    if workload.dtype == "bf16" and workload.phase == "train":
        return "in bf16 it needs --phase infer"
    return "" if workload.dtype in DTYPES else f"it needs --dtype {' or '.join(DTYPES)}, not {workload.dtype}"


def prepare(model: nn.Module, data: Tensor, config: Config, *, trains: bool) -> Prepared:
    """Compile the model with a backend that replaces matrix products.

    The front end of torch.compile finds the calls in any model; the resulting graph runs operator by operator. Raises
    RuntimeError if this build of torch has no such products.
    """
    import torch

    from bench.measure.engines.compile import graphs_so_far
    from bench.measure.onednn import product
    from bench.measure.onednn.direct import Direct
    from bench.measure.onednn.pieces import Pieces, joins_samples
    from bench.measure.onednn.rewrite import rewrite
    from bench.measure.onednn.site import Choices

    if reason := product.why_unsupported(data.dtype):
        raise RuntimeError(f"engine onednn cannot run: {reason}")
    sites: dict[int, list[Site]] = {}  # by the size of the piece of the batch that they process
    choices = Choices()

    def backend(graph: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        rewritten = rewrite(graph, choices, prepack=config.prepack and not trains)
        sites.setdefault(pieces.running, []).extend(rewritten.sites)
        direct.note(rewritten.run, inputs)
        return rewritten.run

    before = graphs_so_far()
    shares = joins_samples(model)
    direct = Direct(torch.compile(model, backend=backend, dynamic=False), model, keeps_statistics=shares)

    def num_rows() -> int:
        return max((site.num_rows for site in sites.get(len(data), ())), default=1)

    pieces = Pieces(direct, model, num_rows, may_split=config.split and not (trains and shares))

    def facts() -> Facts:
        split = f"in pieces of {pieces.size}" if pieces.size and pieces.size < len(data) else ""
        return _facts(sites.get(pieces.running, ()), split, graphs_so_far().since(before).text)

    return Prepared(forward=pieces, facts=facts)


def _facts(sites: Sequence[Site], split: str, compiled: str) -> Facts:
    """Describe the implementation of every call site.

    Example: `linear: 24 packed, 2 torch; attention: 6 onednn; 1 graph, 0 graph breaks`. `attention_effective` is added if oneDNN
    computes attention.
    """
    kinds = dict.fromkeys(site.kind for site in sites)
    words = [f"{kind}: {_count_by_name(site.choice for site in sites if site.kind == kind)}" for kind in kinds]
    by_onednn = any(site.kind == "attention" and site.choice == "onednn" for site in sites)
    return {
        "engine_effective": "; ".join(filter(None, (*words, split, compiled))),
        **({"attention_effective": "onednn"} if by_onednn else {}),
    }


def _count_by_name(choices: Iterable[str]) -> str:
    return ", ".join(f"{count} {choice}" for choice, count in sorted(Counter(choices).items()))
