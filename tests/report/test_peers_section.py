"""The report of a run that sets ours beside peers: its predictions, the figure, the means, every cell, and what was left out."""

from __future__ import annotations

import dataclasses
import itertools
import zlib

import numpy as np
import pandas
import pytest

from ablations.peers import CPU_ENGINES, faster
from bench.analysis.peers import BEST_ARM, FASTEST_PEER
from bench.analysis.study import Study
from bench.questions import Question
from bench.report.charts.peers import draw_peers
from bench.report.charts.style import figure_style
from bench.report.document import Document, Section
from bench.report.markdown import to_markdown
from bench.report.sections.answer import answer_sentences
from bench.report.sections.peers import peer_blocks
from bench.report.sections.verdicts import claim_lines
from bench.spec import Part, PlannedArm, PlannedCell
from tests.report.conftest import MakeData, lines_with
from tests.timed import timings_of_rounds

ENGINE, EAGER = CPU_ENGINES["infer"], "eager"
LENGTHS, BATCHES, PHASES = (17, 65, 257), (1, 32), ("infer", "train")
FAMILIES = {
    "gMLP": ("gmlp", {"timm": "python:timm:gmlp", "lucidrains": "python:lucidrains:gmlp"}),
    "ViT": ("vit", {"timm": "python:timm:vit", "torchvision": "python:torchvision:vit"}),
}
FACTORS = {"gmlp": (0.9, 0.5), "vit": (0.95, 0.45), "timm": (1.0, 0.6), "lucidrains": (1.2, 0.7), "torchvision": (1.1, 0.65)}
"""Times over timm's as shipped: eager, and with the engine."""
ROUNDS = 20
Key = tuple[str, str, str, int, int]
"""Model, phase, engine, n and batch size."""
WRONG = ("python:lucidrains:gmlp", "infer", EAGER, 17, 1)
SLOW = ("gmlp", "train", ENGINE, 17, 1)


def key_of(planned: PlannedCell) -> Key:
    model, work = planned.cell.model, planned.cell.workload
    return model.name, work.phase, work.engine, model.shape.seq_len, work.batch_size


def time_ms(key: Key) -> float:
    """gMLP as shipped takes 1.5 times as long as ViT. One cell of ours is slower than every peer."""
    name, phase, engine, n, batch = key
    side = name.split(":")[1] if ":" in name else name
    base: float = 0.02 * n * (1 + n / 500) * batch**0.9 * (3 if phase == "train" else 1) * (1.5 if "gmlp" in name else 1.0)
    return base * FACTORS[side][engine == ENGINE] * (3.0 if key == SLOW else 1.0)


def part_of(title: str, phase: str, cells: tuple[PlannedCell, ...]) -> Part:
    own, peers = FAMILIES[title]
    arms = {BEST_ARM: (own, ENGINE), "ours, eager": (own, EAGER)}
    arms |= {
        (peer if engine == EAGER else f"{peer}, {engine}"): (name, engine) for peer, name in peers.items() for engine in (EAGER, ENGINE)
    }
    planned = tuple(
        PlannedArm(name=arm, cells=tuple(p.cell.cell_id for p in cells if key_of(p)[:3] == (name, phase, engine)))
        for arm, (name, engine) in arms.items()
    )
    held = tuple(cell_id for arm in planned for cell_id in arm.cells)
    return Part(name=f"{title}, {phase}", match="none", batching="", cells=held, arms=planned, baseline=BEST_ARM)


def rounds_of(cells: tuple[PlannedCell, ...]) -> pandas.DataFrame:
    """Each round slows all alike; beside that every measurement has noise of 1 %."""
    slow = np.random.default_rng(0).uniform(0.9, 1.1, ROUNDS)
    rows = []
    for planned in cells:
        noise = np.random.default_rng(zlib.crc32(repr(key_of(planned)).encode()))
        rows += [(planned.cell.cell_id, i, time_ms(key_of(planned)) * slow[i] * noise.uniform(0.99, 1.01)) for i in range(ROUNDS)]
    return pandas.DataFrame(rows, columns=["cell_id", "round", "latency_ms"])


@pytest.fixture(scope="module")
def study(make_data: MakeData) -> Study:
    works = [{"phase": p, "engine": e, "batch_size": b} for p, e, b in itertools.product(PHASES, (EAGER, ENGINE), BATCHES)]
    models = [name for own, peers in FAMILIES.values() for name in (own, *peers.values())]
    data = make_data(models=models, lengths=LENGTHS, budgets=(None,), works=works, metrics=("params", "flops", "latency"))
    cells = data.plan.cells
    keys = {planned.cell.cell_id: key_of(planned) for planned in cells}
    times = data.rows["cell_id"].map(lambda cell_id: time_ms(keys[cell_id]))
    rows = data.rows.assign(
        latency_ms=times,
        latency_low_ms=0.98 * times,
        latency_high_ms=1.02 * times,
        equal=[keys[cell_id] != WRONG for cell_id in data.rows["cell_id"]],
        output_error=[0.3 if keys[cell_id] == WRONG else 2e-6 for cell_id in data.rows["cell_id"]],
    )
    parts = tuple(part_of(title, phase, cells) for title in FAMILIES for phase in PHASES)
    predictions = tuple(faster(f"{title}, {phase}", peer) for title in FAMILIES for phase in PHASES for peer in FAMILIES[title][1])
    question = Question(text="Is ours as fast?", statement="", predictions=predictions)
    plan = dataclasses.replace(data.plan, parts=parts, question=question)
    return dataclasses.replace(data, plan=plan, rows=rows, timings=timings_of_rounds(rounds_of(cells)))


@pytest.fixture(scope="module")
def section(study: Study) -> str:
    return to_markdown(Document(title="Test", subtitle="", notice="", sections=(Section(title="Peers", blocks=peer_blocks(study)),)))


def test_predictions_about_each_peer_have_verdicts(study: Study) -> None:
    shown, means, counted = answer_sentences(study)
    assert means == "Of the fastest peer's time, ours takes on average 0.450 to 0.501 in inference and 0.450 to 0.600 in training."
    assert shown == "Ours is significantly faster in 23 of 24 configurations in fp32."
    assert counted == "Of 8 predictions 5 are supported, 2 are refuted and 1 is undecided."
    lines = {line.text: line for line in claim_lines(study.prediction_verdicts)}
    wrong = lines["gMLP, infer, ours, best engine against lucidrains: latency lower"]
    assert (wrong.answer, wrong.more.partition(".")[0]) == ("undecided", "Outputs of lucidrains differ at n = 17, batch 1")
    slow = lines["gMLP, train, ours, best engine against timm: latency lower"]
    assert slow.answer == "refuted"
    assert slow.more.startswith("Refuted at n = 17, batch 1; supported at")
    assert slow.figure.startswith("n = 17, batch 1: 1.495 [")


def test_engines_stand_side_by_side(section: str) -> None:
    """Ours eager over timm's eager is 0.9, and with the engine on both sides 0.5 / 0.6."""
    (header,) = [line for line in lines_with(section, "part", "peer", "both eager") if "output error" not in line]
    kinds = ["best engine / as shipped", f"both {ENGINE}", "both eager"]
    assert [text.strip() for text in header.split("|")[1:-1]] == ["part", "peer", *kinds]
    line = next(line for line in lines_with(section, "ViT, infer", "timm", "6 of 6") if "fastest" not in line)
    assert [float(text.split("[")[0]) for text in line.split("|")[3:6]] == pytest.approx([0.45, 0.75, 0.95], abs=0.01)


def test_a_cell_whose_answers_differ_is_named(section: str) -> None:
    assert lines_with(section, "lucidrains", "outputs differ: output error 3.0e-01")


def test_the_figure_has_a_mean_and_its_configurations_per_part(study: Study) -> None:
    with figure_style():
        figure = draw_peers(study)
    assert figure is not None
    (axis,) = figure.figure.axes
    lines = {line.get_gid(): np.asarray(line.get_xdata(), dtype=float).tolist() for line in axis.get_lines()}
    comparison = study.peers
    assert comparison is not None
    for place, mean in enumerate(mean for mean in comparison.means if mean.peer == FASTEST_PEER):
        assert mean.ratio is not None
        assert lines[f"estimate-{place}"] == [mean.ratio.estimate]
        assert lines[f"interval-{place}"] == [mean.ratio.low, mean.ratio.high]
        assert lines[f"dots-{place}"] == [pair.ratio.estimate for pair in comparison.fastest if pair.place.part == mean.part and pair.ratio]
    assert axis.get_xlim()[1] > 1.498  # the slow configuration


def test_predictions_for_a_cpu_are_left_out_on_a_gpu(study: Study) -> None:
    cells = [
        dataclasses.replace(p, cell=dataclasses.replace(p.cell, workload=dataclasses.replace(p.cell.workload, device="cuda")))
        for p in study.plan.cells
    ]
    on_gpu = dataclasses.replace(study, plan=dataclasses.replace(study.plan, cells=tuple(cells)))
    assert len(study.prediction_verdicts) == 8
    assert on_gpu.prediction_verdicts == []


def test_what_was_taken_out_of_a_peer_is_said(study: Study) -> None:
    rows = study.rows.assign(differences=["two LayerNorms" if ":" in name else None for name in study.rows["model"]])
    assert any("timm: two LayerNorms." in block.caption for block in peer_blocks(dataclasses.replace(study, rows=rows)))
