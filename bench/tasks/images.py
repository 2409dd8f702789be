"""Your own images: one folder per class under FOLDER/train and FOLDER/test.

    FOLDER/train/cat/a.png  FOLDER/train/dog/b.jpg  FOLDER/test/cat/c.png  FOLDER/test/dog/d.png

FOLDER/val, if present, is the validation split. Without FOLDER/test, FOLDER/val is the test split, and validation items are drawn from train. With
`+split=0.25` the classes lie in FOLDER itself, as in FOLDER/cat/a.png, and a quarter of each class is drawn for testing, always the same images. The
layout is torchvision's ImageFolder, less hidden files and folders (such as .ipynb_checkpoints). Each image is turned upright (EXIF) and converted to
RGB of 8 bits, its shorter edge is resized to `side` pixels, and the central square is kept. `+height=32+width=64` keeps a central rectangle of that
size instead, of the image resized to just cover it; patches stay square. Images are uint8, sorted by class and path. FOLDER is a path as written,
not relative to the data root.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from bench.spec import RequestError
from bench.tasks import Place, Split, Splits
from bench.tasks._info import Images, TaskChoice, TaskInfo
from bench.tasks.readers.images import EXTENSIONS, SUBSET_SEED, read_images, splits_of
from models.layers.options import Option

ARGUMENT = "FOLDER"
OPTIONS = (Option("side", 32, low=2), Option("split", 0.0, high=0.9), Option("height", 0), Option("width", 0))
HIDDEN = "."
LAYOUT = "the layout is FOLDER/train/<class>/*.png and FOLDER/test/<class>/*.png; or FOLDER/<class>/*.png with images:FOLDER+split=0.25"


def info(choice: TaskChoice) -> TaskInfo:
    """Count the image files.

    Raises RequestError if a split is missing, a class is empty, or classes differ between splits.
    """
    height, width = _size(choice)
    reads = Images(channels=3, height=height, width=width)
    counts = _drawn_counts(choice) if choice.options["split"] else {name: _count(folder) for name, folder in _split_folders(choice).items()}
    _require_same_classes(choice, counts)
    num_items = {name: sum(of_class.values()) for name, of_class in counts.items()}
    num_classes = len(counts["train"])
    return TaskInfo(
        name=choice.text,
        summary=f"{sum(num_items.values()):,} images in {num_classes} classes, at {reads.size_text}",
        source=choice.argument,
        reads=reads,
        num_classes=num_classes,
        chance=1 / num_classes,
        num_train=num_items["train"],
        num_validation=num_items.get("validation", 0),
        num_test=num_items["test"],
    )


def require_data(choice: TaskChoice, place: Place) -> None:
    info(choice)


def load(choice: TaskChoice, *, num_tokens: int, place: Place) -> Splits:
    """Load the splits, uint8 RGB.

    Raises RequestError, naming the file, for an unreadable image.
    """
    require_data(choice, place)
    if choice.options["split"]:
        root = Path(choice.argument).expanduser()
        train, test = _drawn_split(choice, _read(choice, root))
        return splits_of(train, test, classes=tuple(_files(root)))
    folders = _split_folders(choice)
    splits = {name: _read(choice, folder) for name, folder in folders.items()}
    return splits_of(splits["train"], splits["test"], splits.get("validation"), tuple(_files(folders["train"])))


def _split_folders(choice: TaskChoice) -> dict[str, Path]:
    root = Path(choice.argument).expanduser()
    train, validation, test = root / "train", root / "val", root / "test"
    folders = {"train": train, "test": test} if test.is_dir() else {"train": train, "test": validation}
    if test.is_dir() and validation.is_dir():
        folders["validation"] = validation
    absent = [folder for folder in folders.values() if not folder.is_dir()]
    if absent:
        found = test if absent[0] == validation else absent[0]
        raise RequestError(f"`task={choice.text}`: there is no folder {found}", LAYOUT)
    return folders


def _drawn_counts(choice: TaskChoice) -> dict[str, dict[str, int]]:
    """Count the images of each class that are drawn for testing, at least one, and those that are left to train on."""
    root = Path(choice.argument).expanduser()
    if not root.is_dir():
        raise RequestError(f"`task={choice.text}`: there is no folder {root}", LAYOUT)
    whole = _count(root)
    if beside := sorted({"train", "test"} & whole.keys()):
        raise RequestError(
            f"`task={choice.text}`: {root} has a folder {beside[0]}, so it is split already",
            "leave out +split, or name the folder of the classes",
        )
    test = {name: _num_test(num, choice.options["split"]) for name, num in whole.items()}
    return {"train": {name: num - test[name] for name, num in whole.items()}, "test": test}


def _num_test(num: int, share: float) -> int:
    return min(num, max(1, round(share * num)))


def _drawn_split(choice: TaskChoice, whole: Split) -> tuple[Split, Split]:
    """Draw the test items of each class; the draw depends on the number of its images alone."""
    import torch

    is_test = torch.zeros(len(whole.targets), dtype=torch.bool)
    for label in whole.targets.unique():
        of_class = (whole.targets == label).nonzero().flatten()
        order = torch.randperm(len(of_class), generator=torch.Generator().manual_seed(SUBSET_SEED))
        is_test[of_class[order[: _num_test(len(of_class), choice.options["split"])]]] = True
    return whole.select(~is_test), whole.select(is_test)


def _count(folder: Path) -> dict[str, int]:
    return {name: len(files) for name, files in _files(folder).items()}


def _files(folder: Path) -> dict[str, list[Path]]:
    """Return the image files of each class, sorted.

    Like ImageFolder, it follows links and searches subfolders of any depth; unlike it, it skips what is hidden.
    """
    classes = sorted(entry for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith(HIDDEN))
    return {found.name: list(_below(found, frozenset({folder.resolve()}))) for found in classes}


def _below(folder: Path, above: frozenset[Path]) -> Iterator[Path]:
    """Yield the images of a folder, then those of its subfolders; a link to a folder `above` would lead round in a circle and is left out."""
    if (real := folder.resolve()) in above:
        return
    shown = sorted(entry for entry in folder.iterdir() if not entry.name.startswith(HIDDEN))
    folders = [entry for entry in shown if entry.is_dir()]
    yield from (entry for entry in shown if entry.name.lower().endswith(EXTENSIONS) and entry not in folders)
    for entry in folders:
        yield from _below(entry, above | {real})


def _require_same_classes(choice: TaskChoice, counts: Mapping[str, Mapping[str, int]]) -> None:
    learned = set(counts["train"])
    for split, of_class in counts.items():
        empty = [name for name, num_images in of_class.items() if not num_images]
        if empty:
            raise RequestError(f"`task={choice.text}`: class {empty[0]} of {split} has no images ({', '.join(EXTENSIONS)})", LAYOUT)
        differing = sorted(learned ^ set(of_class))
        if differing:
            raise RequestError(f"`task={choice.text}`: train and {split} differ in classes: {', '.join(differing)}", LAYOUT)
    if len(learned) < 2:
        raise RequestError(f"`task={choice.text}`: {len(learned)} class found in train; at least 2 are needed", LAYOUT)


def _size(choice: TaskChoice) -> tuple[int, int]:
    """Return height and width in pixels. Raises RequestError if one is given alone or is a single pixel."""
    height, width, side = (choice.options[name] for name in ("height", "width", "side"))
    if not height and not width:
        return side, side
    if min(height, width) < 2:
        raise RequestError(
            f"`task={choice.text}`: height and width go together, each of 2 pixels or more, not {height} and {width}",
            f"write +height={height or side}+width={width or side}, or +side={side} for squares",
        )
    return height, width


def _read(choice: TaskChoice, folder: Path) -> Split:
    """Read one split, sorted by class and path.

    Images are `(items, 3, height, width)` uint8.
    """
    import torch

    height, width = _size(choice)
    stored = [(label, path) for label, files in enumerate(_files(folder).values()) for path in files]
    images = read_images([path for _, path in stored], height=height, width=width, of=f"`task={choice.text}`: ")
    return Split(inputs=images, targets=torch.tensor([label for label, _ in stored], dtype=torch.int64))
