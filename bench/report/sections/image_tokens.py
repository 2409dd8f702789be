"""Show how an image becomes tokens: the first test image, and its patches in the order in which a model reads them."""

from __future__ import annotations

from collections.abc import Sequence

from bench.report.charts.image_tokens import ACROSS, MAX_DOWN, draw_tokens
from bench.report.charts.style import slug
from bench.report.document import Block, FigureBlock
from bench.report.sections.trained import trained_models
from bench.spec import Plan, Record
from bench.training.pictures import Picture, decode_picture

MAX_FIGURES = 2


def image_blocks(records: Sequence[Record], plan: Plan) -> tuple[Block, ...]:
    """Draw the first test image of each task and length, at most `MAX_FIGURES`. Call inside `style.figure_style`."""
    found: dict[str, FigureBlock] = {}
    for planned, _, picture in trained_models(records, plan, decode_picture):
        task, n = planned.cell.workload.task, planned.cell.model.shape.seq_len
        name = f"tokens-{slug(task)}-{n}"
        if name not in found and len(found) < MAX_FIGURES:
            found[name] = _figure_block(name, f"{task}, n = {n}", picture, has_class_token=n > len(picture.patches))
    return tuple(found.values())


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
