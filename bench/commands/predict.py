"""Apply the trained models of a run to images."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import console
from bench.commands.options import Options
from bench.files import writing
from bench.peers import own_code
from bench.peers.own_import import children_end
from bench.serialize import id_of_text
from bench.spec import RequestError

if TYPE_CHECKING:
    from bench.measure.weights import Trained
    from bench.training.prediction import Prediction

NUM_SHOWN = 5
"""Classes that are shown of each prediction."""
PICTURES = "predictions"
ID_DIGITS = 6
"""Of the path of an image, in the name of its picture."""
PICTURE_SIDE = 480
"""Pixels along the longer side of the drawn image."""


@children_end()
def show_predictions(run: Path, images: Sequence[Path], model: str, seed: int | None, options: Options) -> None:
    """Print the likeliest classes of each image, and write a picture of it with what the models mix in.

    Raises RequestError if no weights fit the request, or an image cannot be read.
    """
    from bench.reading.store import read_plan_of_run
    from bench.training.prediction import predict

    places = {planned.cell.cell_id: place for place, planned in enumerate(read_plan_of_run(run).cells)}
    own_code.look_in(run)
    chosen = dict(sorted(_chosen(run, model, seed).items(), key=lambda pair: places.get(pair[1].cell.cell_id, len(places))))
    found = {label: predict(path, images) for label, path in _labels(chosen).items()}
    folder = options.out or run / PICTURES
    pictures = _write_pictures(images, found, folder)
    rows = [
        (image, picture, label, predictions[place])
        for place, (image, picture) in enumerate(zip(images, pictures, strict=True))
        for label, predictions in found.items()
    ]
    if options.json:
        console.print_json([_data(*row) for row in rows])
    else:
        console.print_table(("image", "model", "class", "probability"), _texts(rows), numeric=(False, False, False, True))
    console.say(f"pictures: {folder}")


def _chosen(run: Path, model: str, seed: int | None) -> dict[Path, Trained]:
    """Return the weights of each model that is asked for: of one seed, the first if none is named."""
    from bench.measure.weights import files_of, read_trained

    stored = {path: read_trained(path)[0] for path in files_of(run)}
    found = {path: trained for path, trained in stored.items() if trained.mean}
    if not found:
        tasks = ", ".join(dict.fromkeys(trained.cell.workload.task for trained in stored.values()))
        raise RequestError(
            f"{run} was trained on {tasks}, whose items are not images", "name a run on images, such as one of `task=digits`"
        )
    names = sorted({trained.cell.model.name for trained in found.values()})
    if model and model not in names:
        raise RequestError(
            f"{run} holds no weights of {model}, only of {', '.join(names)}", f"try `model={names[0]}`, or leave `model` out"
        )
    named = {path: trained for path, trained in found.items() if model in ("", trained.cell.model.name)}
    seeds = sorted({trained.seed for trained in named.values()})
    if seed is not None and seed not in seeds:
        raise RequestError(f"{run} holds no weights of seed {seed}, only of {', '.join(map(str, seeds))}", f"try `seed={seeds[0]}`")
    first: dict[str, Path] = {}
    for path, trained in sorted(named.items(), key=lambda pair: pair[1].seed):
        if seed in (None, trained.seed):
            first.setdefault(trained.cell.cell_id, path)
    return {path: named[path] for path in named if path in first.values()}


def _labels(chosen: Mapping[Path, Trained]) -> dict[str, Path]:
    """Name each model as shortly as tells it from the others: by its length too, and its id, only where needed."""
    cells = {path: trained.cell for path, trained in chosen.items()}
    ways = {path: (name := cell.model.name, f"{name} n={cell.model.shape.seq_len}", cell.cell_id) for path, cell in cells.items()}
    counts = Counter(label for labels in ways.values() for label in labels)
    return {next(label for label in labels if counts[label] == 1): path for path, labels in ways.items()}


def _write_pictures(images: Sequence[Path], found: Mapping[str, Sequence[Prediction]], folder: Path) -> list[Path]:
    import numpy as np
    from PIL import ImageOps

    from bench.report.charts.predictions import Panel, draw_predictions
    from bench.report.charts.style import figure_style
    from bench.tasks.readers.images import read_image

    written: list[Path] = []
    with writing(folder), figure_style():
        folder.mkdir(parents=True, exist_ok=True)
        for place, path in enumerate(images):
            own = id_of_text(str(path.resolve()))[:ID_DIGITS]  # so that namesakes in other folders have pictures too
            target = folder / f"{path.stem}-{own}.png"
            panels = [
                Panel(label=label, classes=predictions[place].best(NUM_SHOWN), map=predictions[place].map)
                for label, predictions in found.items()
            ]
            height, width = next(iter(found.values()))[place].size
            sides = (PICTURE_SIDE * width // max(height, width), PICTURE_SIDE * height // max(height, width))
            draw_predictions(path.name, np.asarray(ImageOps.fit(read_image(path), sides)), panels).savefig(target, format="png")
            written.append(target)
    return written


Row = tuple[Path, Path, str, "Prediction"]


def _data(image: Path, picture: Path, label: str, prediction: Prediction) -> dict[str, Any]:
    return {
        "image": str(image),
        "picture": str(picture),
        "model": label,
        "seed": prediction.trained.seed,
        "classes": [{"class": name, "probability": share} for name, share in prediction.best(NUM_SHOWN)],
    }


def _texts(rows: Sequence[Row]) -> list[tuple[str, str, str, str]]:
    """Return a row per class; image and model stand in the first one alone."""
    return [
        (str(image) if not place else "", label if not place else "", name, f"{share:.3f}")
        for image, _, label, prediction in rows
        for place, (name, share) in enumerate(prediction.best(NUM_SHOWN))
    ]
