"""bench predict: what a trained model says of an image, by hand too, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from bench.measure.weights import build_trained, files_of, read_trained
from bench.spec import Plan, Recipe
from models.layers.patches import cut_patches
from tests.answered import Answer
from tests.trained_run import made_task, trained_run

Run = tuple[Path, Plan]


@pytest.fixture(scope="module")
def photo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Wider than high, and lying on its side by its EXIF data."""
    path = tmp_path_factory.mktemp("photo") / "own photo.png"
    pixels = np.random.default_rng(1).integers(256, size=(20, 33, 3), dtype=np.uint8)
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(pixels).save(path, exif=exif)
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Two models and two seeds, on colour photographs of 8 pixels."""
    folder = tmp_path_factory.mktemp("run")
    plan, _ = trained_run(folder, made_task(tmp_path_factory.mktemp("images")), seeds=2)
    return folder, plan


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Grey, and without a class token."""
    folder = tmp_path_factory.mktemp("digits")
    return folder, trained_run(folder, "digits+items=50", models="metaformer+mixer=attention+pool=mean", seq="16")[0]


def predicted(answer: Answer, *words: object) -> Any:
    code, out, err = answer("predict", *words, "--json")
    assert code == 0, err
    return json.loads(out)


def by_hand(path: Path, photo: Path) -> dict[str, float]:
    """The probability of each class: read, turned, resized, cut and normalised here, without the program's reader."""
    trained, model = build_trained(path)
    channels = len(trained.mean)
    side = 8 if channels == 3 else 32
    upright = Image.open(photo).convert("RGB").transpose(Image.Transpose.ROTATE_270).convert("RGB" if channels == 3 else "L")
    width, height = upright.size
    edge = min(width, height)
    small = upright.resize((width * side // edge, height * side // edge), Image.Resampling.BILINEAR)
    top, left = round((small.height - side) / 2), round((small.width - side) / 2)
    pixels = np.asarray(small.crop((left, top, left + side, top + side))).reshape(side, side, channels)
    normal = (torch.tensor(pixels).permute(2, 0, 1) / 255 - torch.tensor(trained.mean)[:, None, None]) / torch.tensor(trained.spread)[
        :, None, None
    ]
    with torch.no_grad():
        shares = model(cut_patches(normal[None], side // 2 if channels == 3 else side // 4))[0].softmax(0)
    return dict(zip(trained.classes, shares.tolist(), strict=True))


def test_each_model_says_what_it_says_by_hand(run: Run, photo: Path, answer: Answer, tmp_path: Path) -> None:
    folder, plan = run
    found = predicted(answer, folder, photo, "--out", tmp_path)
    assert [(row["model"], row["seed"]) for row in found] == [("gmlp", 0), ("vit", 0)]
    for row, planned in zip(found, plan.cells, strict=True):
        expected = by_hand(folder / "weights" / f"{planned.cell.cell_id}-seed0.pt", photo)
        assert set(expected) == {"cat", "dog"}
        assert {entry["class"]: pytest.approx(entry["probability"], abs=1e-5) for entry in row["classes"]} == expected
        assert row["classes"][0]["probability"] >= row["classes"][1]["probability"]


def test_a_grey_task_reads_grey_images_and_shows_five_classes(digits: Run, photo: Path, answer: Answer, tmp_path: Path) -> None:
    folder, _ = digits
    (row,) = predicted(answer, folder, photo, "--out", tmp_path)
    expected = by_hand(files_of(folder)[0], photo)
    best = sorted(expected, key=lambda name: -expected[name])[:5]
    assert [entry["class"] for entry in row["classes"]] == best
    assert [entry["probability"] for entry in row["classes"]] == pytest.approx([expected[name] for name in best], abs=1e-5)


def test_what_is_normalised_in_store_is_normalised_alike_for_a_prediction(digits: Run) -> None:
    """Grey levels of 0 to 16 in store, of 0 to 255 in a photograph: a digit that is given as an image is the stored one."""
    from bench.tasks import Split, load_splits
    from bench.training.reading import Reader

    trained, _ = read_trained(files_of(digits[0])[0])
    stored = load_splits("digits", num_tokens=16).test.inputs[:3]
    mean, spread = torch.tensor(trained.mean), torch.tensor(trained.spread)
    pixels = ((stored * spread + mean) * 255).round().clamp(0, 255).to(torch.uint8)
    read = Reader(patch_side=8, mean=mean, spread=spread).read(Split(inputs=pixels, targets=torch.zeros(3))).data
    torch.testing.assert_close(read, cut_patches(stored, 8), atol=0.01, rtol=0)


def test_a_model_and_a_seed_can_be_chosen(run: Run, photo: Path, answer: Answer, tmp_path: Path) -> None:
    folder, plan = run
    (row,) = predicted(answer, folder, photo, "--model", "vit", "--seed", 1, "--out", tmp_path)
    expected = by_hand(folder / "weights" / f"{plan.cells[1].cell.cell_id}-seed1.pt", photo)
    assert (row["model"], row["seed"]) == ("vit", 1)
    assert {entry["class"]: pytest.approx(entry["probability"], abs=1e-5) for entry in row["classes"]} == expected


def test_each_image_has_a_picture_beside_the_run(run: Run, photo: Path, answer: Answer, tmp_path: Path) -> None:
    folder, _ = run
    namesakes = [tmp_path / photo.name, tmp_path / f"{photo.stem}.bmp"]
    for namesake in namesakes:
        Image.open(photo).save(namesake)
    found = predicted(answer, folder, photo, namesakes[0]) + predicted(answer, folder, namesakes[1])
    pictures = list(dict.fromkeys(Path(row["picture"]) for row in found))
    assert len(pictures) == 3
    assert sorted(pictures) == sorted((folder / "predictions").iterdir())
    for picture in pictures:
        assert picture.name.startswith("own photo-")
        with Image.open(picture) as drawn:
            assert drawn.size[0] > 1000
    assert {Path(row["picture"]) for row in predicted(answer, folder, photo)} == {pictures[0]}  # again, its own is replaced


def test_the_map_is_the_class_tokens_row_of_the_last_gate(run: Run, photo: Path) -> None:
    from bench.training.prediction import predict

    folder, plan = run
    path = folder / "weights" / f"{plan.cells[0].cell.cell_id}-seed0.pt"
    (found,) = predict(path, [photo])
    _, weights = read_trained(path)
    row = weights["blocks.1.gating.weights.0"].reshape(5, 5)[0, 1:].abs()
    assert found.map is not None
    np.testing.assert_allclose(found.map, (row / row.max()).reshape(2, 2), rtol=1e-5)


def test_without_a_class_token_the_map_is_the_mean_over_rows(digits: Run, photo: Path) -> None:
    """Each row of attention sums to one, and so do the columns' means over all of them."""
    from bench.training.prediction import predict

    (found,) = predict(files_of(digits[0])[0], [photo])
    assert found.map is not None
    assert found.map.shape == (4, 4)
    assert found.map.max() == 1.0


def test_the_table_names_image_and_model_once(run: Run, photo: Path, answer: Answer, tmp_path: Path) -> None:
    code, out, err = answer("predict", run[0], photo, "--out", tmp_path)
    assert code == 0
    assert [sum(line.split("  ")[0] == str(photo) for line in out.splitlines()), out.count("gmlp"), out.count("cat")] == [2, 1, 2]
    assert f"pictures: {tmp_path}" in err


def test_the_veil_is_as_dense_as_the_map() -> None:
    from bench.report.charts.predictions import OPACITY, Panel, draw_predictions

    weights = np.array([[0.0, 1.0], [0.5, 0.25]])
    classes = [("cat", 0.9), ("dog", 0.1)]
    panels = [Panel(label="vit", classes=classes, map=weights), Panel(label="timm:resnet18", classes=classes, map=None)]
    figure = draw_predictions("a.png", np.zeros((8, 8, 3), dtype=np.uint8), panels)
    plain, veiled, bars, other, _, scale = figure.axes
    assert [len(axis.images) for axis in (plain, veiled, other)] == [1, 2, 1]
    np.testing.assert_allclose(np.asarray(veiled.images[1].get_array())[..., 3], OPACITY * weights)
    assert [axis.get_title(loc="left") or axis.get_title() for axis in (veiled, other)] == [
        "ViT: cat",
        "timm:resnet18: cat (no mixing weights to show)",
    ]
    assert [text.get_text() for text in bars.texts] == ["90.0%", "10.0%"]
    tint = np.asarray(scale.images[1].get_array())[0, :, 3]
    assert (tint[0], tint[-1]) == (0.0, OPACITY)
    assert [text.get_text().strip() for text in scale.texts] == ["0", "1"]
    assert len(draw_predictions("a.png", np.zeros((8, 8, 3), dtype=np.uint8), panels[1:]).axes) == 3  # no tint, no scale


def test_the_picture_is_cut_to_the_shape_that_the_model_reads(
    photo: Path, answer: Answer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from bench.report.charts import predictions

    drawn: list[tuple[int, ...]] = []
    real = predictions.draw_predictions

    def draw(name: str, image: Any, panels: Any) -> Any:
        drawn.append(image.shape)
        return real(name, image, panels)

    monkeypatch.setattr(predictions, "draw_predictions", draw)
    task = f"{made_task(tmp_path / 'images').removesuffix('+side=8')}+height=4+width=12"
    trained_run(tmp_path / "run", task, models="gmlp", seq="4", recipe=Recipe(epochs=1, batch_size=4))
    predicted(answer, tmp_path / "run", photo, "--out", tmp_path / "pictures")
    assert drawn == [(160, 480, 3)]


@pytest.mark.slow
def test_a_plan_that_keeps_weights_keeps_them_where_it_is_run(answer: Answer, in_tmp: Path, photo: Path) -> None:
    asked = f"--models vit --task {made_task(in_tmp)} --seq 5 --width 16 --depth 1 --metrics accuracy --epochs 1 --seeds 2"
    for typed in (f"plan {asked} --save-weights --out plan.json", "run --plan plan.json --on inline --out results/run"):
        code, _, told = answer(typed)
        assert code == 0
    assert "weights: results/run/weights; try: bench predict results/run IMAGE" in told
    assert len(files_of(Path("results/run"))) == 2
    assert "weights: results/run/weights, of 2 trainings" in Path("reports/run/report.html").read_text()
    assert {row["model"] for row in predicted(answer, "results/run", photo)} == {"vit"}


REFUSED = {
    "no run": ("nowhere PHOTO", "no run folder at", "name a folder in results/"),
    "no image": ("RUN none.png", "none.png cannot be read as an image: No such file", "a file that is there"),
    "a folder": ("RUN RUN", "cannot be read as an image: Is a directory", "the images in it"),
    "not an image": ("RUN RUN/plan.json", "plan.json cannot be read as an image", "name an image, a file such as .jpg, .jpeg, .png"),
    "an empty image": ("RUN RUN/empty.png", "empty.png cannot be read as an image", "replace it with an intact copy"),
    "unknown model": ("RUN PHOTO --model vti", "holds no weights of vti, only of gmlp, vit", "--model gmlp"),
    "unknown seed": ("RUN PHOTO --seed 9", "holds no weights of seed 9, only of 0, 1", "--seed 0"),
    "a seed that is no number": ("RUN PHOTO --seed x", "'--seed'", "bench predict"),
    "images left out": ("RUN", "Missing argument 'IMAGE...'", "bench predict"),
}
"""What is typed, what is said of it and what to type next."""


def refusal(answer: Answer, *words: object) -> str:
    code, out, err = answer("predict", *words)
    assert (code, out) == (2, "")
    assert "Traceback" not in err
    assert len(err.splitlines()) == 2
    return err


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_wrong_is_refused_in_one_line(name: str, run: Run, photo: Path, answer: Answer) -> None:
    typed, problem, hint = REFUSED[name]
    (run[0] / "empty.png").touch()
    told = refusal(answer, *[word.replace("RUN", str(run[0])).replace("PHOTO", str(photo)) for word in typed.split()])
    assert problem in told
    assert hint in told


def test_a_run_without_weights_or_without_images_is_refused(photo: Path, answer: Answer, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    trained_run(folder, "copy+symbols=4+items=40+test_items=10", models="vit", seq="8")
    assert "trained on copy+symbols=4+items=40+test_items=10, whose items are not images" in refusal(answer, folder, photo)
    for file in files_of(folder):
        file.unlink()
    assert "hint: train with --save-weights" in refusal(answer, folder, photo)
