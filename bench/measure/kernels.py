"""Find the kernels and the precision that a step really used.

The kernels are those of scaled_dot_product_attention and of gMLP's spatial projection; the precision is that of matrix products.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from bench.errors import is_out_of_memory
from bench.measure.model import build_model
from bench.measure.step import Step, autocast_of, synthetic_batch
from bench.peers.counted import AttentionCalls
from bench.spec import EXPLICIT, NO_ATTENTION, Cell, ModelSpec, Workload

FUSED_KERNELS = {
    "_scaled_dot_product_flash_attention_for_cpu": "flash",
    "_scaled_dot_product_flash_attention": "flash",
    "_scaled_dot_product_efficient_attention": "efficient",
    "_scaled_dot_product_cudnn_attention": "cudnn",
    "_scaled_dot_product_fused_attention_overrideable": "overrideable",
    "_transformer_encoder_layer_fwd": "torch encoder layer",
    "_native_multi_head_attention": "torch multi-head",
}
UNKNOWN = "unknown"
"""Name of a kernel whose detection ran out of memory."""


class _FusedKernels(TorchDispatchMode):
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
    """Name the attention kernel that the step uses.

    It is detected in one more forward pass of one sample, by the uncompiled model in the configuration's phase; a compiled model
    makes the same choice at trace time. `math` means explicit products, `none` a model without attention, UNKNOWN that the pass did
    not fit in memory.
    """
    work = cell.workload
    if work.attention == NO_ATTENTION:
        return NO_ATTENTION
    with _FusedKernels() as kernels:
        ran = _run_one_sample(cell, step)
    return "+".join(kernels.found) or (EXPLICIT if ran else UNKNOWN)


@functools.lru_cache(maxsize=1024)
def masks_attention(model: ModelSpec) -> bool:
    """Return whether the model passes a mask to `scaled_dot_product_attention`.

    The input has no padding. Some kernels take no mask. The model is on `meta`, so nothing is computed.
    """
    cell = Cell(model=model, workload=Workload(batch_size=1))
    with torch.device("meta"), torch.no_grad(), AttentionCalls() as calls:
        build_model(model)(synthetic_batch(cell)[0])
    return bool(calls.masked)


def spatial_kernel(cell: Cell, step: Step) -> str | None:
    """Name the formulation of the spatial projection that the step uses.

    It is detected in one more forward pass of one sample, by the uncompiled model. None for models without spatial gating; UNKNOWN
    if the pass did not fit in memory. An engine may still compute the projection with other products (`engine_effective`).
    """
    found: dict[str, None] = {}

    def note(module: Any, arguments: tuple[Any, ...]) -> None:
        found[str(module.effective_kernel(arguments[0]))] = None

    gatings = [module for module in step.model.modules() if hasattr(module, "effective_kernel")]
    if not gatings:
        return None
    hooks = [module.register_forward_pre_hook(note) for module in gatings]
    try:
        _run_one_sample(cell, step)
    finally:
        for hook in hooks:
            hook.remove()
    return "+".join(found) or UNKNOWN


def _run_one_sample(cell: Cell, step: Step) -> bool:
    """Run one sample forward; return whether it fit in memory.

    By now the step has been measured, so a lack of memory for another pass is not a failure.
    """
    work = cell.workload
    try:
        with torch.set_grad_enabled(work.phase == "train"), autocast_of(work.dtype, work.device):
            step.model(step.data[:1])
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        return False
    return True


def precision(work: Workload) -> str:
    """Describe the arithmetic of matrix products as currently set."""
    if work.dtype == "bf16":
        return "bf16 weights and activations"
    if work.dtype == "bf16-autocast":
        return "bf16 products, fp32 weights (autocast)"
    if work.device == "cuda" and torch.backends.cuda.matmul.allow_tf32:
        return "tf32 products, fp32 weights"
    return "fp32"
