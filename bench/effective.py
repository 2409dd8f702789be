"""What really ran: the kernel behind scaled_dot_product_attention and the precision of matrix products."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from bench.spec import NO_ATTENTION, Cell, Workload
from bench.step import Step

FUSED_KERNELS = {
    "_scaled_dot_product_flash_attention_for_cpu": "flash",
    "_scaled_dot_product_flash_attention": "flash",
    "_scaled_dot_product_efficient_attention": "efficient",
    "_scaled_dot_product_cudnn_attention": "cudnn",
    "_scaled_dot_product_fused_attention_overrideable": "overrideable",
}
EXPLICIT = "math"


class _Kernels(TorchDispatchMode):
    """Collects the fused attention operators that are dispatched."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, None] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name in FUSED_KERNELS:
            self.found[FUSED_KERNELS[name]] = None
        return func(*args, **(kwargs or {}))


def attention_kernel(cell: Cell, step: Step) -> str:
    """The kernel of one more forward of the uncompiled model in the cell's phase; `math` where the product was explicit; `none` without
    attention. A compiled model makes the same choice at trace time."""
    work = cell.workload
    if work.attention == NO_ATTENTION:
        return NO_ATTENTION
    autocast = torch.autocast(work.device, dtype=torch.bfloat16, enabled=work.dtype == "bf16-autocast")
    with _Kernels() as kernels, torch.set_grad_enabled(work.phase == "train"), autocast:
        step.model(step.data)
    return "+".join(kernels.found) or EXPLICIT


def precision(work: Workload) -> str:
    """Words for the arithmetic of matrix products as set at this moment."""
    if work.dtype == "bf16":
        return "bf16 weights and activations"
    if work.dtype == "bf16-autocast":
        return "bf16 products, fp32 weights (autocast)"
    if work.device == "cuda" and torch.backends.cuda.matmul.allow_tf32:
        return "tf32"
    return "fp32"
