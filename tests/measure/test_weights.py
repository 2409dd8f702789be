"""Saved weights: what comes back is what was trained, and a training begins with it."""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from bench.measure import weights
from bench.measure.model import build_model
from bench.measure.weights import begin_with, build_trained, check_start, files_of, read_trained, start_digest
from bench.metrics import Measurement
from bench.planning.build import build_plan
from bench.planning.settings import recipe_of
from bench.progress import listening
from bench.spec import Plan, Recipe, RequestError, Settings
from bench.training.data import TrainingData, load_training_data
from bench.training.distillation import train_with_teacher
from bench.training.loop import Training
from tests.requested import parse_request
from tests.trained_run import RECIPE, SIZES, made_task, train, trained_run

AVERAGED = dataclasses.replace(RECIPE, epochs=3, ema=0.8)


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> str:
    return made_task(tmp_path_factory.mktemp("images"))


Made = tuple[Path, Plan, list[Measurement]]


@pytest.fixture(scope="module")
def made(task: str, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Two models, two seeds each, with averaged weights."""
    folder = tmp_path_factory.mktemp("run")
    return folder, *trained_run(folder, task, seeds=2, recipe=AVERAGED)


def file_of(made: Made, *, place: int = 0, seed: int = 0) -> Path:
    folder, plan, _ = made
    return folder / "weights" / f"{plan.cells[place].cell.cell_id}-seed{seed}.pt"


def data_of(plan: Plan, *, seed: int = 0) -> TrainingData:
    cell = plan.cells[0].cell
    return load_training_data(cell.model, cell.workload.task, plan.recipe, seed=seed)


def trained_by_hand(plan: Plan, recipe: Recipe) -> nn.Module:
    torch.manual_seed(0)
    model = build_model(plan.cells[0].cell.model)
    train_with_teacher(model, data_of(plan), recipe, seed=0)
    return model.eval()


@torch.no_grad()
def logits(model: nn.Module, data: TrainingData) -> Any:
    return model.eval()(data.test.inputs)


def test_what_was_averaged_is_saved_and_gives_the_same_logits(made: Made) -> None:
    _, plan, _ = made
    data = data_of(plan)
    _, model = build_trained(file_of(made))
    assert torch.equal(logits(model, data), logits(trained_by_hand(plan, AVERAGED), data))
    plain = trained_by_hand(plan, dataclasses.replace(AVERAGED, ema=0.0))
    assert not torch.equal(logits(model, data), logits(plain, data))


def test_the_file_says_what_the_model_is_and_what_it_reads(made: Made) -> None:
    folder, plan, measured = made
    assert len(files_of(folder)) == 4
    for place, planned in enumerate(plan.cells):
        for seed in range(2):
            path, values = file_of(made, place=place, seed=seed), measured[2 * place + seed].values
            trained, _ = read_trained(path)
            assert values["weights"] == path.name
            assert (trained.cell, trained.recipe, trained.seed) == (planned.cell, plan.recipe, seed)
            assert trained.validation == values["validation"]
            assert trained.classes == ("cat", "dog")
    data, (trained, _) = data_of(plan), read_trained(file_of(made))
    assert data.reader.mean is not None
    assert data.reader.spread is not None
    assert (trained.mean, trained.spread) == (tuple(data.reader.mean.tolist()), tuple(data.reader.spread.tolist()))


def test_nothing_is_saved_unless_it_is_asked_for(made: Made, tmp_path: Path) -> None:
    _, plan, _ = made
    plan = dataclasses.replace(plan, settings=dataclasses.replace(plan.settings, save_weights=False))
    assert "weights" not in train(plan, tmp_path).values
    with pytest.raises(RequestError, match="holds no weights") as refused:
        files_of(tmp_path)
    assert "--save-weights" in refused.value.hint


def test_a_full_disk_costs_the_weights_and_not_the_scores(made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    told: list[str] = []
    with listening(told.append):
        found = train(made[1], tmp_path)
    assert "weights" not in found.values
    assert found.values["accuracy"] == made[2][0].values["accuracy"]
    assert any("could not save the weights of gmlp (No space left on device)" in text for text in told)
    assert not list((tmp_path / "weights").iterdir())


def begun(init: Path | str, task: str, models: str = "gmlp", **flags: str) -> Plan:
    """The plan of a training that begins so, as the command line builds it."""
    request = parse_request(**{"models": models, "task": task, **SIZES, "recipe": f"init={init}", **flags})
    return build_plan(request, settings=Settings(), recipe=recipe_of(request), device="cpu")


@pytest.mark.parametrize("seed", [0, 1, 7])
def test_a_training_begins_at_the_validation_score_of_the_weights(made: Made, task: str, seed: int) -> None:
    """Those of a run are of its own seed, if there is one."""
    folder, _, _ = made
    plan = begun(folder, task)
    file = file_of(made, seed=seed if seed < 2 else 0)
    trained, expected = read_trained(file)
    torch.manual_seed(seed)
    model = build_model(plan.cells[0].cell.model)
    noted = begin_with(model, plan.cells[0].cell.model, plan.recipe, seed, task=task, classes=("cat", "dog"))
    assert noted == {"init": str(file), "init_sha256": hashlib.sha256(file.read_bytes()).hexdigest(), "init_fresh": ""}
    assert all(torch.equal(value, expected[name]) for name, value in model.state_dict().items())
    training = Training(model, data_of(plan, seed=trained.seed), plan.recipe, seed=seed, device="cpu")
    assert training.score(training.data.held_out).value == trained.validation


def test_the_record_of_a_training_says_what_it_began_with_and_the_digest_is_in_its_id(made: Made, task: str, tmp_path: Path) -> None:
    folder, _, _ = made
    plan, other = begun(folder, task, models="vit"), begun(file_of(made, place=1), task, models="vit")
    values = train(plan, tmp_path).values
    assert values["init_sha256"] == hashlib.sha256(file_of(made, place=1).read_bytes()).hexdigest()
    assert (plan.recipe.init_sha256, other.recipe.init_sha256) == (start_digest(str(folder)), values["init_sha256"][:12])
    assert len({plan.plan_id, other.plan_id, dataclasses.replace(plan, recipe=Recipe()).plan_id}) == 3


def test_a_head_of_another_number_of_classes_is_fresh_and_the_sizes_are_those_of_the_weights(made: Made, tmp_path: Path) -> None:
    """Sized by the budget, they would be others."""
    folder, source, _ = made
    task = made_task(tmp_path)
    for split in (tmp_path / "own").iterdir():
        shutil.copytree(split / "dog", split / "wolf")
    plan = begun(folder, task, models="gmlp,vit", width="", params="5k")
    assert [planned.cell.model.shape for planned in plan.cells] == [planned.cell.model.shape for planned in source.cells]
    assert [planned.sizing.budget for planned in plan.cells] == [5000, 5000]
    model = plan.cells[0].cell.model
    module = build_model(model)
    fresh = {name: value.clone() for name, value in module.state_dict().items()}
    noted = begin_with(module, model, plan.recipe, 0, task=task, classes=("cat", "dog", "wolf"))
    _, theirs = read_trained(file_of(made))
    assert len(fresh["head.classify.bias"]) == 3
    assert noted["init_fresh"] == "head.classify.weight, head.classify.bias"
    for name, value in module.state_dict().items():
        assert torch.equal(value, fresh[name] if name.startswith("head.classify") else theirs[name]), name


IDS = "copy+symbols=4+items=40+test_items=10"
HEAD = "head.classify.weight, head.classify.bias"
SAME_ANSWERS = {
    "the same task": ("images:a", ("cat", "dog"), "images:a", ("cat", "dog"), ""),
    "classes of these names elsewhere": ("images:a", ("cat", "dog"), "images:b+side=8", ("cat", "dog"), ""),
    "as many other classes": ("images:a", ("cat", "dog"), "images:a", ("cat", "wolf"), HEAD),
    "the classes in another order": ("images:a", ("cat", "dog"), "images:b", ("dog", "cat"), HEAD),
    "another task of unnamed classes": ("sst2", (), "imdb", (), HEAD),
    "other texts": ("text:a+b.csv", (), "text:a.csv", (), HEAD),
    "another option of the task": ("text:a+b.csv", (), "text:a+b.csv+spare_ids=1", (), ""),
    "a task of named classes from one of unnamed": ("sst2", (), "images:a", ("cat", "dog"), HEAD),
}
"""The task of the weights with its classes, those of the training, and what is fresh."""


@pytest.mark.parametrize("name", SAME_ANSWERS)
def test_the_head_is_kept_for_the_same_classes_alone(name: str, made: Made, tmp_path: Path) -> None:
    """Their number says nothing: ten digits are not ten kinds of photographs."""
    there, names, task, classes, fresh = SAME_ANSWERS[name]
    _, plan, _ = made
    model = plan.cells[0].cell.model
    trained, _ = read_trained(file_of(made))
    cell = dataclasses.replace(trained.cell, workload=dataclasses.replace(trained.cell.workload, task=there))
    file = weights.save(tmp_path, dataclasses.replace(trained, cell=cell, classes=names), build_trained(file_of(made))[1])
    module = build_model(model)
    own = {name: value.clone() for name, value in module.state_dict().items()}
    recipe = dataclasses.replace(plan.recipe, init=str(file), init_sha256=start_digest(str(file)))
    assert begin_with(module, model, recipe, 0, task=task, classes=classes)["init_fresh"] == fresh
    assert torch.equal(module.state_dict()["head.classify.weight"], own["head.classify.weight"]) is bool(fresh)
    assert not torch.equal(module.state_dict()["blocks.0.norm.bias"], own["blocks.0.norm.bias"])


@pytest.mark.parametrize(
    ("task", "known"),
    [
        ("trec+tokenizer=bpe", ("trec", 4096)),
        ("masked_token:trec+tokenizer=bpe+vocab_size=512", ("trec", 512)),
        ("text:a.csv+tokenizer=bpe", ("text:a.csv", 4096)),
        ("masked_token:text:a.csv+tokenizer=bpe", ("text:a.csv", 4096)),
        ("trec", None),
        ("digits", None),
    ],
)
def test_byte_pairs_are_known_by_their_texts_and_number(task: str, known: tuple[str, int] | None) -> None:
    assert weights._byte_pairs(task) == known


def test_weights_of_other_byte_pairs_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained_run(tmp_path / "run", IDS, models="gmlp", seq="8")
    monkeypatch.setattr(weights, "_byte_pairs", lambda task: None if task == IDS else ("other", 512))
    with pytest.raises(RequestError, match="know other tokens"):
        train(begun(tmp_path / "run", f"{IDS}+seed=1", seq="8"), tmp_path)


@pytest.mark.parametrize(("task", "fresh"), [(f"{IDS}+seed=1", ""), (IDS.replace("copy", "reverse"), HEAD)])
def test_a_head_of_symbols_is_kept_for_the_same_task(task: str, fresh: str, tmp_path: Path) -> None:
    trained_run(tmp_path / "run", IDS, models="gmlp", seq="8")
    assert train(begun(tmp_path / "run", task, seq="8"), tmp_path).values["init_fresh"] == fresh


def test_the_head_of_another_programs_file_is_kept_by_number(made: Made, task: str, tmp_path: Path) -> None:
    file = tmp_path / "plain.pt"
    torch.save(dict(read_trained(file_of(made))[1]), file)
    assert train(begun(file, task), tmp_path).values["init_fresh"] == ""


def gmlp_in(run: Path) -> str:
    return next(str(path) for path in files_of(run) if read_trained(path)[0].cell.model.name == "gmlp")


REFUSED: dict[str, tuple[Callable[[Path], str], dict[str, str], str, str]] = {
    "nothing there": (lambda run: str(run / "nowhere"), {}, "there is no such file or run", "name a run with weights"),
    "a run without weights": (lambda run: str(run.parent), {}, "holds no weights", "--save-weights"),
    "a run without this model": (
        lambda run: str(run),
        {"models": "transformer"},
        "holds no weights of transformer, only of gmlp, vit",
        "--models gmlp",
    ),
    "another size": (lambda run: str(run), {"width": "24"}, "weights of another length or size", "--seq 5 --width 16"),
    "another length": (lambda run: str(run), {"seq": "17"}, "weights of another length or size cannot be taken", "--seq 5"),
    "another length of a file": (
        gmlp_in,
        {"seq": "17"},
        "weights of another length or size cannot be taken",
        "--seq",
    ),
    "another depth": (
        lambda run: str(run),
        {"depth": "3"},
        "does not fit gmlp (depth 2 there and 3 here): it lacks blocks.2.norm.weight",
        "try --seq 5 --width 16 --depth 2",
    ),
    "less depth": (
        gmlp_in,
        {"depth": "1"},
        "(depth 2 there and 1 here): it holds blocks.1.norm.weight",
        "try --seq 5 --width 16 --depth 2",
    ),
    "another depth of a budget": (
        lambda run: str(run),
        {"width": "", "params": "5k", "depth": "3"},
        "of gmlp are of n = 5 and depth 2, not n = 5 and depth 3",
        "try --seq 5 --depth 2",
    ),
    "another width of halves": (gmlp_in, {"ffn_width": "32"}, "32 x 16 in gmlp", "--depth 2 --heads 1 --ffn-width 96"),
    "options": (
        gmlp_in,
        {"models": "gmlp+gating=identity"},
        "does not fit gmlp+gating=identity: it ",
        "those weights are of gmlp: try --models gmlp",
    ),
    "no weights": (lambda run: str(run / "plan.json"), {}, "cannot be read as weights", "intact file"),
    "no file of weights": (lambda run: str(run / "run.csv"), {}, "cannot be read as weights", "intact file"),
    "another digest": (lambda run: f"{run},init_sha256=0123456789ab", {}, "not 0123456789ab as planned", "restore it"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_weights_that_do_not_fit_are_refused_in_one_line(name: str, made: Made, task: str) -> None:
    init, flags, problem, hint = REFUSED[name]
    (made[0] / "run.csv").write_text("text,label\nmany actors,neg\n")
    with pytest.raises(RequestError) as refused:
        begun(init(made[0]), task, **flags)
    assert problem in str(refused.value)
    assert hint in refused.value.hint
    assert "\n" not in str(refused.value)


def test_weights_of_other_items_are_refused_with_the_items_that_fit(made: Made, task: str, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="cannot be taken over") as refused:
        begun(made[0], "digits", models="vit")
    assert refused.value.hint == f"name a task of items of 48 numbers, like {task}"
    texts = tmp_path / "texts.csv"
    texts.write_text("text,label\n" + "".join(f"words of {label} {place},{label}\n" for place in range(10) for label in "ab"))
    flags = {"models": "gmlp+pool=mean", "seq": "8"}
    trained_run(tmp_path / "run", f"masked_token:text:{texts}", models=flags["models"], seq=flags["seq"])
    with pytest.raises(RequestError, match="cannot be taken over") as refused:
        begun(tmp_path / "run", f"text:{texts}", **flags)
    assert "add +spare_ids=1 to --task" in refused.value.hint
    assert begun(tmp_path / "run", f"text:{texts}+spare_ids=1", **flags).cells


def test_weights_that_change_after_planning_are_refused(made: Made, task: str, tmp_path: Path) -> None:
    file = tmp_path / "kept.pt"
    file.write_bytes(file_of(made).read_bytes())
    plan = begun(file, task)
    file.write_bytes(file_of(made, seed=1).read_bytes())
    with pytest.raises(RequestError, match="as planned"):
        train(plan, tmp_path)


def test_a_file_that_is_cut_short_is_refused(made: Made, tmp_path: Path) -> None:
    file = tmp_path / "half.pt"
    file.write_bytes(file_of(made).read_bytes()[:2000])
    with pytest.raises(RequestError, match=r"half\.pt cannot be read as weights"):
        read_trained(file)
    torch.save({"form": "other"}, file)
    with pytest.raises(RequestError, match="no weights saved by this version"):
        read_trained(file)


@pytest.mark.parametrize(
    "ending", ["pth", pytest.param("safetensors", marks=pytest.mark.slow), pytest.param("nested.pth", marks=pytest.mark.slow)]
)
def test_a_pretrained_file_of_timm_begins_a_training_with_a_fresh_head(ending: str, tmp_path: Path) -> None:
    """Its names are the model's own, without the adapter's."""
    timm = pytest.importorskip("timm")
    theirs = timm.create_model("resnet18", num_classes=7, in_chans=1).state_dict()
    file = tmp_path / f"resnet18.{ending}"
    if ending == "safetensors":
        pytest.importorskip("safetensors.torch").save_file(theirs, file)
    else:
        theirs = {name: value for name, value in theirs.items() if "num_batches_tracked" not in name}  # as older files have it
        torch.save({"state_dict": theirs} if ending == "nested.pth" else theirs, file)
    plan = begun(file, "digits", models="timm:resnet18", seq="17", width="", depth="")
    spec = plan.cells[0].cell.model
    check_start(spec, plan.recipe)
    module = build_model(spec)
    noted = begin_with(module, spec, plan.recipe, 0, task="digits", classes=tuple("0123456789"))
    assert noted["init_fresh"] == "model.fc.weight, model.fc.bias"
    assert all(torch.equal(module.state_dict()[f"model.{name}"], value) for name, value in theirs.items() if not name.startswith("fc."))
    assert weights.sha256_of(file) == noted["init_sha256"]


@pytest.mark.slow
def test_positions_of_another_length_are_refused(tmp_path: Path) -> None:
    timm = pytest.importorskip("timm")
    file = tmp_path / "vit.pth"
    torch.save(timm.create_model("vit_tiny_patch16_224").state_dict(), file)
    with pytest.raises(RequestError, match=r"model\.pos_embed is 1 x 197 x 192 there and 1 x 65 x 192 in timm:vit_tiny_patch16_224"):
        begun(file, "cifar10", models="timm:vit_tiny_patch16_224", seq="65", width="", depth="")
