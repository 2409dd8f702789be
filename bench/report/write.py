"""Writes a report: Markdown, HTML and figures, each complete before it takes its name."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from bench.analysis.study import Study
from bench.files import write_bytes
from bench.report.charts.figures import draw_figures
from bench.report.charts.style import figure_style, series_styles
from bench.report.html import to_html
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

FORMATS = ("svg", "png", "pdf")
# a date would make equal data give different files
DATELESS: dict[str, dict[str, Any]] = {"svg": {"Date": None}, "png": {}, "pdf": {"CreationDate": None}}


def write_report(study: Study, folder: Path) -> list[Path]:
    """Write report.md, report.html, verdicts.json and figures/*.svg, *.png and *.pdf into `folder` (made if missing) and return their paths.

    Equal data give equal bytes.
    """
    frame = study.frame
    styles = series_styles([*frame["label"], *frame["model"]])
    with figure_style():
        drawings = [*draw_figures(study), *draw_exponents(study.growth, styles)]
        drawings += [*draw_rooflines(study, styles), *draw_limits(study, styles)]
        weights = weights_section(study.records, study.plan)
        fits = fits_section(study.records, study.plan)
        standing = standing_section(study)
        saturation = saturation_section(study, styles)
        effects = list(draw_effects(study.plan.parts, study.effects))
        drawn = {
            **{d.name: d.figure for d in drawings},
            **{e.name: e.figure for e in effects},
            **weights.figures,
            **fits.figures,
            **standing.figures,
            **saturation.figures,
        }
        images = {(name, kind): image for name, figure in drawn.items() for kind, image in _images(figure).items()}
    looks = {"What the fits look like": fits.blocks, "What the weights look like": weights.blocks}
    document = build_document(study, drawings, effects, looks, standing.blocks, saturation.blocks)
    vectors = {name: content for (name, kind), content in images.items() if kind == "svg"}
    figures = folder / "figures"
    figures.mkdir(parents=True, exist_ok=True)
    written = [_write(figures / f"{name}.{kind}", content) for (name, kind), content in images.items()]
    judged = {**verdicts_json(study), **effects_json(study.effects, study.outcomes), **standing.told}
    verdicts = json.dumps(judged, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    written.insert(0, _write(folder / "verdicts.json", verdicts.encode()))
    written.insert(0, _write(folder / "report.md", to_markdown(document).encode()))
    written.insert(1, _write(folder / "report.html", to_html(document, vectors).encode()))
    return written


def _images(figure: Figure) -> dict[str, bytes]:
    """In every format. The layout is worked out once: it takes longer than the drawing."""
    figure.draw_without_rendering()
    figure.set_layout_engine(None)  # not "none": that leaves a placeholder, for which every file is drawn twice
    return {kind: _image(figure, kind) for kind in FORMATS}


def _image(figure: Figure, kind: str) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, metadata=DATELESS[kind])
    return buffer.getvalue()


def _write(path: Path, content: bytes) -> Path:
    write_bytes(path, content)
    return path
