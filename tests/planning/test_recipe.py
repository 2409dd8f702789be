"""The text of --recipe: every key can be set, and what is wrong is refused by name."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from bench.planning.recipe import check_device, check_fits, check_recipe, parse_recipe, require_effect
from bench.serialize import canonical_json, from_json, to_json
from bench.spec import AUGMENTATIONS, Recipe, RequestError, recipe_changes
from models.layers.dropout import DEFAULT_PLACES

EVERY_KEY: dict[str, tuple[str, Any]] = {
    "epochs": ("3", 3),
    "batch_size": ("64", 64),
    "learning_rate": ("1e-3", 1e-3),
    "weight_decay": ("0", 0.0),
    "warmup": ("0.0", 0.0),
    "label_smoothing": ("0.2", 0.2),
    "clip_norm": ("0.5", 0.5),
    "validation_fraction": ("0.25", 0.25),
    "schedule": ("plateau", "plateau"),
    "patience": ("0", 0),
    "early_stop": ("4", 4),
    "accumulate": ("2", 2),
    "dropout": ("0.1", 0.1),
    "augment": ("crop+flip", ("crop", "flip")),
    "precision": ("bf16-autocast", "bf16-autocast"),
    "compile": ("true", True),
    "dropout_at": ("head+attention", ("attention", "head")),
    "magnitude": ("15", 15),
    "teacher": ("convolution", "convolution"),
    "distillation": ("hard", "hard"),
    "distillation_weight": ("0.25", 0.25),
    "teacher_epochs": ("3", 3),
    "engine": ("graph", "graph"),
    "optimizer": ("adam", "adam"),
    "ema": ("0.99", 0.99),
    "stochastic_depth": ("0.2", 0.2),
    "init": ("results/a/weights/b.pt", "results/a/weights/b.pt"),
    "init_sha256": ("0123456789ab", "0123456789ab"),
    "epoch_items": ("1600", 1600),
    "until_solved": ("true", True),
}


def recipe_of(text: str) -> Recipe:
    return Recipe(**dict[str, Any](parse_recipe(text)))


def test_every_key_can_be_set_alone_and_all_together() -> None:
    assert set(EVERY_KEY) == {f.name for f in dataclasses.fields(Recipe)}
    for key, (text, value) in EVERY_KEY.items():
        assert recipe_of(f"{key}={text}") == dataclasses.replace(Recipe(), **{key: value})
    together = recipe_of(", ".join(f"{key}={text}" for key, (text, _) in EVERY_KEY.items()))
    assert together == Recipe(**{key: value for key, (_, value) in EVERY_KEY.items()})
    assert from_json(Recipe, to_json(together)) == together


def test_every_augmentation_can_be_asked_for_and_none() -> None:
    assert recipe_of(f"augment={'+'.join(AUGMENTATIONS)}").augment == AUGMENTATIONS
    assert recipe_of("augment=none").augment == ()
    assert recipe_of("compile=false").compile is False


WRONG = [
    ("epochs", "option epochs of --recipe must be a whole number from 1 to 100,000, not ''"),
    ("epochs=", "write epochs=10"),
    ("epoch=3", "epoch"),
    ("epochs=3,epochs=4", "epochs of --recipe is given twice"),
    ("epochs=3,,dropout=0.1", "option of --recipe"),
    ("epochs=0", "epochs"),
    ("learning_rate=0", "learning_rate"),
    ("warmup=1.5", "warmup"),
    ("validation_fraction=0", "validation_fraction"),
    ("label_smoothing=1", "label_smoothing"),
    ("schedule=linear", "cosine"),
    ("compile=yes", "true"),
    ("weight_decay=11", "from 0 to 10"),
    ("dropout=2", "dropout of --recipe must be from 0 to 0.95"),
    ("augment=rotate", "randaugment"),
    ("dropout_at=none", "embedding"),
    ("magnitude=31", "magnitude of --recipe must be a whole number from 0 to 30"),
    ("distillation_weight=1.5", "distillation_weight of --recipe must be from 0 to 1"),
]


def test_what_is_wrong_is_refused_by_name_with_a_hint() -> None:
    for text, problem in WRONG:
        with pytest.raises(RequestError) as refused:
            recipe_of(text)
        assert problem in f"{refused.value} {refused.value.hint}", text
        assert refused.value.hint


WITHOUT_EFFECT = {
    "patience=3": "schedule=plateau",
    "magnitude=5": "augment=randaugment",
    "dropout_at=head": "dropout=0.1",
    "distillation=hard": "teacher=convolution",
    "distillation_weight=0.2": "teacher=convolution",
    "teacher_epochs=3": "teacher=convolution",
    "warmup=0.2": "schedule=cosine",
}


def test_a_key_that_would_have_no_effect_is_refused_with_what_it_needs() -> None:
    for text, need in WITHOUT_EFFECT.items():
        key, without = text.partition("=")[0], "schedule=one-cycle," if text.startswith("warmup") else ""
        with pytest.raises(RequestError, match=rf"{key} of --recipe has no effect without"):
            require_effect(recipe_of(without + text), {key})
        require_effect(recipe_of(f"{need},{text}"), {key, need.partition("=")[0]})
        require_effect(recipe_of(without + text), ())  # as a default it may stand


def test_zeros_may_be_written_in_any_way_and_augmentations_in_any_order() -> None:
    assert recipe_of("weight_decay=0.00,dropout=0e0").weight_decay == 0.0
    assert recipe_of("learning_rate=.001").learning_rate == 0.001
    assert recipe_of("augment=flip+crop+flip") == recipe_of("augment=crop+flip")


@pytest.mark.parametrize(
    ("text", "device", "problem"),
    [
        ("precision=tf32", "cpu", "precision=tf32 needs a CUDA device"),
        ("engine=graph", "cpu", "engine=graph needs a CUDA device, and the device is cpu"),
        ("compile=true,engine=graph", "cuda", "so engine=graph has no effect"),
        ("optimizer=sgd,engine=graph", "cuda", "engine=graph records no steps of optimizer=sgd"),
        ("optimizer=muon,engine=graph", "cuda", "engine=graph records no steps of optimizer=muon"),
    ],
)
def test_a_recipe_that_the_device_cannot_compute_is_refused_with_a_hint(text: str, device: str, problem: str) -> None:
    with pytest.raises(RequestError, match=problem) as refused:
        check_device(recipe_of(text), device)
    assert refused.value.hint


def test_a_recipe_that_the_device_computes_passes() -> None:
    check_device(recipe_of("precision=tf32"), "cuda")
    check_device(recipe_of("engine=graph,accumulate=2,teacher=convolution,optimizer=adam"), "cuda")
    check_device(recipe_of("compile=true,precision=bf16-autocast"), "cpu")


def test_a_sound_recipe_from_a_plan_passes() -> None:
    check_recipe(Recipe(learning_rate=1 / 300, weight_decay=0.0, epochs=20_000))


@pytest.mark.parametrize(("task", "augment"), [("copy", "flip"), ("trec", "crop"), ("digits", "randaugment")])
def test_what_cannot_be_done_to_a_tasks_data_is_refused(task: str, augment: str) -> None:
    with pytest.raises(RequestError, match=augment):
        check_fits(Recipe(augment=(augment,)), task)


def test_short_validation_items_end_no_training_as_solved() -> None:
    check_fits(Recipe(until_solved=True), "copy+form=shifted")
    with pytest.raises(RequestError, match="shorter than the test items"):
        check_fits(Recipe(until_solved=True), "copy+form=shifted+learn_up_to=4")


@pytest.mark.parametrize("task", ["copy", "trec"])
def test_a_teacher_of_what_is_no_image_is_refused(task: str) -> None:
    with pytest.raises(RequestError, match="teacher=convolution needs square images of one class each"):
        check_fits(Recipe(teacher="convolution"), task)


@pytest.mark.parametrize(
    ("change", "allowed"),
    [
        ({"dropout_at": ()}, "at least one of embedding, residual, attention, head"),
        ({"teacher": "vit"}, "must be one of none, convolution, not 'vit'"),
    ],
)
def test_a_recipe_with_an_unknown_word_is_refused_naming_those_allowed(change: dict[str, Any], allowed: str) -> None:
    with pytest.raises(ValueError, match=allowed):
        Recipe(**change)


def test_what_is_at_its_default_is_in_no_id() -> None:
    """So a field that is added later leaves the ids of all that was before."""
    assert canonical_json(Recipe()) == "{}"
    assert json.loads(canonical_json(Recipe(dropout_at=("head",)))) == {"dropout_at": ["head"]}
    assert to_json(Recipe())["dropout_at"] == list(DEFAULT_PLACES)
    assert canonical_json(Recipe(label_smoothing=0)) == '{"label_smoothing":0}'  # a default is 0.1, and 0 is not False either
    assert from_json(Recipe, json.loads(canonical_json(Recipe(teacher="convolution")))) == Recipe(teacher="convolution")


def test_what_a_recipe_changes_can_be_typed_again() -> None:
    base = recipe_of("epochs=4,dropout=0.2,augment=flip,compile=true")
    for key, (text, value) in EVERY_KEY.items():
        changed = dataclasses.replace(base, **{key: value})
        told = recipe_changes(changed, base)
        assert (told == "") == (changed == base), key
        if told:
            assert told.partition("=")[0] == key
            again = dataclasses.replace(base, **{key: getattr(recipe_of(told), key)})
            assert again == changed, text


def test_several_changes_are_told_in_the_order_of_the_recipe() -> None:
    base = Recipe(augment=("flip",))
    changed = dataclasses.replace(base, augment=(), learning_rate=1e-4, compile=True, dropout_at=("head",))
    assert recipe_changes(changed, base) == "learning_rate=0.0001,augment=none,compile=true,dropout_at=head"
    assert recipe_changes(base, base) == ""
