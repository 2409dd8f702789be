"""Every mixer that the catalog finds keeps the contracts, with every value of every option."""

from __future__ import annotations

import pytest
import torch

from bench import catalog
from models.mixers.spatial_gating import KERNELS, Config, build
from tests.contracts import checks
from tests.contracts.subjects import FEW_LENGTHS, Subject, mixer_config, mixer_defaults, mixers, refusal

NAMES = catalog.names("mixers")

SUBJECTS = mixers()
over_subjects = pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.label)
over_counted = pytest.mark.parametrize("subject", [s for s in SUBJECTS if s.is_counted], ids=lambda subject: subject.label)


@over_subjects
def test_closed_form_parameters_are_the_counted_ones(subject: Subject) -> None:
    for n in FEW_LENGTHS:
        checks.check_params(subject, n)


@over_counted
def test_three_flop_counts_agree(subject: Subject) -> None:
    for n in subject.every_day:
        checks.check_flops(subject, n)


@over_counted
def test_the_profilers_count_of_a_real_run_agrees(subject: Subject) -> None:
    checks.check_profiled_flops(subject, 17)


@over_counted
def test_train_flop_counts_agree(subject: Subject) -> None:
    for n in subject.every_day:
        checks.check_train_flops(subject, n)


@pytest.mark.slow
@over_counted
def test_all_flop_counts_agree_at_every_length(subject: Subject) -> None:
    for n in subject.lengths:
        checks.check_flops(subject, n)
    for n in FEW_LENGTHS:
        checks.check_train_flops(subject, n)


@over_subjects
def test_every_formulation_costs_the_same(subject: Subject) -> None:
    checks.check_same_cost(subject)


@over_subjects
def test_cost_is_one_polynomial_for_all_lengths(subject: Subject) -> None:
    checks.check_one_polynomial(subject)


@over_subjects
def test_gradient_reaches_every_parameter(subject: Subject) -> None:
    checks.check_gradients(subject)


@over_subjects
def test_same_seed_same_weights(subject: Subject) -> None:
    checks.check_same_seed(subject)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", ["seq_len", "width"])
@pytest.mark.parametrize("value", [0, -8])
def test_a_size_that_is_not_positive_is_refused(name: str, size: str, value: int) -> None:
    config = catalog.load("mixers", name).Config
    checks.check_refused(lambda: config(**{"seq_len": 17, "width": 16, size: value}), f"{size} must be a positive whole number")


@pytest.mark.parametrize("name", [name for name in NAMES if "heads" in mixer_defaults(name)])
def test_heads_that_do_not_divide_the_width_are_refused(name: str) -> None:
    assert "must be a multiple of" in refusal(mixer_config(name), {"heads": 3})


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(("n", "channels", "batch"), [(2, 1, 1), (17, 8, 3), (197, 24, 2), (64, 96, 1)])
def test_every_kernel_equals_the_linear_reference(kernel: str, n: int, channels: int, batch: int) -> None:
    checks.check_same_projection(KERNELS[kernel], KERNELS["linear"], n=n, channels=channels, batch=batch)


@pytest.mark.parametrize("kernel", ["auto", *KERNELS])
@pytest.mark.parametrize("heads", [1, 4])
@pytest.mark.parametrize("training", [False, True])
def test_spatial_gating_answers_the_same_with_every_kernel(kernel: str, heads: int, training: bool) -> None:
    module, reference = (build(Config(seq_len=33, width=32, heads=heads, kernel=name)) for name in (kernel, "linear"))
    torch.manual_seed(0)
    checks.randomise(reference)
    module.load_state_dict(reference.state_dict())
    tokens = torch.randn(3, 33, 32)
    with torch.set_grad_enabled(training):
        checks.assert_close_to_largest(module(tokens), reference(tokens), 1e-5)
