"""Are the counts right for models that people use? The smallest architecture of every family that builds here, counted by all counters.

    python -m tests.counting.referee --out FILE.csv [--like FILE.csv]

The families are the modules of timm's and torchvision's models, and transformers' image classifiers. A row per architecture: forward FLOPs as
`bench` counts them, by fvcore, and by the shapes that torch's profiler notes of the kernels that run (`tests.counting.profiled`); FLOPs of a
training step as `bench` counts them, with what runs again, and by the profiler. `note` says why a count is missing.

`--like` takes the architectures of an earlier table.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import csv
import functools
import importlib
import importlib.util
import os
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bench import fork_server
from bench.console import print_lines
from bench.errors import one_line
from bench.flop_counter import count_with_fvcore
from bench.peers.counted import counted, sample_of
from models.layers.shape import Interface
from tests.counting.profiled import forward_flops, step_flops

COLUMNS = (
    "library version family architecture input params flops flops_profiler flops_fvcore flops_train recomputed flops_train_profiler agree note"
).split()
LIBRARIES = ("timm", "torchvision", "transformers")
LIMIT_S = 150
"""Time for all counts of an architecture."""
MOST_PARAMS = 120_000_000
NOT_CLASSIFIERS = ("detection", "quantization", "optical_flow", "video")
"""Modules of torchvision whose models read or answer something else, or compute in whole numbers."""
NOT_IMAGES = ("imagegpt", "siglip2")
"""Kinds of transformers' image classifiers that read colours' numbers, or patches with a mask."""
WITH_AUXILIARY_HEADS = ("googlenet", "inception")


class Answering(nn.Module):
    """A model of any library that answers with one tensor `(batch, classes)`."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        found: Any = self.model(images)
        found = getattr(found, "logits", found)
        if isinstance(found, Mapping):
            found = found["out"] if "out" in found else next(iter(found.values()))
        logits: Tensor = found if isinstance(found, Tensor) else found[0]
        return logits.flatten(2).mean(2) if logits.dim() > 2 else logits


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """A model of a library, as `bench.peers.counted` counts it.

    `family`: the module, or the kind of configuration, that defines it.
    `build`: builds it with weights drawn, on the default device.
    `side`: of its square images, in pixels.
    """

    library: str
    family: str
    name: str
    build: Callable[[], nn.Module]
    channels: int
    side: int
    digest: str = ""
    reads_images: bool = True

    @property
    def interface(self) -> Interface:
        return Interface(input="images", patch_dim=self.channels)

    @property
    def data_tokens(self) -> int:
        return self.side**2

    def create(self) -> nn.Module:
        torch.manual_seed(0)
        return Answering(self.build())


def of_timm() -> Iterator[Architecture]:
    import timm

    for family in timm.list_modules():
        for name in timm.list_models(module=family):
            if not name.startswith("test_"):  # made for timm's own tests
                build = functools.partial(timm.create_model, name)
                known: Any = timm.get_pretrained_cfg(name)
                channels, height, _ = known.input_size
                yield Architecture(library="timm", family=family, name=name, build=build, channels=channels, side=height)


def of_torchvision() -> Iterator[Architecture]:
    from torchvision import models

    for name in models.list_models():
        family = models.get_model_builder(name).__module__.removeprefix("torchvision.models.")
        kind = family.partition(".")[0]
        if kind not in NOT_CLASSIFIERS:
            options: dict[str, Any] = {"weights_backbone": None} if kind == "segmentation" else {}
            if kind in WITH_AUXILIARY_HEADS:
                options = {"aux_logits": False, "init_weights": True}
            side = 224 if kind == "segmentation" else models.get_model_weights(name).DEFAULT.transforms().crop_size[0]
            build = functools.partial(models.get_model, name, weights=None, **options)
            yield Architecture(library="torchvision", family=family, name=name, build=build, channels=3, side=side)


def of_transformers() -> Iterator[Architecture]:
    library: Any = importlib.import_module("transformers")
    known: Any = importlib.import_module("transformers.models.auto.modeling_auto")
    for family, names in known.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES.items():
        if family in NOT_IMAGES:
            continue
        name = names if isinstance(names, str) else names[0]
        with contextlib.suppress(AttributeError, ImportError, ValueError):  # needs a library that is missing
            kind = getattr(library, name)
            config = kind.config_class()
            size = getattr(config, "image_size", None) or 224
            side, channels = size if isinstance(size, int) else size[0], getattr(config, "num_channels", 3)
            build = functools.partial(_of_config, kind, config)
            yield Architecture(library="transformers", family=family, name=name, build=build, channels=channels, side=side)


def _of_config(kind: Callable[[Any], nn.Module], config: Any) -> nn.Module:
    return kind(copy.deepcopy(config))


def all_architectures(libraries: Collection[str] = LIBRARIES) -> Iterator[Architecture]:
    """Those of the libraries that are installed."""
    for library in libraries:
        if importlib.util.find_spec(library) is None:
            print_lines(f"{library} is not installed")
        else:
            yield from globals()[f"of_{library}"]()


def smallest() -> list[Architecture]:
    """Return the architecture with the fewest parameters of each family."""
    found: dict[tuple[str, str], tuple[int, Architecture]] = {}
    for architecture in all_architectures():
        with contextlib.suppress(Exception), torch.device("meta"):  # what does not build on `meta` is no choice
            params = _params(architecture.build())
            place = (architecture.library, architecture.family)
            if params <= MOST_PARAMS and (place not in found or params < found[place][0]):
                found[place] = (params, architecture)
    return [architecture for _, architecture in found.values()]


def like(rows: Iterable[Mapping[str, str]]) -> list[Architecture]:
    """Return the architectures of a table's rows, of the libraries that are installed."""
    wanted = {(row["library"], row["architecture"]) for row in rows}
    return [found for found in all_architectures(sorted({library for library, _ in wanted})) if (found.library, found.name) in wanted]


def read_table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def row_of(architecture: Architecture) -> dict[str, Any]:
    """Count an architecture in every way."""
    notes: list[str] = []

    def tried(name: str, count: Callable[[], Any]) -> Any:
        try:
            return count()
        except Exception as error:  # a library's model may raise anything
            notes.append(f"{name}: {type(error).__name__}: {one_line(error)}")
            return None

    model = architecture.create()
    images = sample_of(architecture)
    ours = tried("bench", lambda: counted(architecture))
    flops, recomputed = (ours.cost.flops().at(1), ours.recomputed) if ours else (None, None)
    train = ours.cost.train_flops().at(1) if ours and ours.has_backward else None
    by_profiler = tried("profiler", lambda: forward_flops(model.eval(), images))
    by_fvcore = tried("fvcore", lambda: count_with_fvcore(model.eval(), images))
    train_by_profiler = tried("profiler, training", lambda: step_flops(model, images))
    if flops and by_fvcore and by_fvcore < flops:
        notes.append(f"fvcore: counts {flops - by_fvcore} less; its trace leaves out what no answer depends on")
    known = [
        (one, other) for one, other in ((flops, by_profiler), (train and train + recomputed, train_by_profiler)) if None not in (one, other)
    ]
    is_exceeded = flops is not None and by_fvcore is not None and by_fvcore > flops
    return {
        "library": architecture.library,
        "version": importlib.import_module(architecture.library).__version__,
        "family": architecture.family,
        "architecture": architecture.name,
        "input": f"{architecture.channels}x{architecture.side}x{architecture.side}",
        "params": _params(model),
        "flops": flops,
        "flops_profiler": by_profiler,
        "flops_fvcore": by_fvcore,
        "flops_train": train,
        "recomputed": recomputed,
        "flops_train_profiler": train_by_profiler,
        "agree": not is_exceeded and all(one == other for one, other in known) if known else None,
        "note": "; ".join(notes),
    }


def _params(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def answer(connection: Connection, architecture: Architecture) -> None:
    """Count an architecture in a process of its own."""
    warnings.simplefilter("ignore")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # the profiler tells of each beginning
    torch.set_num_threads(2)  # with one, torch convolves a single sample group by group
    connection.send(row_of(architecture))


def awaited(architecture: Architecture) -> dict[str, Any]:
    """Return an architecture's row; without counts if it takes longer than LIMIT_S or ends its process."""
    process, connection = fork_server.new_process(answer, architecture)
    try:
        if connection.poll(LIMIT_S):
            row: dict[str, Any] = connection.recv()
            return row
        note = f"took longer than {LIMIT_S} s"
    except EOFError:
        note = "ended its process"
    finally:
        process.kill()
        process.join()
    return {"library": architecture.library, "family": architecture.family, "architecture": architecture.name, "note": note}


def main() -> None:
    asked = argparse.ArgumentParser()
    asked.add_argument("--out", type=Path, required=True)
    asked.add_argument("--like", type=Path)
    wanted = asked.parse_args()
    warnings.simplefilter("ignore")
    fork_server.use_libraries({library for library in LIBRARIES if importlib.util.find_spec(library)})
    chosen = like(read_table(wanted.like)) if wanted.like else smallest()
    rows = []
    with wanted.out.open("w", newline="") as file, ThreadPoolExecutor(os.cpu_count()) as workers:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        for row in workers.map(awaited, chosen):
            writer.writerow(row)
            file.flush()
            rows.append(row)
            print_lines(
                f"{len(rows)} of {len(chosen)}: {row['library']}:{row['architecture']}, agree: {row.get('agree')} {row['note'][:100]}"
            )
    disagree, refused = sum(row.get("agree") is False for row in rows), sum(not row.get("flops") for row in rows)
    print_lines(f"{len(rows)} architectures, {disagree} disagree, {refused} refused")


if __name__ == "__main__":
    from tests.counting import referee  # other processes find what they are told of by its module, which is not __main__

    referee.main()
