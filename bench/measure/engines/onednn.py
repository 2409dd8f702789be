"""Matrix products by oneDNN on a CPU, where torch would call MKL: the faster of the two at every call, chosen when it first runs."""

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
    """prepack: in inference the weights are also kept in oneDNN's own layout, a second copy of them. split: a large batch may be run in pieces that
    fit a cache."""

    prepack: bool = True
    split: bool = True


def refusal(config: Config, workload: Workload) -> str:  # noqa: ARG001  # as the other engines'
    if workload.device != "cpu":
        return "oneDNN's products are for --device cpu"
    if workload.dtype == "bf16" and workload.phase == "train":
        return "in bf16 it is for inference (--phase infer)"
    return "" if workload.dtype in DTYPES else f"it replaces products in {' and '.join(DTYPES)}, not in {workload.dtype}"


def prepare(model: nn.Module, data: Tensor, config: Config, *, trains: bool) -> Prepared:  # as the other engines'
    """Through the front end of torch.compile, which finds the calls in any model; what it hands over then runs operator by operator.

    Raises RuntimeError where torch has no such products.
    """
    import torch

    from bench.measure.engines.compile import graphs_so_far
    from bench.measure.onednn import product
    from bench.measure.onednn.direct import Direct
    from bench.measure.onednn.pieces import Pieces, joins_samples
    from bench.measure.onednn.rewrite import rewrite
    from bench.measure.onednn.site import Choices

    if reason := product.refusal(data.dtype):
        raise RuntimeError(f"engine onednn cannot run: {reason}")
    sites: dict[int, list[Site]] = {}  # by the size of the piece that they run
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
    """`linear: 24 packed, 2 torch; attention: 6 onednn; 1 graph, 0 graph breaks`, and the kernel of attention where there was one."""
    kinds = dict.fromkeys(site.kind for site in sites)
    words = [f"{kind}: {_counted(site.choice for site in sites if site.kind == kind)}" for kind in kinds]
    by_onednn = any(site.kind == "attention" and site.choice == "onednn" for site in sites)
    return {
        "engine_effective": "; ".join(filter(None, (*words, split, compiled))),
        **({"attention_effective": "onednn"} if by_onednn else {}),
    }


def _counted(choices: Iterable[str]) -> str:
    return ", ".join(f"{count} {choice}" for choice, count in sorted(Counter(choices).items()))
