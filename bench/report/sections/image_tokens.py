"""Show how an image becomes tokens: the first test image, and its patches in the order in which a model reads them."""

from __future__ import annotations

from collections.abc import Sequence

from bench.reading.drawn import pictures_of
from bench.report.charts.image_tokens import ACROSS, MAX_DOWN, draw_tokens
from bench.report.charts.style import slug
from bench.report.document import Block, FigureBlock
from bench.spec import Plan, Record
from bench.training.pictures import Picture

MAX_FIGURES = 2


def image_blocks(records: Sequence[Record], plan: Plan) -> tuple[Block, ...]:
    """Draw the first test image of each task and length, at most `MAX_FIGURES`. Call inside `style.figure_style`."""
    first = list(pictures_of(records, plan).items())[:MAX_FIGURES]
    return tuple(
        _figure_block(f"tokens-{slug(task)}-{n}", f"{task}, n = {n}", picture, has_class_token=n > len(picture.patches))
        for (task, n), (_, picture) in first
    )


def _figure_block(name: str, place: str, picture: Picture, *, has_class_token: bool) -> FigureBlock:
    channels, (rows, columns), side = len(picture.pixels), picture.grid, picture.patch_side
    num = rows * columns + has_class_token
    drawn = min(num, ACROSS * MAX_DOWN)
    cut = f" The first {drawn} of {num} are drawn." if drawn < num else ""
    extra = " Token 0 is the class token: it is learned, and read for the answer." if has_class_token else ""
    return FigureBlock(
        name=name,
        title=f"{place}: {rows} x {columns} patches{' and a class token' if has_class_token else ''} are the {num} tokens",
        caption=(
            f"The first test image, cut into patches of {side} x {side} pixels. They are read row by row; the {channels * side**2} numbers of each "
            f"become the vector of one token.{extra}{cut}"
        ),
        figure=draw_tokens(picture, has_class_token=has_class_token),
    )
