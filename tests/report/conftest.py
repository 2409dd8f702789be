"""Reports to test with: real shapes and polynomials, invented measurements."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas
import pytest

from bench.analysis.study import Study
from bench.analysis.trust import Concern
from bench.catalog import names
from bench.measure.model import cost_of
from bench.reading.table import SeedScores
from bench.reading.timings import Timings
from bench.report.charts.style import figure_style
from bench.report.markdown import to_markdown
from bench.report.page import build_document
from bench.report.tables import Table
from bench.serialize import to_json
from bench.spec import Cell, ModelSpec, Plan, PlannedCell, Settings, Sizing, Skipped, Workload
from models.layers.shape import Shape

METRICS = ("params", "flops", "latency", "memory", "energy", "accuracy")
FAMILY_OPTIONS = {"gmlp+pool=mean+spatial_heads=4": ("gmlp", (("pool", "mean"), ("spatial_heads", 4)))}
MakeData = Callable[..., Study]


def planned_cell(model: str, seq_len: int, budget: int | None, work: Mapping[str, Any]) -> PlannedCell:
    name = model if model in FAMILY_OPTIONS or model in names("families") else "vit"
    family, options = FAMILY_OPTIONS.get(name, (name, ()))
    width = 8 * max(4, round((budget or 250_000) ** 0.5 / 100))
    shape = Shape(seq_len=seq_len, width=width, depth=2, heads=2, ffn_width=(6 if family == "gmlp" else 4) * width)
    spec = ModelSpec(name=model, family=family, options=options, shape=shape)
    attention = "none" if family == "gmlp" else "auto"
    cost = cost_of(spec)
    sizing = Sizing(
        match="params" if budget else "none",
        budget=budget,
        budget_error=0.0012 if budget else None,
        params=cost.params().at(seq_len),
        params_seq=cost.params_seq().at(seq_len),
        params_blocks=cost.params("blocks").at(seq_len),
        heads=None if family == "gmlp" else 2,
        terms=cost.terms,
    )
    return PlannedCell(cell=Cell(model=spec, workload=Workload(attention=attention, **work)), sizing=sizing)


def plan_of(*cells: PlannedCell) -> Plan:
    """A plan of trainings."""
    return Plan(name="x", command="", created="", metrics=("accuracy",), cells=cells)


def measured_row(planned: PlannedCell, place: int, metrics: Sequence[str]) -> dict[str, Any]:
    """One row of the table, with plausible values that grow with n."""
    cell, sizing = planned.cell, planned.sizing
    n = cell.model.shape.seq_len
    flops = sizing.cost.flops().at(n)
    latency = 1e-7 * flops * (1 + 0.11 * place) * (0.02 if cell.workload.device == "cuda" else 1.0)
    parts = {"weight_bytes": 4.0 * sizing.params, "gradient_bytes": None, "optimizer_bytes": None, "activation_bytes": 900.0 * n**1.3}
    accuracy = 0.9 + 0.02 * place - 0.3 / n
    by_metric: dict[str, dict[str, Any]] = {
        "flops": {"flops": flops, "flops_quadratic_share": sizing.cost.flops().degree(2) * n * n / flops, "flops_agree": True},
        "latency": {
            "latency_ms": latency,
            "latency_low_ms": 0.96 * latency,
            "latency_high_ms": 1.05 * latency,
            "latency_stable": True,
            "latency_p90_ms": 1.1 * latency,
            "throughput_per_s": 1e3 * cell.workload.batch_size / latency,
        },
        "memory": {**parts, "peak_memory_bytes": 4.0 * sizing.params + 900.0 * n**1.3, "memory_source": "measured"},
        "energy": {"energy_reason": "RAPL shows no CPU package"},
        "accuracy": {
            "accuracy": accuracy,
            "accuracy_low": accuracy - 0.012,
            "accuracy_high": accuracy + 0.012,
            "num_seeds": 5,
            "train_s": 61.2,
        },
    }
    row = {
        "cell_id": cell.cell_id,
        "model": cell.model.name,
        "family": cell.model.family,
        "status": "measured",
        "reason": "",
        "quick": False,
    }
    row |= to_json(cell.model.shape) | to_json(cell.workload)
    row |= {name: getattr(sizing, name) for name in ("match", "budget", "budget_error", "params", "params_seq", "params_blocks")}
    for metric in metrics:
        row |= by_metric.get(metric, {})
    return row


def build(
    models: Sequence[str] = ("gmlp", "vit", "transformer"),
    lengths: Sequence[int] = (17, 65, 257),
    budgets: Sequence[int | None] = (250_000,),
    works: Sequence[Mapping[str, Any]] = ({},),
    metrics: Sequence[str] = METRICS,
    change: Callable[[pandas.DataFrame], None] | None = None,
    quick: bool = False,
    **fields: Any,
) -> Study:
    """`change` edits the rows in place before they are handed over."""
    cells, rows = [], []
    for work, budget, n, (place, model) in itertools.product(works, budgets, lengths, enumerate(models)):
        planned = planned_cell(model, n, budget, work)
        cells.append(planned)
        rows.append(measured_row(planned, place, metrics))
    table = pandas.DataFrame(rows)
    if change is not None:
        change(table)
    skipped = (Skipped(model="gmlp", seq_len=4097, budget=250_000, reason="n^2 weights exceed the budget", nearest_params=33_570_816),)
    plan = Plan(
        name="test",
        command="bench run --models gmlp,vit --seq 17,65,257",
        created="2025-01-02T03:04:05+00:00",
        metrics=tuple(metrics),
        cells=tuple(cells),
        skipped=skipped,
        settings=Settings(quick=quick, rounds=3 if quick else 7),
    )
    environment = {
        "cpu_model": "Example CPU",
        "num_cores": 2,
        "memory_bytes": 8 * 2**30,
        "gpu": None,
        "git_dirty": False,
        "load_before": [0.1, 0.2],
    }
    control = {"cell": "gmlp, n = 17", "ratio": 1.002, "low": 0.99, "high": 1.014, "contains_one": True, "level": 0.99, "is_range": False}
    values: dict[str, Any] = {
        "name": "2025-01-02_cpu_test",
        "environment": environment,
        "control": control,
        "concerns": [Concern(text="A remark.", advice="advice, one sentence", serious=False)],
    }
    return Study(plan=plan, rows=table, **{"timings": rounds_of(table), **values, **fields})


def rounds_of(table: pandas.DataFrame, num_rounds: int = 20) -> Timings:
    """Rounds of the latencies in the rows, within 1 %; each slows all alike."""
    rows = table.dropna(subset="latency_ms").to_dict("records") if "latency_ms" in table else []
    return Timings({row["cell_id"]: {i: row["latency_ms"] * (0.99 + 0.001 * i) for i in range(num_rounds)} for row in rows})


def page_text(study: Study) -> str:
    """The whole page as Markdown, folded sections included."""
    with figure_style():
        return to_markdown(build_document(study))


def lines_with(text: str, *words: str) -> list[str]:
    """Rows of tables that hold all the words."""
    return [line for line in text.splitlines() if line.startswith("|") and all(word in line for word in words)]


def section(text: str, title: str) -> str:
    return text.split(f"## {title}\n")[1].split("\n## ")[0]


def scores_of(data: Study, rates: Mapping[str, float] = {}, *, num_seeds: int = 5, num_items: int = 400) -> dict[str, SeedScores]:
    """Test items that are right as often as the model's rate says, else its accuracy."""
    rng = np.random.default_rng(1)
    return {
        row["cell_id"]: SeedScores(
            training=row["cell_id"],
            seeds=tuple(range(num_seeds)),
            scores=(rng.random((num_seeds, num_items)) < rates.get(row["model"], row["accuracy"])).astype(float),
        )
        for row in data.rows.to_dict("records")
    }


def as_dicts(table: Table) -> list[dict[str, str]]:
    return [dict(zip(table.headers, row, strict=True)) for row in table.rows]


def contrast(first: str, second: str) -> float:
    """Of two colours, as WCAG 2.2 defines it."""
    high, low = sorted((_luminance(first), _luminance(second)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def _luminance(color: str) -> float:
    channels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.fixture
def styled() -> Iterator[None]:
    """Figures are drawn in the style of a report."""
    with figure_style():
        yield


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures are empty: what a page says is the same."""
    monkeypatch.setattr("bench.report.images.image_of", lambda *_: b'<svg xmlns="http://www.w3.org/2000/svg"/>')


@pytest.fixture
def without_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of runs have none: what else they say is the same."""
    monkeypatch.setattr("bench.report.page.draw_figures", lambda _: [])


@pytest.fixture(scope="session")
def make_data() -> MakeData:
    return build
