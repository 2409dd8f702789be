"""Derive the settings, recipe and default lengths of a plan from a request, and say where its data are. Imports no torch."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

from bench.measure import environment
from bench.measure.weights import require_start, start_digest
from bench.planning.recipe import require_effect
from bench.planning.request import CUDA_SEQ, DEFAULT_ROUNDS, QUICK_ROUNDS, Request
from bench.spec import Recipe, RequestError, Settings
from bench.tasks import DATA_VARIABLE, DOWNLOAD_VARIABLE

QUICK_LIMIT_S, DEFAULT_LIMIT_S = 20.0, 60.0
CUDA_LIMIT_S = 180.0
"""Default time limit on CUDA, because the first compilation can take minutes."""
QUICK_SAMPLE_S, DEFAULT_SAMPLE_S = 0.25, 0.5


def default_threads(cores: int) -> int:
    """Return the threads of a job where the request names none: half of the cores."""
    return max(1, cores // 2)


def settings_of(request: Request, device: str) -> Settings:
    """Return the settings, with the device's default time limit.

    Raises RequestError if there are fewer cores than `threads`, and for `cold` on a CPU.
    """
    cores, quick, limit = environment.num_cores(), request.quick, request.limit_s
    if (request.threads or 1) > cores:
        raise RequestError(f"`threads={request.threads}` is more than the {cores} cores here", f"try `threads={cores}`")
    if request.cold and device != "cuda":
        raise RequestError("`cold` needs a GPU, but the device is cpu", "leave `cold` out")
    threads = request.threads or default_threads(cores)
    return Settings(
        rounds=request.rounds or (QUICK_ROUNDS if quick else DEFAULT_ROUNDS),
        seeds=request.seeds or Settings().seeds,
        limit_s=limit or (QUICK_LIMIT_S if quick else CUDA_LIMIT_S if device == "cuda" else DEFAULT_LIMIT_S),
        sample_s=QUICK_SAMPLE_S if quick else DEFAULT_SAMPLE_S,
        train_limit_s=limit or Settings().train_limit_s,
        threads=threads,
        train_threads=threads,
        quick=quick,
        seed=request.seed,
        lr_trials=request.lr_trials,
        decay_trials=request.decay_trials,
        cold=request.cold,
        margin=request.margin,
        save_weights=request.save_weights,
    )


def recipe_of(request: Request) -> Recipe:
    """Return the recipe, with the epochs of `epochs` and the digest of the weights to begin with.

    Raises RequestError if these are missing or have another digest than the request says, and for a key without effect.
    """
    recipe = Recipe(**dict[str, Any](request.recipe))
    require_effect(recipe, dict(request.recipe))
    if recipe.init:
        recipe = dataclasses.replace(recipe, init_sha256=recipe.init_sha256 or start_digest(recipe.init))
        require_start(recipe)
    elif recipe.init_sha256:
        raise RequestError("init_sha256 of `recipe` is of weights to begin with, which init names", "add init=RUN to `recipe`")
    return dataclasses.replace(recipe, epochs=request.epochs) if request.epochs else recipe


def with_default_lengths(request: Request, device: str) -> Request:
    """Fill in the lengths of a request that names none: those of CUDA.

    Published models have their own lengths; a CPU has no default.
    """
    has_own = all(model.is_published for model in request.models)
    return request if device == "cpu" or has_own else dataclasses.replace(request, seq=CUDA_SEQ)


def announce_data_root(request: Request) -> None:
    """Set the environment variables that point workers to the data.

    A plan does not name the folder, because it can run on other machines.
    """
    if request.data_root:
        os.environ[DATA_VARIABLE] = str(request.data_root.resolve())
    if request.download:
        os.environ[DOWNLOAD_VARIABLE] = "1"
