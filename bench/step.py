"""The step that a cost metric measures: a model, its input, and one call of it in the phase, engine, dtype and attention backend asked for."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from bench.build import build_model, num_data_tokens_of
from bench.spec import NO_ATTENTION, Cell
from models.layers.shape import Interface

BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "math": SDPBackend.MATH,
}
LEARNING_RATE = 1e-4
PARAMETER_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "bf16-autocast": torch.float32}


@dataclass(frozen=True, kw_only=True)
class Step:
    """`call()` runs one step: a forward without gradient (`infer`), or forward, backward and AdamW step (`train`)."""

    model: nn.Module
    data: Tensor
    labels: Tensor
    optimizer: torch.optim.Optimizer | None
    call: Callable[[], Tensor]


@contextlib.contextmanager
def attention_backend(name: str) -> Iterator[None]:
    """Restrict scaled_dot_product_attention to one backend; `auto` and `none` leave the choice to torch."""
    if name in ("auto", NO_ATTENTION):
        yield
    else:
        with sdpa_kernel(BACKENDS[name]):
            yield


def build_step(cell: Cell, *, seed: int = 0) -> Step:
    """Build the model on its device and the callable that one sample of a metric runs. Same seed, same weights and data."""
    work = cell.workload
    torch.manual_seed(seed)
    exact_fp32()
    with torch.device(work.device):
        model = build_model(cell.model)
        cast(model, PARAMETER_DTYPES[work.dtype])
        data, labels = synthetic_batch(cell)
    model.train(work.phase == "train")
    forward: Callable[[Tensor], Tensor] = torch.compile(model) if work.engine == "compile" else model
    optimizer = _optimizer(model) if work.phase == "train" else None
    call = _train_call(forward, data, labels, optimizer, cell) if optimizer else _infer_call(forward, data, cell)
    return Step(model=model, data=data, labels=labels, optimizer=optimizer, call=call)


def cast(model: nn.Module, dtype: torch.dtype) -> None:
    """`Module.to(dtype)` in place; that one swaps fake parameters, which fails while anything refers to them weakly."""
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor.is_floating_point():
            tensor.data = tensor.data.to(dtype)


def exact_fp32() -> None:
    """fp32 means fp32: no TF32 products."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False


def synthetic_batch(cell: Cell) -> tuple[Tensor, Tensor]:
    """`(batch, data tokens, patch_dim)` normal floats, or `(batch, data tokens)` ids; a label per answer. On the current default device."""
    tokens = num_data_tokens_of(cell.model)
    batch, interface = cell.workload.batch_size, cell.model.interface
    labels = torch.randint(interface.num_classes, (batch,) if interface.output == "class" else (batch * tokens,))
    return _synthetic_data(interface, batch, tokens, PARAMETER_DTYPES[cell.workload.dtype]), labels


def _synthetic_data(interface: Interface, batch: int, tokens: int, dtype: torch.dtype) -> Tensor:
    if interface.input == "tokens":
        return torch.randint(interface.vocab_size, (batch, tokens))
    return torch.randn(batch, tokens, interface.patch_dim).to(dtype)


def _optimizer(model: nn.Module) -> torch.optim.Optimizer:
    # one group, which may be empty: AdamW refuses a bare list of no parameters
    return torch.optim.AdamW([{"params": list(model.parameters())}], lr=LEARNING_RATE, fused=True)


def _context(cell: Cell) -> contextlib.AbstractContextManager[object]:
    """Autocast where it was asked for; entering one costs microseconds, which a small step would feel."""
    if cell.workload.dtype != "bf16-autocast":
        return contextlib.nullcontext()
    return torch.autocast(cell.workload.device, dtype=torch.bfloat16)


def _infer_call(forward: Callable[[Tensor], Tensor], data: Tensor, cell: Cell) -> Callable[[], Tensor]:
    context = _context(cell)

    def call() -> Tensor:
        with torch.no_grad(), context:
            return forward(data)

    return call


def _train_call(
    forward: Callable[[Tensor], Tensor], data: Tensor, labels: Tensor, optimizer: torch.optim.Optimizer, cell: Cell
) -> Callable[[], Tensor]:
    context = _context(cell)

    def call() -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        with context:
            logits = forward(data)
        loss = F.cross_entropy(logits.float().flatten(0, -2), labels)
        if loss.requires_grad:  # a model without parameters has no backward
            loss.backward()
        optimizer.step()
        return loss.detach()

    return call
