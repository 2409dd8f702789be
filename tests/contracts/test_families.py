"""Every family that the catalog finds keeps the contracts, on patches and on tokens, with every value of every option."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from bench import catalog
from models.layers.shape import Interface, Shape
from tests.contracts import checks
from tests.contracts.subjects import FEW_LENGTHS, Subject, families, family_config, family_defaults, interfaces, refusal

SHAPE = Shape(seq_len=17, width=16, depth=2, heads=2, ffn_width=32)
NAMES = catalog.names("families")

SUBJECTS = families()
over_subjects = pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.label)
over_counted = pytest.mark.parametrize("subject", [s for s in SUBJECTS if s.is_counted], ids=lambda subject: subject.label)
over_reading = pytest.mark.parametrize("subject", [s for s in SUBJECTS if s.reads_data and s.learns], ids=lambda subject: subject.label)
over_dropping = pytest.mark.parametrize("subject", [s for s in SUBJECTS if s.drops], ids=lambda subject: subject.label)
over_blind = pytest.mark.parametrize("subject", [s for s in SUBJECTS if not s.reads_data], ids=lambda subject: subject.label)


@over_subjects
def test_closed_form_parameters_are_the_counted_ones(subject: Subject) -> None:
    for n in FEW_LENGTHS:
        checks.check_params(subject, n)


@over_subjects
def test_parameters_of_the_blocks_are_counted_apart(subject: Subject) -> None:
    with torch.device("meta"):
        blocks = subject.build(17).get_submodule("blocks")
    assert subject.cost(17).params("blocks").at(17) == sum(parameter.numel() for parameter in blocks.parameters())


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


@over_reading
def test_gradient_reaches_every_parameter(subject: Subject) -> None:
    checks.check_gradients(subject)


@over_blind
def test_a_class_token_that_meets_no_other_token_answers_the_same_to_everything(subject: Subject) -> None:
    model, data = checks.randomised(subject, seed=0)
    assert torch.equal(model(data), model(torch.zeros_like(data)))
    with pytest.raises(AssertionError, match=r"the gradient of embedding\.project\.weight is zero"):
        checks.check_gradients(subject)


@over_dropping
def test_dropout_is_on_in_training_and_off_in_evaluation(subject: Subject) -> None:
    checks.check_dropout(subject)


def test_only_a_model_without_embedding_and_head_never_drops() -> None:
    still = [s.build(17) for s in SUBJECTS if not s.drops]
    assert 0 < len(still) < len(SUBJECTS) / 4
    assert {name for model in still for name, _ in model.named_children()} == {"blocks"}


@over_subjects
def test_same_seed_same_weights(subject: Subject) -> None:
    checks.check_same_seed(subject)


@pytest.mark.parametrize("name", ["seq_len", "width", "depth", "heads", "ffn_width"])
@pytest.mark.parametrize("value", [0, -8, 8.0, True])
def test_a_size_that_is_no_positive_whole_number_is_refused(name: str, value: Any) -> None:
    checks.check_refused(lambda: dataclasses.replace(SHAPE, **{name: value}), f"{name} must be a positive whole number")


def test_a_single_token_is_refused() -> None:
    checks.check_refused(lambda: dataclasses.replace(SHAPE, seq_len=1), "seq_len must be at least 2")


@pytest.mark.parametrize("name", ["patch_dim", "vocab_size", "num_classes"])
@pytest.mark.parametrize("value", [0, -1])
def test_an_interface_of_no_size_is_refused(name: str, value: Any) -> None:
    checks.check_refused(lambda: dataclasses.replace(Interface(), **{name: value}), f"{name} must be a positive whole number")


def test_an_unknown_input_is_refused() -> None:
    checks.check_refused(lambda: Interface(input="sound"), "input must be one of patches, tokens")


@pytest.mark.parametrize("family", [name for name in NAMES if catalog.load("families", name).USES_HEADS])
def test_heads_that_do_not_divide_the_width_are_refused(family: str) -> None:
    checks.check_refused(family_config(family, Interface(), heads=3), "width must be a multiple of heads")


@pytest.mark.parametrize(
    ("family", "option"), [(name, o.name) for name in NAMES for o in catalog.options(name) if not isinstance(o.default, bool)]
)
def test_an_impossible_option_is_refused_by_name(family: str, option: str) -> None:
    wrong = "nonsense" if isinstance(family_defaults(family)[option], str) else -1
    assert option.split("_")[-1] in refusal(family_config(family, interfaces(family)[0]), {option: wrong})


@pytest.mark.parametrize(("option", "allowed"), [("spatial_heads", 1), ("tiny_attention", 0)])
def test_an_option_that_mixes_is_refused_where_nothing_is_mixed(option: str, allowed: int) -> None:
    config = catalog.load("families", "gmlp").Config
    checks.check_refused(lambda: config(shape=SHAPE, gating="identity", **{option: 4}), f"{option} must be {allowed} with gating=identity")


def test_without_gating_the_last_projection_takes_every_hidden_channel() -> None:
    gmlp = catalog.load("families", "gmlp")
    terms = {term.name: term for term in gmlp.cost(gmlp.Config(shape=SHAPE, gating="identity")).terms}
    assert terms["blocks.contract"].params.at(17) == 2 * (32 * 16 + 16)
    assert not [name for name in terms if "gating" in name]


@pytest.mark.parametrize(
    ("ffn_width", "spatial_heads", "multiple"), [(33, 1, "2: 33"), (32, 3, "2 x spatial_heads: 32"), (36, 4, "2 x spatial_heads: 36")]
)
def test_an_ffn_width_that_does_not_split_is_refused(ffn_width: int, spatial_heads: int, multiple: str) -> None:
    shape = dataclasses.replace(SHAPE, ffn_width=ffn_width)
    config = catalog.load("families", "gmlp").Config
    rule = f"ffn_width must be a multiple of {multiple}"
    checks.check_refused(lambda: config(shape=shape, spatial_heads=spatial_heads), rule)
