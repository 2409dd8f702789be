"""The tracker of live storages, against hand counts, torch's own allocation log, and itself on fake tensors."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Mapping

import pytest
import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from bench.measure.memory_tracker import (
    WEIGHT,
    Ledger,
    LiveBytes,
    counts_of_step,
    resident_bytes,
    watch,
)
from bench.measure.step import Step, build_step
from bench.spec import Cell, OptionValue, Workload
from tests.made_jobs import small_model

FLOAT = 4


def small_cell(family: str, *, phase: str, n: int = 9, dtype: str = "fp32", options: Mapping[str, OptionValue] = {}) -> Cell:
    work = Workload(batch_size=3, phase=phase, dtype=dtype)
    return Cell(model=small_model(family, options=options, seq_len=n, depth=2, heads=2), workload=work)


def linear_step(*, train: bool) -> Step:
    """One linear layer without bias, 5 -> 7, on a batch of 3; training takes one SGD step with momentum."""
    model, data, labels = nn.Linear(5, 7, bias=False), torch.randn(3, 5), torch.zeros(3, dtype=torch.int64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=False)

    def infer() -> Tensor:
        with torch.no_grad():
            logits: Tensor = model(data)
            return logits

    def learn() -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss: Tensor = model(data).sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return Step(
        model=model,
        forward=model,
        facts=dict,
        data=data,
        labels=labels,
        optimizer=optimizer if train else None,
        call=learn if train else infer,
    )


def live_bytes(step: Step) -> LiveBytes:
    return counts_of_step(step).live


def step_of(call: Callable[[], Tensor]) -> Step:
    """A step without a model: what `call` does."""
    nothing = torch.zeros(0)
    return Step(model=nn.Identity(), forward=nn.Identity(), facts=dict, data=nothing, labels=nothing, optimizer=None, call=call)


def test_bytes_leave_when_the_last_view_dies_and_nothing_is_kept_alive() -> None:
    ledger = Ledger()
    base = torch.zeros(10)
    storage = weakref.ref(base.untyped_storage())
    view = base[:1]
    ledger.see([base])
    del base
    assert ledger.now.total == 10 * FLOAT
    del view
    assert storage() is None
    assert ledger.now == LiveBytes()
    assert ledger.peak.total == 10 * FLOAT
    ledger.close()


def test_a_resized_storage_counts_at_its_new_size_when_seen_again() -> None:
    ledger = Ledger()
    tensor = torch.zeros(4)
    ledger.label([tensor], WEIGHT)
    tensor.untyped_storage().resize_(0)
    ledger.see([tensor])
    assert ledger.now == LiveBytes()
    tensor.untyped_storage().resize_(100)
    ledger.see([tensor])
    assert ledger.now == LiveBytes(weight=100, total=100)
    ledger.close()


def test_the_forward_of_one_linear_layer_by_hand() -> None:
    weight, batch, labels, logits = 35 * FLOAT, 15 * FLOAT, 3 * 8, 21 * FLOAT
    activation = batch + labels + logits
    assert live_bytes(linear_step(train=False)) == LiveBytes(weight=weight, activation=activation, total=weight + activation)


def test_the_training_of_one_linear_layer_by_hand() -> None:
    """Activations peak when the weight's gradient is there, not yet accumulated: the logits are gone, the loss's gradient is one float."""
    batch, labels, loss, loss_gradient, weight = 15 * FLOAT, 3 * 8, FLOAT, FLOAT, 35 * FLOAT
    activation = batch + labels + loss + loss_gradient + weight
    peak = live_bytes(linear_step(train=True))
    assert peak == LiveBytes(weight=weight, gradient=weight, optimizer=weight, activation=activation, total=2 * weight + activation)


def test_watching_leaves_no_hook_and_changes_no_result() -> None:
    step = build_step(small_cell("gmlp", phase="train"))
    untouched = build_step(small_cell("gmlp", phase="train"))
    with watch(step) as watching:
        loss = step.call()
    assert torch.equal(loss, untouched.call())
    peak = watching.ledger.peak
    step.call()
    assert watching.ledger.peak == peak
    assert all(not parameter._post_accumulate_grad_hooks for parameter in step.model.parameters())


def test_weights_are_four_bytes_per_parameter_in_fp32_and_buffers_count() -> None:
    step = build_step(small_cell("transformer", phase="infer"))
    params = sum(p.numel() for p in step.model.parameters())
    assert live_bytes(step).weight == FLOAT * (params + 9 * 16)


@pytest.mark.parametrize(("family", "dtype", "num_bytes"), [("vit", "bf16", 2), ("transformer", "bf16-autocast", 4)])
def test_gradients_match_the_parameters_and_adamw_keeps_two_moments_and_a_counter(family: str, dtype: str, num_bytes: int) -> None:
    step = build_step(small_cell(family, phase="train", dtype=dtype))
    parameters = list(step.model.parameters())
    params = sum(p.numel() for p in parameters)
    peak = live_bytes(step)
    assert peak.gradient == num_bytes * params
    assert peak.optimizer == 2 * num_bytes * params + FLOAT * len(parameters)
    resident = resident_bytes(step)
    assert (resident.weight, resident.gradient, resident.optimizer) == (peak.weight, peak.gradient, peak.optimizer)


@pytest.mark.parametrize("n", [9, 70])
def test_the_peak_is_what_the_allocator_logs(n: int) -> None:
    """An independent count of a forward whose kernels take no workspace: all allocations less all releases that torch's CPU allocator reports."""
    step = build_step(small_cell("gmlp", phase="infer", n=n, options={"kernel": "linear"}))
    step.call()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as log:
        step.call()
    events = [event for event in log.profiler.kineto_results.events() if event.name() == "[memory]"]
    rises = itertools.accumulate(event.nbytes() for event in sorted(events, key=lambda event: event.start_ns()))
    assert max(rises) == live_bytes(step).total - resident_bytes(step).total
