"""One ratio has one interval: the effects of a question and its table allow for the same family."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.analysis.study import study
from bench.reading.store import read_run
from bench.timing_groups import num_contrasts

RESULTS = Path(__file__).parents[2] / "results"


@pytest.mark.parametrize(
    "run", ["2026-11-30_cpu_replicate-amd-epyc-25-1-1-avx2", "2026-11-26_cpu_attention_cost", "2026-11-30_cpu_peers_avx2_train"]
)
def test_a_ratio_has_the_interval_of_its_effect(run: str) -> None:
    known = study(read_run(RESULTS / run))
    sizes = num_contrasts(known.plan)
    effects = [effect for effect in known.effects if effect.measure.name == "latency_ms"]
    assert {effect.contrast.first: effect.num_comparisons for effect in effects} == {
        effect.contrast.first: sizes[effect.contrast.first] for effect in effects
    }
    rows = known.rows.set_index("cell_id")
    for effect in effects:
        row = rows.loc[effect.contrast.first]
        if effect.contrast.against == next(part.baseline for part in known.plan.parts if part.name == effect.contrast.part):
            same_batch = rows.loc[effect.contrast.second, "batch_size"] == row["batch_size"]
            assert same_batch
            assert row["ratio"] == pytest.approx(effect.estimate.estimate)
            if not effect.estimate.is_open:
                assert (row["ratio_low"], row["ratio_high"]) == pytest.approx((effect.estimate.low, effect.estimate.high))
