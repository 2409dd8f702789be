"""timm's benchmark.py, unchanged, on a module of ours: it is registered as a timm model whose image is the batch of patches."""

from __future__ import annotations

import contextlib
import io
import json
import runpy
import sys
from pathlib import Path
from typing import Any

from torch import Tensor, nn

NAME = "gmlp_bench_module"
RESULT = "--result"


class OneChannelImage(nn.Module):
    """Reads `(batch, 1, tokens, patch_dim)`, the only rank that timm's script makes, as `(batch, tokens, patch_dim)`; a view, no copy."""

    def __init__(self, module: nn.Module, data: Tensor) -> None:
        super().__init__()
        self.module = module
        self.num_classes = 0
        self.pretrained_cfg = {"input_size": (1, *data.shape[1:])}

    def forward(self, image: Tensor) -> Tensor:
        answer: Tensor = self.module(image.squeeze(1))
        return answer


def step_ms_by_script(script: Path, module: nn.Module, data: Tensor, device: str) -> float:
    """What the script reports as `infer_step_time`: the mean time of a step in milliseconds. Raises RuntimeError where it reports none."""
    from timm.models import register_model

    def gmlp_bench_module(**_: Any) -> nn.Module:
        return OneChannelImage(module, data)

    register_model(gmlp_bench_module)
    flags = ["--model", NAME, "--bench", "inference", "--no-retry", "--batch-size", str(len(data)), "--device", device]
    said = io.StringIO()
    argv, sys.argv = sys.argv, [str(script), *flags]
    try:
        with contextlib.redirect_stdout(said):
            runpy.run_path(str(script), run_name="__main__")
    finally:
        sys.argv = argv
    result = json.loads(said.getvalue().partition(RESULT)[2])
    if "infer_step_time" not in result:
        raise RuntimeError(f"timm's script reported no time: {result}")
    return float(result["infer_step_time"])
