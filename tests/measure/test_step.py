"""What a step computes in: explicit attention in the row's dtype, TF32 only where it was asked for, and no advice to the contrary."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from bench.measure.step import attention_backend, build_step, set_product_precision
from tests.made_jobs import small_job, small_model


class Products(TorchDispatchMode):
    """Collects the dtypes of batched products and softmaxes."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.dtypes: set[torch.dtype] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket.__name__ in ("bmm", "_safe_softmax", "_softmax"):
            self.dtypes.add(args[0].dtype)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(("dtype", "computed"), [("bf16", torch.bfloat16), ("bf16-autocast", torch.bfloat16), ("fp32", torch.float32)])
def test_explicit_attention_computes_in_the_dtype_of_its_row(dtype: str, computed: torch.dtype) -> None:
    """By default torch converts bf16 queries, keys and values to fp32, and the row would still say bf16."""
    job = small_job("latency", small_model(heads=2), work={"batch_size": 2, "dtype": dtype, "attention": "math"})
    with attention_backend("math"):
        step = build_step(job.cell)
        with Products() as seen:
            step.call()
    assert seen.dtypes == {computed}


ADVICE = (
    "TensorFloat32 tensor cores for float32 matrix multiplication available but not enabled. "
    "Consider setting `torch.set_float32_matmul_precision('high')` for better performance."
)
"""As torch 2.11 words it when it compiles for a GPU that has TF32; from 2.14 on it is a log message."""


def test_advice_on_tf32_is_no_error_of_a_compilation_in_fp32() -> None:
    """The tests turn warnings into errors, and a run would print it in every job."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="TensorFloat32"):
            warnings.warn(ADVICE, stacklevel=1)
        set_product_precision("fp32")
        warnings.warn(ADVICE, stacklevel=1)
        assert not torch.backends.cuda.matmul.allow_tf32
