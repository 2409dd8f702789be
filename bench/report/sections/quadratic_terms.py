"""Say whether a model's n^2 terms are weights or activations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench import numbers
from bench.analysis.study import Study
from bench.report.document import Block, Paragraph, TableBlock
from bench.report.sections.wording import join_names
from bench.report.tables import Row, Table, number, plain, table

WEIGHTS = "weights"
ACTIVATIONS = "activations"
NOWHERE = "nowhere: linear in n"
IDENTITY = ("model", "seq_len", "budget", "flops_coefficient", "params_seq")
"""Cells that agree in these share a row."""


def where_quadratic(study: Study) -> tuple[Block, ...]:
    """Return sentences and a table on every model's quadratic terms."""
    distinct: dict[tuple[Any, ...], Row] = {}
    for home in study.quadratic_home.values():
        distinct.setdefault(tuple(home[key] for key in IDENTITY), {**home, "home": _home(home)})
    homes = list(distinct.values())
    if not homes:
        return (Paragraph(text="The plan holds no configurations."),)
    caption = (
        "Coefficients from the closed forms, at each configuration's own width. FLOPs per n^2: forward FLOPs of one sample that multiply n^2. "
        "Weights per n^2: the same for parameters. Length-dependent parameters include learned positions and spatial biases."
    )
    return (*(Paragraph(text=text) for text in _sentences(homes)), TableBlock(table=_table(homes), caption=caption))


def _home(row: Row) -> str:
    places = [WEIGHTS] if row["weight_terms"] else []
    places += [ACTIVATIONS] if row["activation_terms"] else []
    return " and ".join(places) or NOWHERE


def _sentences(homes: Sequence[Row]) -> list[str]:
    quadratic = list(dict.fromkeys(row["model"] for row in homes if row["home"] != NOWHERE))
    linear = [model for model in dict.fromkeys(row["model"] for row in homes) if model not in quadratic]
    sentences = []
    if quadratic:
        sentences.append(_head_sentence(quadratic))
    for home, text in (
        (
            WEIGHTS,
            "n x n weights in each layer, stored as parameters and shared by all samples of a batch",
        ),
        (
            ACTIVATIONS,
            "n x n activations per head and sample, computed in every step. A fused kernel never writes them to memory; an explicit kernel stores "
            "batch x heads x n^2 of them per layer",
        ),
        (f"{WEIGHTS} and {ACTIVATIONS}", "both n x n weights, shared by the batch, and n x n activations per sample"),
    ):
        chosen: dict[str, Row] = {}
        for row in homes:
            if row["home"] == home:
                chosen.setdefault(row["model"], row)
        if chosen:
            sentences.append(f"{_models_and_terms(list(chosen.values()))}: {text}.")
    if linear:
        sentences.append(f"{', '.join(linear)}: no n^2 term in matrix products, so FLOPs are linear in n.")
    return sentences


def _head_sentence(models: list[str]) -> str:
    if len(models) == 1:
        return f"{models[0]} is quadratic in n."
    which = "both" if len(models) == 2 else "all"
    return f"{join_names(models)} are {which} quadratic in n. They differ in the coefficient and in where the n^2 values live."


def _models_and_terms(rows: Sequence[Row]) -> str:
    """Write `vit, transformer (in TERMS)`, grouping models with equal terms."""
    by_terms: dict[tuple[str, ...], list[str]] = {}
    for row in rows:
        by_terms.setdefault((*row["weight_terms"], *row["activation_terms"]), []).append(row["model"])
    return "; ".join(f"{', '.join(models)} (in {', '.join(terms)})" for terms, models in by_terms.items())


def _table(homes: Sequence[Row]) -> Table:
    columns = (
        plain("model"),
        number("seq_len", "n", numbers.whole),
        number("budget", "budget", numbers.count),
        number("flops_coefficient", "FLOPs per n^2", numbers.exact),
        number("flops_share", "of FLOPs at n", numbers.percent),
        number("weights_coefficient", "weights per n^2", numbers.exact),
        number("params_seq", "length-dependent params", numbers.exact),
        plain("home", "n^2 lives in"),
    )
    return table(homes, columns, keep=("model", "n"))
