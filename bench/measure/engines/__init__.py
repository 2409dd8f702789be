"""An engine executes a model. One engine per file, chosen as `name+option=value`.

This module is the contract and imports no torch. The file of an engine holds:

`Config`: the options, as a frozen dataclass.
`why_unsupported(config, workload)`: why the engine cannot run a workload; empty if it can.
`prepare(model, data, config, *, trains)`: the model, ready to run, as a `Prepared`.
`HIDES_OPERATORS`: whether torch's dispatch modes cannot see individual operators.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

from bench import catalog
from bench.spec import OptionValue, RequestError, Workload
from models.layers.options import option_text, read_options

if TYPE_CHECKING:
    from torch import Tensor, nn

EAGER = "eager"
Call = Callable[[], "Tensor"]
Facts = Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class EngineChoice:
    """An engine and its options, such as `compile+mode=max-autotune`."""

    name: str
    options: tuple[tuple[str, OptionValue], ...] = ()

    @property
    def text(self) -> str:
        return "+".join((self.name, *(f"{name}={option_text(value)}" for name, value in self.options)))

    @property
    def engine(self) -> ModuleType:
        return catalog.load("engines", self.name)

    @property
    def config(self) -> Any:
        """The engine's `Config`. Raises ValueError for a wrong option."""
        return self.engine.Config(**dict(self.options))


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A model ready to run.

    `forward`: replaces the model.
    `wrap`: wraps a whole step, which in training includes the backward pass and the optimizer.
    `facts`: after the first step, returns columns on the kernels that really ran, `engine_effective` among them.
    `replays`: CUDA graphs are replayed; their memory was allocated when they were recorded.
    `is_graph`: a whole step is one graph.
    """

    forward: Callable[[Tensor], Tensor]
    wrap: Callable[[Call], Call] = lambda call: call
    facts: Callable[[], Facts] = dict
    replays: bool = False
    is_graph: bool = False


def parse_engine(text: str) -> EngineChoice:
    """Parse an entry of `--engine`.

    Options at their default are dropped and the others sorted, so that equal engines have equal names.
    """
    name, *settings = text.split("+")
    catalog.plugin("engines", name)
    known = {option.name: option for option in catalog.options(name, "engines")}
    given = read_options(f"engine {name}", settings, known.values())
    options = sorted((key, value) for key, value in given.items() if value != known[key].default)
    choice = EngineChoice(name=name, options=tuple(options))
    try:
        choice.config  # noqa: B018  # it checks the options
    except ValueError as error:
        raise RequestError(f"engine {text!r}: {error}", "see: bench list engines") from error
    return choice


def why_unsupported(workload: Workload) -> str:
    """Return why the engine cannot run a workload; empty if it can."""
    choice = parse_engine(workload.engine)
    return str(choice.engine.why_unsupported(choice.config, workload))


def hides_operators(engine: str) -> bool:
    return bool(parse_engine(engine).engine.HIDES_OPERATORS)


def prepare(engine: str, model: nn.Module, data: Tensor, *, trains: bool) -> Prepared:
    choice = parse_engine(engine)
    prepared: Prepared = choice.engine.prepare(model, data, choice.config, trains=trains)
    return prepared
