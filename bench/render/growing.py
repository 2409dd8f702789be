"""The report's section on growth with n: decompositions, exponents, twins and crossovers, each with the rule by which it was made."""

from __future__ import annotations

from collections.abc import Iterator

from bench.render.document import Block, Paragraph, TableBlock
from bench.render.scaling import (
    closed_crossing_table,
    decomposition_table,
    equal_terms_table,
    exponent_table,
    measured_crossing_table,
    refused_exponents,
    share_table,
    twin_table,
)
from bench.render.study import Study
from bench.render.tables import Table

DECOMPOSITION = (
    "Cost as a + b n + c n^2, one shape per series. Times: non-negative weighted least squares with relative weights, from cells that are stable "
    "and not launch-bound; 95 % t-intervals over rounds; no terms where a lack-of-fit test against the error between rounds rejects (p < 0.01) "
    "or the grid cannot identify c. Counts: exact, from the length on from which they follow one polynomial within 0.5 %."
)
SHARES = "The share of each term in the fitted cost, at every length that entered a fit that holds."
EXPONENTS = (
    "Local exponents between neighbouring lengths: d log cost / d log n, paired by round, with 95 % t-intervals. 1 is linear, 2 quadratic."
)
TWINS = (
    "What alignment does: cost per token at n (patches and a class token) over that at n - 1, paired by round. Above 1, the odd length costs "
    "more than its one token."
)
MEASURED = (
    "Where two series were measured to cost the same: the mean log ratio, paired by round, is interpolated linearly in log n; the interval is where "
    "the 95 % band crosses zero. Pairs with gMLP, and one model under two attention kernels."
)
CLOSED = "Where two models of one shape each cost the same by their closed forms, for the blocks alone and for the whole model."
EQUAL = "From which n on the quadratic part of the FLOPs is larger than the linear one, by closed form."


def growth_blocks(study: Study) -> tuple[Block, ...]:
    """Every table that has rows; a sentence where there is none."""
    return tuple(_blocks(study)) or (
        Paragraph(text="No series of one shape at three lengths or more: this run says nothing about growth."),
    )


def _blocks(study: Study) -> Iterator[Block]:
    yield from _shown(decomposition_table(study.growth), DECOMPOSITION)
    yield from _shown(share_table(study.growth), SHARES)
    yield from _shown(exponent_table(study.growth), EXPONENTS)
    yield from (Paragraph(text=sentence) for sentence in refused_exponents(study.growth))
    yield from _shown(twin_table(study.growth), TWINS)
    yield from _shown(measured_crossing_table(study.measured), MEASURED)
    yield from _shown(closed_crossing_table(study.closed), CLOSED)
    yield from _shown(equal_terms_table(study.equal), EQUAL)


def _shown(table: Table, caption: str) -> Iterator[Block]:
    if table.rows:
        yield TableBlock(table=table, caption=caption)
