"""Checks that timed steps compute equal outputs and gradients.

A peer is compared with our model at equal weights, an engine with the same model in eager mode.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench.measure.engines import EAGER, parse_engine
from bench.metrics import Measurement, Repeat, last_values
from bench.spec import Cell, Job, ModelSpec, Record

if TYPE_CHECKING:
    from torch import Tensor, nn

    from bench.measure.step import Step

REPEAT: Repeat = "once"
COLUMNS = ("output_error", "gradient_error", "equal_to", "equal", "differences")
NOT_NUMBERS = ("equal_to", "equal", "differences")
FP32_TOLERANCES, LOW_TOLERANCES = (1e-5, 1e-4), (3e-2, 1e-1)
"""Allowed relative differences of (outputs, gradients), in fp32 and below.

Differences are a share of the largest value.
"""
SMALLEST_SHARE = 1e-2
"""Smallest scale of a gradient's error, relative to the largest gradient.

Some gradients are zero except for rounding.
"""


@dataclass(frozen=True, kw_only=True)
class Answers:
    """Results of one pass.

    `outputs`: of the forward pass.
    `gradients`: of all parameters, from one fixed upstream gradient; empty outside the train phase.
    """

    outputs: Tensor
    gradients: Mapping[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class OutputReference:
    """A reference for a step's outputs and gradients.

    `prepare`: gives the step's model the reference's weights.
    `by_name`: renames the reference's gradients to the step's parameter names.
    `differences`: parts removed from a peer for the comparison but present when it is timed, in words.
    """

    name: str
    reference: nn.Module
    prepare: Callable[[nn.Module], None]
    by_name: Callable[[Mapping[str, Tensor]], Mapping[str, Tensor]]
    differences: str = ""


def measure(job: Job) -> Measurement:
    """Compare outputs and gradients with a reference on the cell's data.

    Weights are redrawn so that no output is zero. No optimizer step is made.

    A peer is compared, in its own engine, with our model that computes the same (`bench.peers.counterpart`). Any other model is compared with
    itself in eager mode. Eager mode has no reference, nor has a training step that is recorded and replayed, unless the model is a peer.

    In fp32, a result outside the tolerances is compared again, with the reference in float64: a sum over all rows of a large batch, such as torch's
    gradient of a normalisation's bias, may itself have a larger error than the result it judges.

    Raises ValueError if weights cannot be copied.
    """
    import torch

    from bench.measure.step import attention_backend, build_step

    cell = job.cell
    with torch.device(cell.workload.device):
        comparison = _comparison(cell)
    if comparison is None:
        return Measurement(values=dict.fromkeys(COLUMNS))
    with attention_backend(cell.workload.attention):
        step = build_step(cell, seed=job.settings.seed, prepare=comparison.prepare)
        found = _found(step, cell)
        expected = _answers(comparison.reference, comparison.reference, step.data, cell)
        result = {**errors(found, expected, comparison, cell.workload.dtype), "equal_to": comparison.name}
        if not result["equal"] and cell.workload.dtype == "fp32":
            exact = _exact_answers(cell, comparison, step.data)
            result = {**errors(found, exact, comparison, cell.workload.dtype), "equal_to": f"{comparison.name}, in float64"}
    return Measurement(values={**result, "differences": comparison.differences or None})


def summarise(records: Sequence[Record]) -> Mapping[str, Any]:
    """Return the columns as measured; None if not measured."""
    return last_values(records, COLUMNS)


def errors(found: Answers, expected: Answers, comparison: OutputReference, dtype: str) -> dict[str, Any]:
    """Return both errors and whether they are within the dtype's tolerances.

    Keys: `output_error`, `gradient_error` (None without gradients) and `equal`. A non-finite error becomes None, and `equal` is False.
    """
    output = _error(found.outputs, expected.outputs)
    gradient = _gradient_error(found.gradients, comparison.by_name(expected.gradients)) if expected.gradients else None
    allowed, allowed_gradient = FP32_TOLERANCES if dtype == "fp32" else LOW_TOLERANCES
    is_equal = output <= allowed and (gradient is None or gradient <= allowed_gradient)
    found_errors = {"output_error": output, "gradient_error": gradient}
    return {
        **{name: error if error is not None and math.isfinite(error) else None for name, error in found_errors.items()},
        "equal": is_equal,
    }


def _comparison(cell: Cell) -> OutputReference | None:
    from bench.measure.model import config_of, is_counted

    model, work = cell.model, cell.workload
    if is_counted(model) and (counterpart := config_of(model).counterpart):
        return _with_ours(cell, counterpart)
    # a recorded training step exposes no gradients, and it records eager mode itself
    if work.engine == EAGER or (work.phase == "train" and parse_engine(work.engine).name == "graph"):
        return None
    return _with_eager(cell)


def _with_ours(cell: Cell, counterpart: Any) -> OutputReference:
    from bench.measure.model import build_model
    from bench.peers.adapter import unadapted
    from bench.peers.counterpart import copy_weights, redraw
    from models.layers.shape import patch_of

    spec = ours_of(cell.model, counterpart)
    reference = build_model(spec)
    redraw(reference)
    channels = patch_of(spec.interface.patch_dim)[0]

    def prepare(model: nn.Module) -> None:
        copy_weights(reference, unadapted(model), counterpart, channels)

    def by_name(gradients: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        named = {name: counterpart.theirs(name) for name in gradients}
        return {theirs: counterpart.as_theirs(gradients[name], name, channels) for name, theirs in named.items() if theirs}

    placed = _placed(reference, cell)
    return OutputReference(name=spec.name, reference=placed, prepare=prepare, by_name=by_name, differences=counterpart.differences)


def ours_of(model: ModelSpec, counterpart: Any) -> ModelSpec:
    """Return the spec of our model with a peer's sizes and interface."""
    options = tuple(sorted(counterpart.options.items()))
    name = "+".join((counterpart.family, *(f"{key}={value}" for key, value in options)))
    return ModelSpec(name=name, family=counterpart.family, options=options, shape=model.shape, interface=model.interface)


def _with_eager(cell: Cell) -> OutputReference:
    from bench.measure.model import build_model
    from bench.peers.counterpart import redraw

    reference = build_model(cell.model)
    redraw(reference)
    weights = {name: tensor.clone() for name, tensor in reference.state_dict().items()}

    def prepare(model: nn.Module) -> None:
        model.load_state_dict(weights)

    return OutputReference(name=f"{cell.model.name}, eager", reference=_placed(reference, cell), prepare=prepare, by_name=dict)


def _placed(reference: nn.Module, cell: Cell) -> nn.Module:
    """Set the reference to the cell's precision and phase, as `build_step` does."""
    from bench.measure.step import PARAMETER_DTYPES, cast

    cast(reference, PARAMETER_DTYPES[cell.workload.dtype])
    return reference.train(cell.workload.phase == "train")


def _found(step: Step, cell: Cell) -> Answers:
    """Return the results of the step.

    In the infer phase these are the results of the second call, because an engine may record the first and replay it afterwards.
    """
    if cell.workload.phase == "train":
        return _answers(step.forward, step.model, step.data, cell)
    step.call()
    return Answers(outputs=step.call().clone(), gradients={})


def _exact_answers(cell: Cell, comparison: OutputReference, data: Tensor) -> Answers:
    """Return the reference's results in float64, leaving its weights and gradients unchanged."""
    import copy

    from bench.measure.step import attention_backend

    reference = copy.deepcopy(comparison.reference).double()
    reference.zero_grad()
    with attention_backend("math"):  # the only backend that supports float64 on every device
        return _answers(reference, reference, data.double(), cell)


def _answers(forward: Callable[[Tensor], Tensor], model: nn.Module, data: Tensor, cell: Cell) -> Answers:
    import torch

    from bench.peers.adapter import unadapted

    work = cell.workload
    trains = work.phase == "train"
    autocast = torch.autocast(work.device, dtype=torch.bfloat16, enabled=work.dtype == "bf16-autocast")
    with torch.set_grad_enabled(trains), autocast:
        outputs = forward(data)
    if not trains:
        return Answers(outputs=outputs.clone(), gradients={})
    upstream = torch.randn(outputs.shape, generator=torch.Generator().manual_seed(0)).to(outputs)
    if outputs.requires_grad:  # a model without parameters has no backward pass
        outputs.backward(upstream)
    gradients = {name: parameter.grad.clone() for name, parameter in unadapted(model).named_parameters() if parameter.grad is not None}
    return Answers(outputs=outputs.detach().clone(), gradients=gradients)


def _gradient_error(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> float:
    """Return the largest gradient error over parameters.

    Infinite if one side lacks a gradient that the other has.
    """
    if set(found) != set(expected):
        return float("inf")
    largest = max((float(gradient.abs().max()) for gradient in expected.values()), default=0.0)
    return max((_error(found[name], expected[name].reshape(found[name].shape), SMALLEST_SHARE * largest) for name in expected), default=0.0)


def _error(found: Tensor, expected: Tensor, smallest: float = 0.0) -> float:
    """Return the largest difference, relative to the largest expected value.

    The scale is at least `smallest`. Infinite if the difference is NaN, or if all expected values are zero and the result is not.
    """
    difference = float((found.double() - expected.double()).abs().max())
    scale = max(float(expected.abs().max()), smallest)
    if math.isnan(difference) or (difference and not scale):
        return float("inf")
    return difference / scale if difference else 0.0
