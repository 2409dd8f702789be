"""Memory of a step: what grows with batch x heads x n^2 and what does not, predictions, and the columns on CPU."""

from __future__ import annotations

import dataclasses
import itertools
from types import SimpleNamespace
from typing import cast

import pytest
import torch

from bench.measure.memory_tracker import LiveBytes, Traffic
from bench.measure.step import attention_backend
from bench.metrics import memory
from bench.spec import Cell, Job, OptionValue, Workload
from models.layers.shape import Interface
from tests.made_jobs import small_model, small_record

FLOAT = 4
FFN_WIDTH = 64


def small_cell(
    family: str,
    *,
    n: int,
    phase: str = "infer",
    attention: str = "auto",
    batch: int = 2,
    heads: int = 2,
    depth: int = 2,
    ffn_width: int = FFN_WIDTH,
    dtype: str = "fp32",
    engine: str = "eager",
    interface: Interface = Interface(),
    options: dict[str, OptionValue] | None = None,
) -> Cell:
    sizes = {"seq_len": n, "depth": depth, "heads": heads, "ffn_width": ffn_width}
    model = small_model(family, options=options or {}, interface=interface, **sizes)
    return Cell(model=model, workload=Workload(batch_size=batch, phase=phase, attention=attention, dtype=dtype, engine=engine))


def job(cell: Cell) -> Job:
    return Job(cell=cell, metric="memory", repeat=0)


def measured_activation(cell: Cell) -> int:
    activation = memory.measure(job(cell)).values["activation_bytes"]
    assert isinstance(activation, int)
    return activation


def predicted_activation(cell: Cell) -> int:
    with attention_backend(cell.workload.attention):
        return memory.predict(cell).live.activation


def quadratic_floats(sizes: list[int], step: int) -> float:
    """The coefficient of n^2, in floats, of a polynomial of second degree from its values at three equidistant n."""
    low, middle, high = sizes
    return (high - 2 * middle + low) / (2 * step * step * FLOAT)


@pytest.mark.parametrize(("family", "phase", "matrices"), [("vit", "infer", 2), ("transformer", "train", 4)])
def test_explicit_attention_keeps_batch_x_heads_x_n_squared_to_the_byte(family: str, phase: str, matrices: int) -> None:
    """Two n x n matrices per head and sample at work, and in training one more kept by each of the two layers."""
    lengths, step = (192, 256, 320), 64
    for batch, heads in ((1, 1), (3, 2)):
        sizes = [measured_activation(small_cell(family, n=n, phase=phase, attention="math", batch=batch, heads=heads)) for n in lengths]
        assert quadratic_floats(sizes, step) == matrices * batch * heads


@pytest.mark.slow
@pytest.mark.parametrize("depth", [1, 3])
def test_in_training_explicit_attention_keeps_one_matrix_per_layer_and_two_at_work(depth: int) -> None:
    lengths, step = (2048, 4096, 6144), 2048
    for batch, heads in ((1, 2), (32, 4)):
        cells = [small_cell("vit", n=n, phase="train", attention="math", batch=batch, heads=heads, depth=depth) for n in lengths]
        assert quadratic_floats([predicted_activation(cell) for cell in cells], step) == (depth + 2) * batch * heads


@pytest.mark.parametrize("phase", ["infer", "train"])
def test_fused_attention_grows_linearly(phase: str) -> None:
    cells = [small_cell("vit", n=n, phase=phase, attention="flash", batch=3, heads=4) for n in (192, 256, 320)]
    assert quadratic_floats([measured_activation(cell) for cell in cells], 64) == 0


@pytest.mark.parametrize("lengths", [(16, 24, 32), (64, 128, 192)])
def test_gmlp_inference_grows_linearly(lengths: tuple[int, int, int]) -> None:
    """With 32 gated channels, n below and above them."""
    for batch in (1, 4):
        sizes = [measured_activation(small_cell("gmlp", n=n, batch=batch)) for n in lengths]
        assert quadratic_floats(sizes, lengths[1] - lengths[0]) == 0


@pytest.mark.parametrize(("lengths", "ffn_width", "spatial_heads", "matrices"), [((256, 384, 512), 64, 2, 1), ((64, 128, 192), 512, 1, 0)])
def test_gmlp_training_holds_n_squared_once_at_n_above_the_channels_whatever_the_batch(
    lengths: tuple[int, int, int], ffn_width: int, spatial_heads: int, matrices: int
) -> None:
    """The one n x n matrix is the gradient of a spatial weight, just before it is accumulated. Below the channels there is none."""
    for batch in (2, 4):
        options: dict[str, OptionValue] = {"spatial_heads": spatial_heads}
        cells = [small_cell("gmlp", n=n, phase="train", batch=batch, ffn_width=ffn_width, options=options) for n in lengths]
        assert quadratic_floats([measured_activation(cell) for cell in cells], lengths[1] - lengths[0]) == matrices


def gmlp_above_the_channels(batch: int, phase: str, dtype: str, kernel: str = "auto") -> float:
    cells = [small_cell("gmlp", n=n, phase=phase, batch=batch, dtype=dtype, options={"kernel": kernel}) for n in (256, 384, 512)]
    return quadratic_floats([measured_activation(cell) for cell in cells], 128)


@pytest.mark.parametrize(("phase", "dtype"), [("train", "bf16"), ("train", "bf16-autocast")])
def test_in_bf16_gmlp_at_n_above_the_channels_holds_no_n_squared_per_sample(phase: str, dtype: str) -> None:
    assert gmlp_above_the_channels(4, phase, dtype) <= gmlp_above_the_channels(2, phase, dtype) <= 2


@pytest.mark.parametrize(("dtype", "of_two_samples"), [("fp32", 2), pytest.param("bf16-autocast", 4, marks=pytest.mark.slow)])
def test_a_batched_spatial_product_is_caught(dtype: str, of_two_samples: int) -> None:
    """The broken specimen: at n above the channels, this kernel's weight gradient passes through one n x n matrix per sample.

    Under autocast its weight does too.
    """
    few, many = (gmlp_above_the_channels(batch, "train", dtype, "baddbmm") for batch in (2, 4))
    assert many - few == of_two_samples


@pytest.mark.parametrize(
    ("family", "phase", "attention"),
    [
        ("gmlp", "infer", "flash"),
        ("gmlp", "train", "flash"),
        ("vit", "train", "flash"),
        ("vit", "infer", "math"),
        ("transformer", "train", "math"),
    ],
)
def test_the_prediction_equals_the_measurement(family: str, phase: str, attention: str) -> None:
    for n, interface in ((9, Interface()), (33, Interface(input="tokens"))):
        cell = small_cell(family, n=n, phase=phase, attention=attention, interface=interface)
        measured = memory.measure(job(cell)).values
        with attention_backend(attention):
            predicted = memory.predict(cell)
        assert measured["memory_source"] == "live_storages"
        assert predicted.live == LiveBytes(
            weight=measured["weight_bytes"],
            gradient=measured["gradient_bytes"],
            optimizer=measured["optimizer_bytes"],
            activation=measured["activation_bytes"],
            total=measured["peak_memory_bytes"],
        )
        assert predicted.traffic == Traffic(moved_bytes=measured["moved_bytes"], num_operators=measured["num_operators"])
        assert predicted.traffic.num_operators > 0


def test_under_autocast_the_prediction_is_within_one_per_cent() -> None:
    cell = small_cell("vit", n=33, phase="train", attention="flash", dtype="bf16-autocast")
    with attention_backend("flash"):
        predicted = memory.predict(cell)
    measured = memory.measure(job(cell)).values
    assert predicted.live.total == pytest.approx(measured["peak_memory_bytes"], rel=0.01)
    assert predicted.traffic.moved_bytes == pytest.approx(measured["moved_bytes"], rel=0.01)


BOUNDED = list(itertools.product(("gmlp", "vit", "transformer"), ("train",), ("fp32", "bf16-autocast")))


@pytest.mark.parametrize(
    ("family", "phase", "dtype"), [("vit", "infer", "fp32"), *(pytest.param(*one, marks=pytest.mark.slow) for one in BOUNDED)]
)
def test_the_rough_bound_is_above_the_prediction(family: str, phase: str, dtype: str) -> None:
    for n, batch, depth, ffn_width, attention in ((2, 1, 1, 64, "flash"), (17, 256, 1, 8, "math"), (1025, 8, 2, 64, "math")):
        cell = small_cell(family, n=n, batch=batch, depth=depth, ffn_width=ffn_width, phase=phase, dtype=dtype, attention=attention)
        with attention_backend(attention):
            assert memory.predict(cell).live.total < memory.rough_bound_bytes(cell)


def test_a_cell_beyond_the_machine_is_predicted_and_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """32 x 4 heads x 65,537^2 scores of a float each take two terabytes, twice."""
    monkeypatch.setattr(memory, "_measured", _forbidden)
    cell = small_cell("gmlp", n=129, batch=1, dtype="bf16")
    counts = memory.predict(cell)
    assert counts.building > counts.live.total  # it does not fit while it is built in fp32
    with monkeypatch.context() as patch:
        patch.setattr(memory, "rough_bound_bytes", lambda _: 10 * counts.building)
        patch.setattr(memory, "available_bytes", lambda _: int((counts.building + counts.live.total) / 2 / memory.USABLE_SHARE))
        built = memory.measure(job(cell)).values
    assert (built["memory_source"], built["peak_memory_bytes"]) == ("predicted", counts.live.total)
    values = memory.measure(job(small_cell("vit", n=65_537, batch=32, heads=4, attention="math"))).values
    assert values["memory_source"] == "predicted"
    assert values["peak_memory_bytes"] > 2 * 32 * 4 * 65_537**2 * FLOAT
    assert values["gradient_bytes"] == values["optimizer_bytes"] == 0
    assert values["rss_bytes"] is None


def test_a_prediction_tells_the_traffic_of_an_eager_step_and_not_of_a_compiled_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_measured", _forbidden)
    monkeypatch.setattr(memory, "available_bytes", lambda _: 1)
    eager, compiled = (memory.measure(job(small_cell("gmlp", n=17, engine=engine))).values for engine in ("eager", "compile"))
    assert eager["peak_memory_bytes"] == compiled["peak_memory_bytes"]
    assert eager["moved_bytes"] > eager["num_operators"] > 0
    assert (compiled["moved_bytes"], compiled["num_operators"]) == (None, None)


def test_a_cell_that_only_might_not_fit_is_predicted_and_then_run(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = small_cell("gmlp", n=17)
    between = int((memory.predict(cell).live.total + memory.rough_bound_bytes(cell)) / 2 / memory.USABLE_SHARE)
    monkeypatch.setattr(memory, "available_bytes", lambda device: between if device == "cpu" else None)
    assert memory.measure(job(cell)).values["memory_source"] == "live_storages"


def test_a_small_cell_or_one_without_a_word_from_the_system_is_run_and_not_predicted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "predict", _forbidden)
    assert memory.measure(job(small_cell("gmlp", n=17))).values["memory_source"] == "live_storages"
    monkeypatch.setattr("bench.measure.environment.available_memory_bytes", lambda: None)
    assert memory.measure(job(small_cell("gmlp", n=17))).values["memory_source"] == "live_storages"


@pytest.mark.parametrize(
    "error",
    [torch.OutOfMemoryError("CUDA out of memory."), RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried")],
)
def test_running_out_of_memory_ends_in_a_prediction(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def exhausted(*_: object) -> dict[str, object]:
        raise error

    monkeypatch.setattr(memory, "_measured", exhausted)
    cell = small_cell("gmlp", n=17, phase="train")
    values = memory.measure(job(cell)).values
    assert (values["memory_source"], values["peak_memory_bytes"]) == ("predicted", memory.predict(cell).live.total)


def test_other_errors_are_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> dict[str, object]:
        raise RuntimeError("no available kernel")

    monkeypatch.setattr(memory, "_measured", broken)
    with pytest.raises(RuntimeError, match="no available kernel"):
        memory.measure(job(small_cell("gmlp", n=17)))


def test_resident_memory_holds_the_peak_of_a_large_step() -> None:
    """96 MiB of scores, twice, dwarf what libraries touch for the first time."""
    values = memory.measure(job(small_cell("vit", n=1024, batch=6, heads=4, depth=1, attention="math"))).values
    if memory.status_bytes("VmHWM") is None:
        assert values["rss_bytes"] is None
    else:
        assert values["rss_bytes"] > 0.8 * (values["peak_memory_bytes"] - values["weight_bytes"])


@pytest.mark.parametrize("phase", ["infer", "train"])
def test_a_compiled_step_on_cpu_tells_its_state_and_its_resident_memory(monkeypatch: pytest.MonkeyPatch, phase: str) -> None:
    def interpreted(model: torch.nn.Module, **_: object) -> torch.nn.Module:
        return model

    monkeypatch.setattr(torch, "compile", interpreted)
    eager = memory.measure(job(small_cell("gmlp", n=17, phase=phase))).values
    values = memory.measure(job(small_cell("gmlp", n=17, phase=phase, engine="compile"))).values
    assert values["memory_source"] == "rss"
    assert values["peak_memory_bytes"] is None
    assert values["activation_bytes"] is None
    assert (values["moved_bytes"], values["num_operators"]) == (None, None)
    for column in ("weight_bytes", "gradient_bytes", "optimizer_bytes"):
        assert values[column] == eager[column]


@pytest.mark.parametrize("compiled", [False, True])
def test_on_cuda_the_peak_is_the_allocators(monkeypatch: pytest.MonkeyPatch, compiled: bool) -> None:
    """The arithmetic, with a planted allocator: no GPU is touched."""
    from bench.measure.step import build_step

    calls = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: calls.append("synchronize"))
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: calls.append("reset"))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 10_000_000 if calls[-2:] == ["reset", "synchronize"] else 0)
    cell = small_cell("gmlp", n=17, phase="train")
    step = build_step(cell)
    step.call()
    values = memory._measured_on_cuda(step, compiled=compiled)
    live = memory.predict(cell).live
    assert calls == ["synchronize", "reset", "synchronize"]
    assert (values["memory_source"], values["peak_memory_bytes"]) == ("cuda_allocator", 10_000_000)
    assert (values["weight_bytes"], values["gradient_bytes"], values["optimizer_bytes"]) == (live.weight, live.gradient, live.optimizer)
    assert values["activation_bytes"] == (10_000_000 - live.weight - live.optimizer if compiled else live.activation)
    assert values["rss_bytes"] is None


def test_replayed_graphs_hold_what_was_reserved_when_they_were_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replay allocates nothing: the peak of a step would be little more than the weights."""
    from bench.measure.step import build_step

    log = []
    step = build_step(small_cell("gmlp", n=17))

    def replay() -> torch.Tensor:
        log.append("step")
        return step.data

    replayed = dataclasses.replace(step, call=replay, replays=True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: log.append("synchronize"))
    monkeypatch.setattr(torch._C, "_cuda_clearCublasWorkspaces", lambda: log.append("workspaces"), raising=False)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: log.append("empty"))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: 40_000_000 if log[-3:] == ["synchronize", "workspaces", "empty"] else 0)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 0)
    values = memory._measured_on_cuda(replayed, compiled=True)
    assert log.count("step") >= 3  # the modes of torch.compile that record do so by their third call
    assert (values["memory_source"], values["peak_memory_bytes"]) == ("cuda_reserved", 40_000_000)
    assert values["activation_bytes"] == 40_000_000 - values["weight_bytes"]


def test_the_engines_that_replay_say_so() -> None:
    from bench.measure import engines

    model, data = torch.nn.Linear(2, 2), torch.zeros(1, 2)
    recorded = engines.prepare("graph", model, data, trains=False)
    assert (recorded.replays, recorded.is_graph) == (True, True)
    assert not engines.prepare("eager", model, data, trains=False).replays
    on_cuda = cast("torch.Tensor", SimpleNamespace(device=torch.device("cuda")))
    for mode, replays in (("default", False), ("reduce-overhead", True), ("max-autotune", True), ("max-autotune-no-cudagraphs", False)):
        compiled = engines.prepare(f"compile+mode={mode}", model, on_cuda, trains=False)
        assert (compiled.replays, compiled.is_graph) == (replays, False)
        assert not engines.prepare(f"compile+mode={mode}", model, data, trains=False).replays


def test_the_columns_are_the_record_as_measured() -> None:
    values = memory.measure(job(small_cell("gmlp", n=17))).values
    assert memory.summarise([small_record("memory", values)]) == values
    assert set(values) == set(memory.COLUMNS)
    assert memory.summarise([]) == dict.fromkeys(memory.COLUMNS)


def _forbidden(*_: object) -> None:
    raise AssertionError("this must not run")
