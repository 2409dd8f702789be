"""A folder of images as a task: counted without reading them, then read, resized, cut and sorted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.datasets.folder import IMG_EXTENSIONS

from bench.measure.model import build_model
from bench.spec import Recipe, RequestError
from bench.tasks import Place, Splits, images
from bench.tasks._info import Images, choose, info_of
from bench.tasks.readers.images import EXTENSIONS
from bench.training.data import load_training_data
from models.layers.stem import ConvolutionStem
from tests.planning.plans import plan_of, planned

ORIENTATION = 0x0112
"""The EXIF tag."""


def save(path: Path, colour: tuple[int, int, int], size: tuple[int, int] = (10, 8)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two classes: three training images (one below a folder), two for testing."""
    root = tmp_path / "pets"
    save(root / "train/cat/b.png", (0, 10, 0))
    save(root / "train/cat/a.PNG", (0, 20, 0))
    save(root / "train/dog/more/c.bmp", (30, 0, 0))
    (root / "train/dog/notes.txt").write_text("no image")
    save(root / "test/cat/d.png", (0, 40, 0))
    save(root / "test/dog/e.png", (50, 0, 0))
    return root


def load(text: str) -> Splits:
    return images.load(choose(text), num_tokens=16, place=Place())


def refusal(text: str) -> str:
    with pytest.raises(RequestError) as raised:
        images.info(choose(text))
    assert raised.value.hint
    return str(raised.value)


def test_items_are_sorted_by_class_and_path(folder: Path) -> None:
    train = load(f"images:{folder}").train
    assert train.inputs[:, :, 0, 0].tolist() == [[0, 20, 0], [0, 10, 0], [30, 0, 0]]
    assert train.targets.tolist() == [0, 0, 1]


def test_an_image_is_resized_by_its_shorter_edge_and_its_middle_kept(folder: Path) -> None:
    thirds = np.zeros((4, 12, 3), dtype=np.uint8)
    thirds[:, 4:8] = (7, 8, 9)
    Image.fromarray(thirds).save(folder / "test/cat/d.png")
    Image.new("L", (6, 6), 99).save(folder / "test/dog/e.png")  # grey images become RGB
    first, grey = load(f"images:{folder}+side=4").test.inputs
    assert grey.unique().tolist() == [99]
    assert first.shape == (3, 4, 4)
    assert first.flatten(1).unique(dim=1).flatten().tolist() == [7, 8, 9]


def test_a_rectangle_is_the_middle_of_the_image_that_just_covers_it(folder: Path) -> None:
    """Of 12 x 12 resized to 8 x 8 the middle 4 rows; of 4 x 16 the middle 8 columns."""
    down, across = np.zeros((12, 12, 3), dtype=np.uint8), np.zeros((4, 16, 3), dtype=np.uint8)
    down[1:11], across[:, 4:12] = (7, 8, 9), (7, 8, 9)
    Image.fromarray(down).save(folder / "test/cat/d.png")
    Image.fromarray(across).save(folder / "test/dog/e.png")
    for image in load(f"images:{folder}+height=4+width=8").test.inputs:
        assert image.shape == (3, 4, 8)
        assert image.flatten(1).unique(dim=1).flatten().tolist() == [7, 8, 9]


def test_a_rectangle_has_square_patches_in_rows(folder: Path) -> None:
    task = f"images:{folder}+height=16+width=24"
    reads = info_of(task).reads
    assert isinstance(reads, Images)
    # patches of 8, 4, 2 and 1 pixels: 2 x 3, 4 x 6, 8 x 12 and 16 x 24 of them
    assert (reads.seq_lens("mean"), reads.seq_lens("cls")) == ((6, 24, 96, 384), (7, 25, 97, 385))
    interface = info_of(task).interface(25, "cls")
    assert (interface.patch_dim, interface.rows) == (3 * 4 * 4, 4)
    with pytest.raises(RequestError, match=r"16 x 24 px, pool cls\); lengths that fit: 7, 25, 97, 385"):
        info_of(task).interface(17, "cls")
    assert info_of(f"images:{folder}").interface(17, "cls").rows == 0


def test_a_rectangle_reaches_every_family_and_its_stem_as_it_is(folder: Path) -> None:
    """2 x 8 patches are no 4 x 4 ones, and the stem puts them together to the image."""
    task = f"images:{folder}+height=8+width=32"
    plan = planned(
        models="gmlp+pool=mean,vit+pool=mean+stem=convolution,transformer+pool=mean", task=task, seq="16", metrics="params,accuracy"
    )
    data = load_training_data(plan.cells[1].cell.model, task, Recipe(), seed=0)
    whole = load(task)
    patches = data.reader.read(whole.test).data
    assert patches.shape == (2, 16, 48)
    stem = build_model(plan.cells[1].cell.model).get_submodule("embedding.project")
    assert isinstance(stem, ConvolutionStem)
    assert whole.mean is not None
    assert whole.spread is not None
    torch.testing.assert_close(stem.image(patches), (whole.test.inputs / 255 - whole.mean[:, None, None]) / whole.spread[:, None, None])
    for cell in plan.cells:
        assert build_model(cell.cell.model)(patches).shape == (2, 2)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        pytest.param({"models": "timm:vit_tiny_patch16_224", "params": "", "seq": "17"}, "reads square images", marks=pytest.mark.slow),
        ({"models": "vit+pool=mean", "params": "250k", "seq": "16", "recipe": Recipe(teacher="convolution")}, "needs square images"),
    ],
)
def test_what_needs_squares_is_refused(folder: Path, flags: dict[str, Any], said: str) -> None:
    with pytest.raises(RequestError, match=said):
        plan_of(task=f"images:{folder}+height=8+width=32", metrics="params,accuracy", **flags)


@pytest.mark.parametrize("size", ["+height=8", "+width=8", "+height=1+width=8"])
def test_a_rectangle_without_two_sides_is_refused(folder: Path, size: str) -> None:
    assert "height and width go together" in refusal(f"images:{folder}{size}")


def test_linked_folders_are_counted_as_they_are_read(folder: Path, tmp_path: Path) -> None:
    save(tmp_path / "elsewhere/f.png", (0, 0, 60))
    (folder / "train/cat/linked").symlink_to(tmp_path / "elsewhere")
    assert images.info(choose(f"images:{folder}")).num_train == len(load(f"images:{folder}").train.targets) == 4


def test_a_link_to_a_folder_above_is_not_followed(folder: Path) -> None:
    (folder / "train/cat/round").symlink_to("..")
    (folder / "train/cat/self").symlink_to(".")
    assert images.info(choose(f"images:{folder}")).num_train == len(load(f"images:{folder}").train.targets) == 3


def test_hidden_files_and_folders_are_no_data(folder: Path) -> None:
    """.ipynb_checkpoints was a class more, or held an item more."""
    for place in ("train/.ipynb_checkpoints/a.png", "test/.ipynb_checkpoints/a.png", "train/cat/.ipynb_checkpoints/a.png"):
        save(folder / place, (1, 2, 3))
    (folder / "train/cat/._a.png").write_bytes(b"\x00\x05\x16\x07")  # as macOS writes beside files on foreign disks
    info, found = images.info(choose(f"images:{folder}")), load(f"images:{folder}")
    assert (info.num_classes, info.num_train, info.num_test) == (2, 3, 2)
    assert (found.train.targets.tolist(), found.test.targets.tolist()) == ([0, 0, 1], [0, 1])


def test_16_bits_are_read_as_their_8_high_ones(folder: Path) -> None:
    """All of them were white."""
    wide = np.full((4, 4), 40 * 256 + 17, dtype=np.uint16)
    Image.fromarray(wide).save(folder / "test/cat/d.png")
    Image.fromarray(wide).save(folder / "test/cat/d.tif")
    assert load(f"images:{folder}+side=4").test.inputs[:2].unique().tolist() == [40]


@pytest.mark.parametrize(("dtype", "said"), [(np.float32, "floats"), (np.int32, "32-bit numbers")])
def test_pixels_of_unknown_range_are_refused(folder: Path, dtype: type, said: str) -> None:
    """Floats from 0 to 1 were all black."""
    unclear = folder / "train/cat/b.tif"
    Image.fromarray(np.ones((4, 4), dtype=dtype)).save(unclear)
    with pytest.raises(RequestError, match=f"the pixels of {unclear} are {said}"):
        load(f"images:{folder}")


def test_an_image_stands_upright(folder: Path) -> None:
    above = np.zeros((8, 8, 3), dtype=np.uint8)
    above[:4] = 255
    turned = Image.Exif()
    turned[ORIENTATION] = 3  # by 180 degrees
    Image.fromarray(above).save(folder / "test/dog/e.png", exif=turned)
    assert load(f"images:{folder}+side=8").test.inputs[1, 0, :, 0].tolist() == [0] * 4 + [255] * 4


def test_a_huge_image_is_named(folder: Path) -> None:
    Image.new("1", (20_000, 20_000)).save(folder / "train/cat/huge.png")
    with pytest.raises(RequestError, match=r"huge\.png cannot be read as an image"):
        load(f"images:{folder}")


def test_val_beside_test_is_for_validation(folder: Path) -> None:
    for name in ("cat", "dog"):
        save(folder / f"val/{name}/f.png", (1, 2, 3))
    splits = load(f"images:{folder}")
    assert info_of(f"images:{folder}").num_validation == 2
    assert splits.validation is not None
    assert splits.validation.inputs[:, :, 0, 0].tolist() == [[1, 2, 3]] * 2
    assert len(splits.test.targets) == 2
    (folder / "test").rename(folder / "elsewhere")  # without it, val is for testing
    info = images.info(choose(f"images:{folder}"))
    assert (info.num_validation, info.num_test) == (0, 2)
    assert load(f"images:{folder}").validation is None
    assert EXTENSIONS == IMG_EXTENSIONS


def test_what_is_wrong_with_a_folder_is_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="there is no folder"):
        images.require_data(choose(f"images:{tmp_path / 'nowhere'}"), Place())
    assert str(tmp_path / "nowhere/train") in refusal(f"images:{tmp_path / 'nowhere'}")
    for split in ("train", "test"):
        save(tmp_path / "one" / split / "only/a.png", (0, 0, 0))
    assert "at least 2 are needed" in refusal(f"images:{tmp_path / 'one'}")
    assert "side of task images must be a whole number from 2" in refusal(f"images:{folder}+side=1")
    save(folder / "test/fox/x.png", (0, 0, 0))
    assert refusal(f"images:{folder}").endswith("train and test differ in classes: fox")
    (folder / "train/fox").mkdir()
    assert "class fox of train has no images" in refusal(f"images:{folder}")
    (folder / "test").rename(folder / "tests")
    assert refusal(f"images:{folder}").endswith(f"there is no folder {folder / 'test'}")


def test_a_folder_of_classes_is_split_always_alike(tmp_path: Path) -> None:
    for number in range(8):
        save(tmp_path / f"pets/cat/{number}.png", (0, number, 0))
    save(tmp_path / "pets/dog/a.png", (30, 0, 0))
    save(tmp_path / "pets/dog/b.png", (60, 0, 0))
    asked = f"images:{tmp_path / 'pets'}+split=0.25"
    info, found, again = images.info(choose(asked)), load(asked), load(asked)
    assert (info.num_train, info.num_test, info.num_classes) == (7, 3, 2)
    assert (len(found.train.targets), found.test.targets.tolist()) == (7, [0, 0, 1])  # a quarter of eight, and one of two at least
    assert found.test.inputs.equal(again.test.inputs)
    seen = {tuple(item[:, 0, 0].tolist()) for split in (found.train, found.test) for item in split.inputs}
    assert len(seen) == 10
    save(tmp_path / "alone/cat/a.png", (0, 0, 0))
    save(tmp_path / "alone/dog/a.png", (0, 0, 0))
    assert "class cat of train has no images" in refusal(f"images:{tmp_path / 'alone'}+split=0.5")


def test_a_folder_that_is_split_already_is_not_split_again(folder: Path) -> None:
    assert "so it is split already" in refusal(f"images:{folder}+split=0.25")


@pytest.mark.parametrize("kept", [0, 45])
def test_a_file_that_is_no_image_is_named(folder: Path, kept: int) -> None:
    torn = folder / "train/cat/b.png"
    torn.write_bytes(torn.read_bytes()[:kept])
    with pytest.raises(RequestError, match=str(torn)) as raised:
        load(f"images:{folder}")
    assert "\n" not in str(raised.value)
