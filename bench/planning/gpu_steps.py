"""Define the steps of `bench gpu` and assign them to slices.

A pass runs the steps in order of value; each step is a grid of ordinary flags. A CPU rehearses the same steps with small models and short
sequences. Needs torch only to size the models.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bench.planning.ablation import plan_grids
from bench.planning.flags import Flags
from bench.spec import Ablation, Grid, Plan

MIN_SLACK_S = 10.0
SLACK_SHARE = 0.05
"""Share of a slice kept for its end.

The end kills the current job, writes tables and packs the folder.
"""
STEP_START_S = 8.0
"""Time before a step's first job: machine facts and fork server."""
LIMITS_S = {"cuda": 180.0, "cpu": 60.0}
"""Time limit of one job.

A first compilation on CUDA takes longer than a minute.
"""


@dataclass(frozen=True, kw_only=True)
class PassStep:
    """One run of the pass.

    `flags`: flags on a GPU, by name with underscores.
    `rehearsal`: flags that replace them on a CPU, after those of REHEARSAL.
    `rounds`: timing rounds.
    `growth`: see `Settings`.
    """

    name: str
    question: str
    flags: Mapping[str, str]
    rehearsal: Mapping[str, str]
    rounds: int = 2
    growth: bool = False


FAMILIES = "gmlp,vit,transformer"
MODELS = {"models": FAMILIES, "params": "22M", "depth": "12", "match": "shape", "dtype": "bf16", "batch_tokens": "65600"}
BOTH_PHASES = {**MODELS, "phase": "infer,train", "metrics": "latency"}
TIMED = {**BOTH_PHASES, "engine": "eager,graph"}
LONG, SHORT = "257,1025,4097", "17,257"
REHEARSAL = {"params": "100k", "depth": "2", "dtype": "fp32", "batch_tokens": "1028", "engine": "eager"}

STEPS = (
    PassStep(
        name="proof",
        question="Does every family run, eager and as a CUDA graph, and do its counts agree?",
        flags={**TIMED, "seq": "65,64", "metrics": "params,flops,latency"},
        rehearsal={"seq": "17,16"},
        rounds=1,
    ),
    PassStep(
        name="headline",
        question="Which family is fastest as n grows, at one shape and equal tokens per batch?",
        flags={**TIMED, "seq": "65,257,1025,4097"},
        rehearsal={"seq": "17,65,257"},
        rounds=3,
    ),
    PassStep(
        name="aligned",
        question="How do lengths of a power of two change the times?",
        flags={**TIMED, "seq": "64,256,1024,4096"},
        rehearsal={"seq": "16,64,256"},
    ),
    PassStep(
        name="published",
        question="Which of the published pair gMLP-S and DeiT-S is faster, eager and compiled?",
        flags={
            "models": "gmlp-s,deit-s",
            "batch": "256",
            "dtype": "bf16",
            "phase": "infer,train",
            "engine": "eager,compile",
            "metrics": "latency",
        },
        rehearsal={"batch": "1"},
    ),
    PassStep(
        name="digits",
        question="Does training reach the same accuracy on this device as on a CPU?",
        flags={"models": FAMILIES, "params": "150k", "depth": "2", "seq": "17", "task": "digits", "metrics": "params,accuracy"},
        rehearsal={"params": "150k", "epochs": "2"},
    ),
    PassStep(
        name="trace",
        question="Where does the time of a training step go?",
        flags={**BOTH_PHASES, "seq": "257", "phase": "train", "metrics": "profile"},
        rehearsal={"seq": "17"},
    ),
    PassStep(
        name="equality",
        question="Do compiled and recorded models compute the same outputs as eager ones?",
        flags={**BOTH_PHASES, "seq": "65", "engine": "compile,graph", "metrics": "equality"},
        rehearsal={"seq": "17", "engine": "onednn"},
    ),
    PassStep(
        name="gates",
        question="Which formulation of gMLP's gate is fastest?",
        flags={
            **BOTH_PHASES,
            "models": "gmlp+kernel=linear,gmlp+kernel=baddbmm,gmlp+kernel=matmul,gmlp+kernel=conv1d,gmlp+kernel=fused",
            "seq": LONG,
        },
        rehearsal={"models": "gmlp+kernel=linear,gmlp+kernel=baddbmm,gmlp+kernel=matmul,gmlp+kernel=conv1d", "seq": SHORT},
    ),
    PassStep(
        name="attention",
        question="Which attention kernel is fastest?",
        flags={**BOTH_PHASES, "models": "vit", "attention": "flash,efficient,cudnn,math", "seq": LONG},
        rehearsal={"attention": "flash,math", "seq": SHORT},
    ),
    PassStep(
        name="resources",
        question="How much memory and energy does a step take?",
        flags={**BOTH_PHASES, "seq": LONG, "metrics": "memory,energy"},
        rehearsal={"seq": SHORT},
        rounds=1,
    ),
    PassStep(
        name="compiled",
        question="How fast is each family with torch.compile?",
        flags={**BOTH_PHASES, "engine": "compile", "seq": "65,257"},
        rehearsal={"models": "gmlp,vit", "engine": "compile", "phase": "infer", "seq": "17"},
        rounds=1,
    ),
)


def plan_step(step: PassStep, device: str, command: str) -> Plan:
    """Return the plan of a step; `cpu` gives its rehearsal.

    Raises RequestError if nothing in it is feasible.
    """
    grid = Grid(name=step.name, flags=step.flags if device == "cuda" else rehearsed(step))
    ablation = Ablation(cpu=(grid,), cuda=(grid,), quick=(), rounds=step.rounds, seeds=1, sample_s=0.3, growth=step.growth)
    flags = Flags(device=device, limit_s=LIMITS_S[device])
    return plan_grids(f"{device}_{step.name}", step.question, ablation, flags, device, command)


def rehearsed(step: PassStep) -> dict[str, str]:
    """Return the flags of a step on a CPU, with small sizes."""
    small = {key: value for key, value in REHEARSAL.items() if key in step.flags}
    return {**step.flags, **small, **step.rehearsal}


def slack_s(slice_s: float) -> float:
    """Return the seconds without jobs at the end of a slice."""
    return max(MIN_SLACK_S, SLACK_SHARE * slice_s)


def places(seconds: Sequence[float], slice_s: float, budget_s: float, first: int = 1) -> Iterator[str]:
    """Yield the slices of a time budget in which each step runs.

    The text is the slice's number (`2`), a range (`2-3`), `3, in part`, `does not fit`, or `complete` for a step of 0 s.

    `seconds`: estimated remaining time of each step.
    `slice_s`: time of a slice.
    `budget_s`: remaining time of the pass.
    `first`: number of the first slice.
    """
    usable_s = max(0.0, slice_s - slack_s(slice_s))
    whole, rest_s = divmod(budget_s, slice_s)
    available_s = whole * usable_s + max(0.0, rest_s - slack_s(rest_s))
    for taken_s, needed_s in zip(itertools.accumulate(seconds, initial=0.0), seconds, strict=False):
        if not needed_s:
            yield "complete"
        elif taken_s >= available_s:
            yield "does not fit"
        else:
            start, end = (first + int(at / usable_s) for at in (taken_s, min(taken_s + needed_s, available_s) - 1e-6))
            yield f"{start if start == end else f'{start}-{end}'}{', in part' if taken_s + needed_s > available_s else ''}"
