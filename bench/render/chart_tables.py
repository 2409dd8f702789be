"""The table behind each figure: the cells that it shows, one row each, with the values that it draws."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pandas

from bench.render import numbers
from bench.render.chart import amount
from bench.render.frame import WORK_KEYS, varying
from bench.render.lines import Quantity
from bench.render.tables import ACCURACY, LENGTH, MODEL, PARAMS, STATUS, Column, Row, Table, number, plain, table, work_columns

SIZE = plain("size")


def lines_table(rows: pandas.DataFrame, quantity: Quantity) -> Table:
    """Value with interval in the unit of the y axis, and what a hollow marker stands for."""
    flags = [False] * len(rows) if quantity.hollow is None else list(quantity.hollow(rows))
    rows = rows.assign(caveat=[quantity.hollow_label if flag else "" for flag in flags])
    columns = (*_places(rows), _value_column(quantity), plain("caveat"), STATUS)
    return table(rows, columns, keep=("model", "n", quantity.label))


def points_table(rows: pandas.DataFrame) -> Table:
    task = (plain("task"),) if rows["task"].nunique() > 1 else ()
    return table(rows, (MODEL, LENGTH, SIZE, *task, PARAMS, ACCURACY, number("num_seeds", "seeds", numbers.whole)), keep=("model", "n"))


def shares_table(rows: pandas.DataFrame, parts: Mapping[str, str], total: str, text: Callable[[float], str]) -> Table:
    """Each part as a share and as an amount; the last column is what they are shares of."""
    columns = tuple(_share_column(part, name, total, text) for part, name in parts.items())
    rows = rows.assign(**{_share(part): rows[part] / rows[total] for part in parts})
    return table(rows, (*_places(rows), *columns, number(total, "sum", text)), keep=("model", "n"))


def _places(rows: pandas.DataFrame) -> tuple[Column, ...]:
    size = (SIZE,) if varying(rows, ("size",)) else ()
    return (MODEL, LENGTH, *size, *(work_columns(rows) if varying(rows, WORK_KEYS) else ()))


def _value_column(quantity: Quantity) -> Column:
    columns = [column for column in (quantity.value, quantity.low, quantity.high) if column]
    return Column(
        header=quantity.label, text=lambda row: amount(*(row[column] / quantity.divisor for column in columns)), key=quantity.value
    )


def _share_column(part: str, name: str, total: str, text: Callable[[float], str]) -> Column:
    def cell(row: Row) -> str:
        value = row[part]
        return "" if numbers.is_empty(value) or not value else f"{numbers.percent(value / row[total])} ({text(value)})"

    return Column(header=name, text=cell, key=_share(part))


def _share(part: str) -> str:
    return f"{part}_share"
