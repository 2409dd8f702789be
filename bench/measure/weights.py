"""Weights of trained models: saved by a run, and read to predict or to begin another training.

A saved file is torch's own, read without running any code: the tensors by name, and as JSON what the model is and what it reads. A training may also
begin with a file of another library whose names are the model's own. Imports no torch before a file is read or written.
"""

from __future__ import annotations

import hashlib
import json
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import catalog
from bench.files import write_atomically
from bench.peers import own_import
from bench.peers.names import OUTSIDE
from bench.serialize import ID_LENGTH, from_json, to_json
from bench.spec import WEIGHTS, Cell, ModelSpec, Recipe, RequestError
from bench.tasks._info import NAME_PATTERN, choose

if TYPE_CHECKING:
    from torch import Tensor, nn

    Tensors = Mapping[str, Tensor]

FORM = "gmlp-bench weights 1.0"
NESTED = ("model", "state_dict")
"""Keys below which other programs keep the tensors of a model."""
COUNTER = "num_batches_tracked"
"""A number of batch normalisation that older files lack, and that changes no answer."""


@dataclass(frozen=True, kw_only=True)
class Trained:
    """What a file of saved weights holds beside them.

    `recipe`: the recipe of the training, with a tuned learning rate.
    `validation`: validation score of the weights.
    `mean`, `spread`: of the training images scaled to 0..1, by channel; what the model reads is normalised with them. Empty without images.
    `classes`: names of the classes; empty if they have none.
    """

    cell: Cell
    recipe: Recipe
    seed: int
    validation: float
    mean: tuple[float, ...] = ()
    spread: tuple[float, ...] = ()
    classes: tuple[str, ...] = ()


def save(folder: Path, trained: Trained, model: nn.Module) -> Path:
    """Write the weights of a model into a run's folder, atomically; return the file. Raises OSError."""
    import torch

    path = folder / WEIGHTS / f"{trained.cell.cell_id}-seed{trained.seed}.pt"
    weights = {name: value.cpu() for name, value in model.state_dict().items()}
    content = {"form": FORM, "facts": json.dumps(to_json(trained)), "weights": weights}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, lambda temporary: torch.save(content, temporary))
    return path


def files_of(run: Path) -> list[Path]:
    """Return the files of weights in a run's folder. Raises RequestError if there are none."""
    found = sorted((run / WEIGHTS).glob("*.pt"))
    if not found:
        raise RequestError(f"{run} holds no weights", "train with `save_weights`, which keeps them in the run's folder")
    return found


def read_trained(path: Path) -> tuple[Trained, Tensors]:
    """Return what a saved file holds. Raises RequestError if it is damaged or no file of this program."""
    content = _read(path)
    if content.get("form") != FORM:
        raise RequestError(f"{path} holds no weights saved by this version", "name a file in the folder weights of a run")
    try:
        trained: Trained = from_json(Trained, json.loads(content["facts"]))
    except (KeyError, ValueError) as error:
        raise RequestError(f"{path} cannot be read: {error}", "train again with `save_weights`") from error
    return trained, content["weights"]


def build_trained(path: Path) -> tuple[Trained, nn.Module]:
    """Return what a saved file holds, and its model on the CPU, ready to answer. Raises RequestError as `read_trained` does."""
    from bench.measure.model import build_model

    trained, weights = read_trained(path)
    model = build_model(trained.cell.model)
    model.load_state_dict(weights)
    return trained, model.eval()


def start_digest(start: str) -> str:
    """Return the first digits of the sha256 of a file, or of all weights of a run.

    Raises RequestError if there is no such file or run, or the run holds no weights.
    """
    path = Path(start).expanduser()
    if path.is_dir():
        hashes = "".join(f"{file.name} {sha256_of(file)}\n" for file in files_of(path))
        return hashlib.sha256(hashes.encode()).hexdigest()[:ID_LENGTH]
    if not path.is_file():
        raise RequestError(f"`recipe=init={start}`: there is no such file or run", "name a run with weights, or a file of them")
    return sha256_of(path)[:ID_LENGTH]


def require_start(recipe: Recipe) -> None:
    """Raise RequestError unless the weights that a recipe begins with are there and unchanged."""
    if recipe.init and (now := start_digest(recipe.init)) != recipe.init_sha256:
        raise RequestError(
            f"`recipe=init={recipe.init}`: its sha256 begins with {now}, not {recipe.init_sha256} as planned",
            "restore it, or leave init_sha256 out of a new request",
        )


def cells_to_begin(start: str) -> list[Cell]:
    """Return the configurations whose weights a run or a file of this program holds; none for another file, or "".

    Raises RequestError if they cannot be read.
    """
    path = Path(start).expanduser()
    if not start:
        return []
    files = files_of(path) if path.is_dir() else [path] if _read(path).get("form") == FORM else []
    return [read_trained(file)[0].cell for file in files]


def check_start(model: ModelSpec, recipe: Recipe) -> None:
    """Raise RequestError if a model cannot begin with the weights of a recipe."""
    own_import.ask(model.digest, _check_start, model, recipe)


def _check_start(model: ModelSpec, recipe: Recipe) -> None:
    import torch

    from bench.measure.model import build_model

    path = _start_file(model, recipe, 0)
    with torch.device("meta"):
        own = build_model(model).state_dict()
    _fitting(own, path, model, recipe, keeps_head=True)


def begin_with(module: nn.Module, model: ModelSpec, recipe: Recipe, seed: int, *, task: str, classes: Sequence[str] = ()) -> dict[str, str]:
    """Load the weights that a recipe begins with into a fresh model; return what the record notes.

    Of a run, those of the same seed are taken, else those of the first. `init_fresh`: the tensors that keep their fresh values, those of the head if
    `task` has other `classes` than the weights'. Raises RequestError if they do not fit, or the file has changed.
    """
    require_start(recipe)
    path = _start_file(model, recipe, seed)
    _require_same_ids(path, task)
    taken = _fitting(module.state_dict(), path, model, recipe, keeps_head=_has_same_answers(path, model, task, classes))
    module.load_state_dict(taken, strict=False)
    fresh = [name for name in module.state_dict() if name not in taken and not name.endswith(COUNTER)]
    return {"init": str(path), "init_sha256": sha256_of(path), "init_fresh": ", ".join(fresh)}


def _require_same_ids(path: Path, task: str) -> None:
    """Raise RequestError if ids mean other byte pairs in the weights' task: these are learned from its texts. Bytes are the same everywhere."""
    if _read(path).get("form") != FORM:
        return
    there = read_trained(path)[0].cell.workload.task
    theirs, ours = _byte_pairs(there), _byte_pairs(task)
    if theirs != ours:
        raise RequestError(
            f"`recipe=init=...`: weights of task {there} know other tokens than task {task}", "use one tokenizer, texts and vocab_size"
        )


def _byte_pairs(task: str) -> tuple[str, int] | None:
    """Return the texts and the size of a task's vocabulary of byte pairs; None for any other."""
    from bench.tasks.readers.nested import TEXT_TASK

    choice = choose(task)
    if choice.options.get("tokenizer") != "bpe":
        return None
    is_nested = getattr(catalog.load("tasks", choice.name), "ARGUMENT", "") == TEXT_TASK
    texts = choice.argument if is_nested else ":".join(filter(None, (choice.name, choice.argument)))
    return texts, choice.options["vocab_size"]


def _start_file(model: ModelSpec, recipe: Recipe, seed: int) -> Path:
    """Return the file to begin with: of a run that of the same model, and of its sizes and this seed if there are such."""
    start = Path(recipe.init).expanduser()
    if not start.is_dir():
        return start
    found = {path: read_trained(path)[0] for path in files_of(start)}
    named = {path: trained for path, trained in found.items() if trained.cell.model.name == model.name}
    if not named:
        names = sorted({trained.cell.model.name for trained in found.values()})
        problem = f"`recipe=init={start}`: that run holds no weights of {model.name}, only of {', '.join(names)}"
        raise RequestError(problem, f"try `models={','.join(names)}`")
    alike = {path: trained for path, trained in named.items() if trained.cell.model.shape == model.shape} or named
    return min(alike, key=lambda path: (alike[path].seed != seed, alike[path].seed))


def _tensors(path: Path) -> Tensors:
    """Return the tensors of a file by name, of this program or of another. Raises RequestError if it holds no tensors by name."""
    import torch

    content = _read(path)
    if content.get("form") == FORM:
        return read_trained(path)[1]
    for key in NESTED:
        if isinstance(content.get(key), Mapping):
            content = content[key]
    if not content or not all(isinstance(value, torch.Tensor) for value in content.values()):
        raise RequestError(f"{path} holds no tensors by name", "name a state_dict saved by torch, or a .safetensors file")
    return content


def _has_same_answers(path: Path, model: ModelSpec, task: str, classes: Sequence[str]) -> bool:
    """Return whether the outputs of a file's head mean the same in a task, as far as is known: another program's file says nothing of them.

    Named classes are the same by name and order. Others are those of the same task, whatever its options; ids of tokens, whatever its texts.
    """
    if _read(path).get("form") != FORM:
        return True
    trained, _ = read_trained(path)
    if trained.classes and classes:
        return trained.classes == tuple(classes)
    there, here = map(_without_options, (trained.cell.workload.task, task))
    return there.partition(":")[0] == here.partition(":")[0] if model.interface.output == "tokens" else there == here


def _without_options(task: str) -> str:
    found = re.fullmatch(NAME_PATTERN, task)
    return task[: found.start("options")] if found else task


def _fitting(own: Tensors, path: Path, model: ModelSpec, recipe: Recipe, *, keeps_head: bool) -> Tensors:
    """Return the tensors of a file to take over: all of them, but for the head's if it has another number of classes, or is not to be kept.

    Raises RequestError unless all others have equal names and shapes.
    """
    theirs = _tensors(path)
    if not own.keys() & theirs.keys():  # an outside model is called through an adapter, which holds it as `model`
        theirs = {f"model.{name}": value for name, value in theirs.items()}
    head = _head_of(own, model.interface.num_classes)
    fresh = {
        name
        for name in head
        if not keeps_head or name not in theirs or theirs[name].shape != own[name].shape == (len(own[name]), *theirs[name].shape[1:])
    }
    named = f"`recipe=init={recipe.init}`"
    optional = {name for name in own if name.endswith(COUNTER)} | fresh
    if strange := [name for name in (*own, *theirs) if (name in own) != (name in theirs) and name not in optional]:
        problem = f"lacks {strange[0]}" if strange[0] in own else f"holds {strange[0]}, which the model has not"
        raise RequestError(f"{named} does not fit {model.name}{_differing_sizes(path, model)}: it {problem}", _what_fits(path, model))
    for name in own:
        if name in theirs and name not in fresh and own[name].shape != theirs[name].shape:
            there, here = (" x ".join(map(str, tensors[name].shape)) for tensors in (theirs, own))
            raise RequestError(
                f"{named}: {name} is {there} there and {here} in {model.name}; weights of another length or size cannot be taken over",
                _what_fits(path, model),
            )
    return {name: theirs[name] for name in own if name in theirs and name not in fresh}


def _cell_of(path: Path) -> Cell | None:
    return next(iter(cells_to_begin(str(path))), None)


def _differing_sizes(path: Path, model: ModelSpec) -> str:
    """Say which sizes differ from those of a file of the same model; "" of another."""
    cell = _cell_of(path)
    if cell is None or cell.model.name != model.name:
        return ""
    there, here = to_json(cell.model.shape), to_json(model.shape)
    differing = [f"{name} {there[name]} there and {here[name]} here" for name in there if there[name] != here[name]]
    return f" ({', '.join(differing)})" if differing else ""


def _what_fits(path: Path, model: ModelSpec) -> str:
    """Say which model, length and sizes fit a file, or which items; another library's says nothing of them."""
    cell = _cell_of(path)
    if cell is None:
        return "name weights of the same model, options, length and sizes (`seq`, `width`, `depth`, `heads`, `ffn_width`)"
    if cell.model.name != model.name:
        return f"those weights are of {cell.model.name}: try `models={cell.model.name}`"
    there, here = cell.model.interface, model.interface
    alike = f"name a task that is read and answered like {cell.workload.task}, on which those weights were trained"
    if there.input != here.input:
        return alike
    if (missing := there.vocab_size - here.vocab_size) > 0:
        return f"those weights read {there.vocab_size} ids: add +spare_ids={missing} to `task`, if it reads the same texts"
    if cell.model.shape != model.shape:
        return f"try {_sizes_text(cell.model, model)}"
    if there.patch_dim != here.patch_dim:
        return f"name a task of items of {there.patch_dim} numbers, like {cell.workload.task}"
    return alike


def _sizes_text(there: ModelSpec, here: ModelSpec) -> str:
    """Return the length, width and depth of weights, as flags; what usually follows from them only if it alone differs."""
    if there.family in OUTSIDE:
        return f"`seq={there.shape.seq_len}`"
    sizes = to_json(there.shape)
    names = ("seq_len", "width", "depth")
    if all(sizes[name] == getattr(here.shape, name) for name in names):
        names = tuple(sizes)
    return " ".join(f"`{name.removesuffix('_len')}={sizes[name]}`" for name in names)


def _head_of(tensors: Tensors, num_classes: int) -> tuple[str, ...]:
    """Return the names of weight and bias of the head: of the last layer with an output for each class; () without one."""
    weights = [name for name, value in tensors.items() if name.endswith(".weight") and value.ndim > 1 and len(value) == num_classes]
    return tuple(name for name in (weights[-1], f"{weights[-1].removesuffix('weight')}bias") if name in tensors) if weights else ()


def _read(path: Path) -> dict[str, Any]:
    """Return the content of a file of tensors and plain data. Raises RequestError if it cannot be read so."""
    import torch

    try:
        if path.suffix == ".safetensors":
            return dict(_safetensors(path))
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except RequestError:
        raise
    except Exception as error:  # of foreign bytes the unpickler raises anything
        reason = getattr(error, "strerror", "") or "it is damaged, or holds more than tensors"
        raise RequestError(f"{path} cannot be read as weights: {reason}", "name an intact file of tensors by name") from error
    if not isinstance(content, Mapping):
        raise RequestError(f"{path} holds no tensors by name", "name a state_dict saved by torch, or a .safetensors file")
    return dict(content)


def _safetensors(path: Path) -> Tensors:
    try:
        from safetensors.torch import load_file
    except ModuleNotFoundError as error:
        raise RequestError(f"{path} needs the library safetensors, which is not installed", "pip install safetensors") from error
    found: Tensors = load_file(path)
    return found


def sha256_of(path: Path) -> str:
    """Return the sha256 of a file, in hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
