"""Is a layer that mixes no tokens smaller than attention?

Prediction: yes. It has one matrix, attention four.

Source: none.

Cost: a second on a CPU; a GPU the same.
"""

from __future__ import annotations

from bench.questions import Ablation, Arm, Grid, Prediction

ARMS = (
    Arm(name="attention", flags={"models": "metaformer+mixer=attention"}),
    Arm(name="no mixing", flags={"models": "metaformer+mixer=per_token"}),
)
GRIDS = (Grid(name="blocks", flags={"seq": "17", "width": "16", "heads": "2", "depth": "1", "metrics": "params,weight_norm"}, arms=ARMS),)
PREDICTIONS = (
    Prediction(part="blocks", arm="no mixing", measure="params", expected="lower", by=0.05, because="it has one matrix, attention four"),
)
ABLATION = Ablation(cpu=GRIDS, cuda=GRIDS, quick=GRIDS, predictions=PREDICTIONS)
