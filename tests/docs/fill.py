"""Fills the marked places of README and docs from cells of the stored tables of runs.

    python -m tests.docs.fill

A place is `<!--=name-->text<!--/-->`; its marks are invisible when rendered. `PLACES` says of each name which row of which `results/RUN/table.csv` it
shows, and how. All other numbers are written by hand, beside a link to their run or report.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas

from bench import numbers

ROOT = Path(__file__).resolve().parents[2]
MARKED = re.compile(r"<!--=([a-z0-9_]+)-->(.*?)<!--/-->")
CELL = re.compile(r"\{(\w+):(\w+)\}")
INTERVALS: Mapping[str, Callable[..., str]] = {"fraction": numbers.fraction, "ratio": numbers.ratio}
"""Forms of a column that has `_low` and `_high` beside it."""
FORMS: Mapping[str, Callable[[Any], str]] = {
    "bytes": numbers.bytes_text,
    "count": numbers.count,
    "exact": numbers.exact,
    "percent": lambda share: f"{100 * share:.0f} %",
    "value": numbers.fraction,
}


@dataclass(frozen=True, kw_only=True)
class Place:
    """A text with `{column:form}` for cells of the row of `run` in which these columns have these values."""

    run: str
    text: str
    where: Mapping[str, Any]

    def filled(self) -> str:
        """The text as it reads now. Raises LookupError unless exactly one row fits."""
        frame = table(self.run)
        for column, value in self.where.items():
            frame = frame[frame[column] == value]
        if len(frame) != 1:
            raise LookupError(f"{self.run}: {len(frame)} rows with {dict(self.where)}, not one")
        return CELL.sub(lambda cell: _cell_text(frame.iloc[0], cell[1], cell[2]), self.text)


@functools.cache
def table(run: str) -> pandas.DataFrame:
    return pandas.read_csv(ROOT / "results" / run / "table.csv")


def _cell_text(row: pandas.Series[Any], column: str, form: str) -> str:
    if form in INTERVALS:
        return INTERVALS[form](*(row[f"{column}{end}"] for end in ("", "_low", "_high")))
    return FORMS[form](row[column])


def place(run: str, text: str, **where: Any) -> Place:
    return Place(run=run, text=text, where=where)


SEQ, THREE = "2026-11-23_cpu_sequence_length", "2026-11-23_cpu_three_families"
CIFAR_17, CIFAR_65 = "2026-11-20_cpu_cifar10_17", "2026-11-20_cpu_cifar10_65"
CIFAR_4M, CIFAR_51M, TREC = "2026-11-26_cpu_cifar10_4m", "2026-11-26_cpu_cifar10_51m_gmlp", "2026-11-24_cpu_trec"
SHARE, SCORES = "{flops_quadratic_share:percent}", "{accuracy:fraction} | {train_accuracy:value} | {flops:count}"
OURS = "{flops:count} | {peak_memory_bytes:bytes} | 1 | {accuracy:fraction}"
OTHERS = "{flops:count} | {peak_memory_bytes:bytes} | {ratio:ratio} | {accuracy:fraction}"
LONGEST: Mapping[str, Any] = {"seq_len": 4097, "budget": 252e3, "phase": "infer", "engine": "eager"}
EQUAL: Mapping[str, Any] = {"seq_len": 1025, "budget": 5e6}

PLACES: Mapping[str, Place] = {
    "share_vit": place(SEQ, SHARE, model="vit", attention="auto", **LONGEST),
    "share_gmlp": place(SEQ, SHARE, model="gmlp", **LONGEST),
    "share_vit_5m": place(SEQ, SHARE, model="vit", attention="auto", match="params", **EQUAL),
    "share_gmlp_5m": place(SEQ, SHARE, model="gmlp", match="params", **EQUAL),
    "matched_shape_gmlp": place(SEQ, "{params:count}", model="gmlp", match="shape", **EQUAL),
    "matched_shape_vit": place(SEQ, "{params:count}", model="vit", match="shape", **EQUAL),
    "digits_gmlp": place(SEQ, "{accuracy:fraction}", model="gmlp", task="digits"),
    "digits_vit": place(SEQ, "{accuracy:fraction}", model="vit", task="digits"),
    "families_gmlp_17": place(THREE, OURS, model="gmlp", seq_len=17),
    "families_vit_17": place(THREE, OTHERS, model="vit", seq_len=17),
    "families_transformer_17": place(THREE, OTHERS, model="transformer", seq_len=17),
    "families_gmlp_257": place(THREE, OURS, model="gmlp", seq_len=257),
    "families_vit_257": place(THREE, OTHERS, model="vit", seq_len=257),
    "families_transformer_257": place(THREE, OTHERS, model="transformer", seq_len=257),
    "cifar_gmlp_105k_17": place(CIFAR_17, SCORES, model="gmlp", budget=105e3),
    "cifar_vit_105k_17": place(CIFAR_17, SCORES, model="vit", budget=105e3),
    "cifar_transformer_105k_17": place(CIFAR_17, SCORES, model="transformer", budget=105e3),
    "cifar_gmlp_300k_17": place(CIFAR_17, SCORES, model="gmlp", budget=300e3),
    "cifar_vit_300k_17": place(CIFAR_17, SCORES, model="vit", budget=300e3),
    "cifar_transformer_300k_17": place(CIFAR_17, SCORES, model="transformer", budget=300e3),
    "cifar_gmlp_105k_65": place(CIFAR_65, SCORES, model="gmlp", budget=105e3),
    "cifar_vit_105k_65": place(CIFAR_65, SCORES, model="vit", budget=105e3),
    "cifar_transformer_105k_65": place(CIFAR_65, SCORES, model="transformer", budget=105e3),
    "cifar_gmlp_4m": place(CIFAR_4M, "{accuracy:fraction}", model="gmlp"),
    "cifar_vit_4m": place(CIFAR_4M, "{accuracy:fraction}", model="vit"),
    "cifar_transformer_4m": place(CIFAR_4M, "{accuracy:fraction}", model="transformer"),
    "cifar_gmlp_51m": place(CIFAR_51M, "{accuracy:fraction}", model="gmlp"),
    "trec_gmlp": place(TREC, "{params:exact} | {accuracy:fraction} | {train_accuracy:value}", model="gmlp"),
    "trec_vit": place(TREC, "{params:exact} | {accuracy:fraction} | {train_accuracy:value}", model="vit"),
    "trec_transformer": place(TREC, "{params:exact} | {accuracy:fraction} | {train_accuracy:value}", model="transformer"),
}


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def filled(text: str) -> str:
    """The page with every place filled. Raises KeyError for a place that is not in `PLACES`."""
    return MARKED.sub(lambda found: f"<!--={found[1]}-->{PLACES[found[1]].filled()}<!--/-->", text)


def main() -> None:
    for page in pages():
        page.write_text(filled(page.read_text()))


if __name__ == "__main__":
    main()
