"""Triton's compiler takes every kernel for an A100 and an H100 without one at hand: what the interpreter allows, it may refuse."""

from __future__ import annotations

from typing import Any

import pytest

from models.kernels.availability import IS_INTERPRETED
from models.kernels.tiling import tiles_of_product

pytestmark = pytest.mark.skipif(IS_INTERPRETED, reason="kernels that are interpreted are not compiled")
SHARED_BYTES = {80: 163 * 1024, 90: 227 * 1024}
"""That one block may have, by compute capability."""
STATISTICS = ("means", "inverses", "partial_weight", "partial_bias")
OPTIONAL = ("norm_weight", "norm_bias", "means", "inverses", "valid", "extra", "grad_extra")


def kernel_named(name: str) -> Any:
    pytest.importorskip("triton")
    from models.kernels import normalisation_gradient, spatial_gating_backward, spatial_gating_forward

    modules = (spatial_gating_forward, spatial_gating_backward, normalisation_gradient)
    return next(getattr(module, name) for module in modules if hasattr(module, name))


def pointer(name: str, entry: str) -> str:
    """The type of an argument, by its name."""
    if name in ("valid", "epsilon"):
        return {"valid": "*u8", "epsilon": "fp32"}[name]
    if name in STATISTICS:
        return "*fp32"
    is_tensor = name in ("z", "v", "u", "out", "gate", "upstream", "weight", "bias", *OPTIONAL) or name.startswith("grad_")
    return f"*{entry}" if is_tensor else "i32"


def compiled(name: str, capability: int, *, entry: str, absent: tuple[str, ...]) -> Any:
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compile

    kernel, tiles = kernel_named(name), tiles_of_product(196, 768, 4 if entry == "fp32" else 2)
    blocks = {"block_tokens": 16, "block_channels": 128, "precision": "ieee", "in_fp32": False}
    blocks |= {"block_rows": tiles.rows, "block_columns": tiles.columns, "block_inner": tiles.inner}
    fixed = {argument: value for argument, value in (blocks | dict.fromkeys(absent)).items() if argument in kernel.arg_names}
    signature = {argument: "constexpr" if argument in fixed else pointer(argument, entry) for argument in kernel.arg_names}
    options = {"num_warps": tiles.num_warps, "num_stages": tiles.num_stages}
    return compile(ASTSource(kernel, signature, fixed), target=GPUTarget("cuda", capability, 32), options=options)


@pytest.mark.slow
@pytest.mark.parametrize("capability", [80, 90])
@pytest.mark.parametrize(
    ("name", "entry", "absent"),
    [
        ("_token_statistics", "bf16", ()),
        ("_normalisation_gradient", "bf16", ()),
        ("_mix_and_gate", "bf16", ()),
        ("_mix_and_gate", "fp32", OPTIONAL),
        ("_gradients_of_halves", "bf16", ()),
        ("_weight_gradient", "bf16", ()),
        ("_weight_gradient", "fp32", OPTIONAL),
    ],
)
def test_the_kernel_compiles_for_a_gpu(
    name: str, capability: int, entry: str, absent: tuple[str, ...], tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    found = compiled(name, capability, entry=entry, absent=absent)
    assert found.asm["cubin"]
    assert found.metadata.shared <= SHARED_BYTES[capability]
    multiplies = "_mix" in name or "halves" in name or "weight" in name
    product = {80: "mma.sync", 90: "wgmma"}[capability]
    assert (product in found.asm["ptx"]) is (multiplies and entry == "bf16")
