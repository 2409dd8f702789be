"""Build the step that cost metrics measure.

A step is a model, its input, and one call in the requested phase, engine, dtype and attention backend.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from bench.measure import engines
from bench.measure.model import build_model, num_data_tokens_of
from bench.spec import NO_ATTENTION, Cell
from models.layers.shape import Interface, image_sides

BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "math": SDPBackend.MATH,
}
LEARNING_RATE = 1e-4
UNRECORDED_STEP = "This instance was constructed with capturable=True"
TF32_ADVICE = "TensorFloat32 tensor cores for float32 matrix multiplication available but not enabled"
PARAMETER_DTYPES = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "bf16-autocast": torch.float32}


@dataclass(frozen=True, kw_only=True)
class Step:
    """A model with its input and one call to measure.

    `call`: runs one step: a forward without gradient (`infer`), or forward, backward and AdamW step (`train`).
    `forward`: the model as its engine runs it.
    `facts`: after a step, returns columns on the kernels that really ran.
    `replays`, `is_graph`: see `bench.measure.engines.Prepared`.
    """

    model: nn.Module
    forward: Callable[[Tensor], Tensor]
    data: Tensor
    labels: Tensor
    optimizer: torch.optim.Optimizer | None
    call: Callable[[], Tensor]
    facts: Callable[[], engines.Facts]
    replays: bool = False
    is_graph: bool = False


@contextlib.contextmanager
def attention_backend(name: str) -> Iterator[None]:
    """Restrict scaled_dot_product_attention to one backend.

    `auto` and `none` leave the choice to torch.
    """
    if name in ("auto", NO_ATTENTION):
        yield
    else:
        with sdpa_kernel(BACKENDS[name]):
            yield


def build_step(cell: Cell, *, seed: int = 0, prepare: Callable[[nn.Module], None] | None = None, built: nn.Module | None = None) -> Step:
    """Build a model and the step that a metric measures.

    Equal seeds give equal weights and data.

    `prepare`: changes the new model before an engine sees it, for example its weights.
    `built`: the configuration's model, if it exists already.
    """
    work = cell.workload
    torch.manual_seed(seed)
    set_product_precision(work.dtype)
    with torch.device(work.device):
        model = built if built is not None else build_model(cell.model)
        if prepare:
            prepare(model)
        cast(model, PARAMETER_DTYPES[work.dtype])
        data, labels = synthetic_batch(cell)
    model.train(work.phase == "train")
    trains = work.phase == "train"
    prepared = engines.prepare(work.engine, model, data, trains=trains)
    forward = prepared.forward
    optimizer = _optimizer(model, work.device) if trains else None
    call = _train_call(forward, data, labels, optimizer, cell) if optimizer else _infer_call(forward, data, cell)
    return Step(
        model=model,
        forward=forward,
        data=data,
        labels=labels,
        optimizer=optimizer,
        call=prepared.wrap(call),
        facts=prepared.facts,
        replays=prepared.replays,
        is_graph=prepared.is_graph,
    )


def cast(model: nn.Module, dtype: torch.dtype) -> None:
    """Convert floating-point parameters and buffers in place.

    `Module.to(dtype)` swaps fake parameters, which fails while weak references to them exist.
    """
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor.is_floating_point():
            tensor.data = tensor.data.to(dtype)


def set_product_precision(dtype: str) -> None:
    """Compute matrix products in the dtype that was asked for.

    TF32 is allowed only for dtype `tf32`; inductor's advice to allow it elsewhere is not shown. Explicit attention in bf16 computes its
    products and its softmax in bf16: by default torch converts queries, keys and values to fp32 first.
    """
    torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
    torch.backends.cudnn.allow_tf32 = dtype == "tf32"
    torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(True)
    warnings.filterwarnings("ignore", message=TF32_ADVICE)


def synthetic_batch(cell: Cell) -> tuple[Tensor, Tensor]:
    """Return random data and labels on the current default device.

    Data: normal floats `(batch, data tokens, patch_dim)`; for images `(batch, channels, height, width)`; for tokens, ids `(batch,
    data tokens)`. Labels: one per item or, for models that answer per token, one per token.
    """
    tokens = num_data_tokens_of(cell.model)
    batch, interface = cell.workload.batch_size, cell.model.interface
    labels = torch.randint(interface.num_classes, (batch,) if interface.output == "class" else (batch * tokens,))
    return _synthetic_data(interface, batch, tokens, PARAMETER_DTYPES[cell.workload.dtype]), labels


def _synthetic_data(interface: Interface, batch: int, tokens: int, dtype: torch.dtype) -> Tensor:
    if interface.input == "tokens":
        return torch.randint(interface.vocab_size, (batch, tokens))
    sides = image_sides(tokens, interface.patch_dim) if interface.input == "images" else (tokens, interface.patch_dim)
    return torch.randn(batch, *sides).to(dtype)


def _optimizer(model: nn.Module, device: str) -> torch.optim.Optimizer:
    """Return AdamW, fused unless a weight is complex; on CUDA it is capturable for every engine.

    Kernel times come from recording any step as a CUDA graph. torch warns about capturable steps that are not recorded, though
    the kernel is the same.
    """
    warnings.filterwarnings("ignore", message=UNRECORDED_STEP)
    weights = list(model.parameters())
    fused = not any(map(torch.is_complex, weights))
    # an explicit group may be empty, whereas AdamW refuses an empty list of parameters
    return torch.optim.AdamW([{"params": weights}], lr=LEARNING_RATE, fused=fused, capturable=device == "cuda")


def autocast_of(dtype: str, device: str) -> contextlib.AbstractContextManager[object]:
    """Return autocast for bf16-autocast, else a null context.

    Entering autocast costs microseconds, which matter to a small step.
    """
    return torch.autocast(device, dtype=torch.bfloat16) if dtype == "bf16-autocast" else contextlib.nullcontext()


def _infer_call(forward: Callable[[Tensor], Tensor], data: Tensor, cell: Cell) -> Callable[[], Tensor]:
    context = autocast_of(cell.workload.dtype, cell.workload.device)

    def call() -> Tensor:
        with torch.no_grad(), context:
            return forward(data)

    return call


def _train_call(
    forward: Callable[[Tensor], Tensor], data: Tensor, labels: Tensor, optimizer: torch.optim.Optimizer, cell: Cell
) -> Callable[[], Tensor]:
    context = autocast_of(cell.workload.dtype, cell.workload.device)
    weights = [parameter for group in optimizer.param_groups for parameter in group["params"]]

    def call() -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        with context:
            logits = forward(data)
        loss = F.cross_entropy(logits.float().flatten(0, -2), labels)
        run_backward(loss, weights)
        optimizer.step()
        return loss.detach()

    return call


def run_backward(loss: Tensor, weights: Iterable[nn.Parameter]) -> None:
    """Run the backward pass; without weights to train there is none. Raises ValueError if the loss carries no gradient to them."""
    if loss.requires_grad:
        loss.backward()
    elif any(weight.requires_grad for weight in weights):
        raise ValueError("its answers carry no gradient, so it cannot be trained; leave out no_grad or inference_mode")


def in_channels_last(model: nn.Module, data: Tensor) -> str:
    """Convert convolution weights and images to channels-last layout in place.

    Returns a description of the changes.
    """
    filters = [parameter for parameter in model.parameters() if parameter.dim() == 4]
    for parameter in filters:
        parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)
    if data.dim() == 4:
        data.data = data.data.contiguous(memory_format=torch.channels_last)
    return f"channels last: {len(filters)} convolutions{' and the images' if data.dim() == 4 else ''}"
