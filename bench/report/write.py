"""Writes a report: Markdown, HTML and figures, each complete before it takes its name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.analysis.study import Study
from bench.files import write_bytes
from bench.report.charts.figures import draw_figures
from bench.report.charts.style import figure_style, series_styles
from bench.report.html import to_html
from bench.report.images import FORMATS, fix_layout, image_of
from bench.report.markdown import to_markdown
from bench.report.page import build_document
from bench.report.sections.ablation import effects_json
from bench.report.sections.ablation_figures import draw_effects
from bench.report.sections.curve_fits import fits_section
from bench.report.sections.growth import draw_exponents
from bench.report.sections.peers import standing_section
from bench.report.sections.roofline import draw_limits, draw_rooflines
from bench.report.sections.saturation import saturation_section
from bench.report.sections.trained import weights_section
from bench.report.sections.verdicts import verdicts_json

EMBEDDED, STORED = "svg", "png"
"""The form of a figure inside report.html, and beside report.md."""


def write_report(study: Study, folder: Path, *, every_figure: bool = False) -> list[Path]:
    """Write report.md, report.html, verdicts.json, effects.json (of a run with arms) and figures/*.png into `folder` (made if missing), and return
    their paths. `every_figure`: figures as SVG and PDF too, and the heatmap of every trained model.

    Equal data give equal bytes.
    """
    frame = study.frame
    styles = series_styles([*frame["label"], *frame["model"]])
    with figure_style():
        drawings = [*draw_figures(study), *draw_exponents(study.growth, styles)]
        drawings += [*draw_rooflines(study, styles), *draw_limits(study, styles)]
        weights, heatmaps = weights_section(study.records, study.plan, every_figure=every_figure)
        fits, fit_figures = fits_section(study.records, study.plan)
        standing = standing_section(study)
        saturation = saturation_section(study, styles)
        effects = list(draw_effects(study.plan.parts, study.effects))
        drawn = {
            **{d.name: d.figure for d in drawings},
            **{e.name: e.figure for e in effects},
            **heatmaps,
            **fit_figures,
            **standing.figures,
            **saturation.figures,
        }
        images: dict[tuple[str, str], bytes] = {}
        for name, figure in drawn.items():
            fix_layout(figure)
            images |= {(name, form): image_of(figure, form) for form in (FORMATS if every_figure else (EMBEDDED, STORED))}
    looks = {"What the fits look like": fits, "What the weights look like": weights}
    document = build_document(study, drawings, effects, looks, standing.blocks, saturation.blocks)
    vectors = {name: content for (name, kind), content in images.items() if kind == EMBEDDED}
    figures = folder / "figures"
    figures.mkdir(parents=True, exist_ok=True)
    stored = {name: content for name, content in images.items() if every_figure or name[1] == STORED}
    written = [_write(figures / f"{name}.{form}", content) for (name, form), content in stored.items()]
    if study.effects:
        written.insert(0, _write(folder / "effects.json", _json_bytes({"run": study.name, "effects": effects_json(study.effects)})))
    written.insert(0, _write(folder / "verdicts.json", _json_bytes({**verdicts_json(study), **standing.told})))
    written.insert(0, _write(folder / "report.md", to_markdown(document).encode()))
    written.insert(1, _write(folder / "report.html", to_html(document, vectors).encode()))
    return written


def _json_bytes(data: Mapping[str, Any]) -> bytes:
    """One line per entry, and per item of an entry that is a list: a tenth of the lines of an indented form, and still fit for a diff."""
    entries = ",\n".join(f"{_json(name)}: {_json_lines(value)}" for name, value in data.items())
    return f"{{\n{entries}\n}}\n".encode()


def _json_lines(value: Any) -> str:
    items = value if isinstance(value, list | tuple) else ()
    return "[\n" + ",\n".join(map(_json, items)) + "\n]" if items else _json(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _write(path: Path, content: bytes) -> Path:
    write_bytes(path, content)
    return path
