"""Memory of a step: what grows with batch x heads x n^2 and what does not, predictions, and the columns on CPU."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from bench.measure.step import attention_backend, build_step
from bench.metrics import memory
from bench.spec import Cell, Job, Workload
from models.layers.shape import Interface
from tests.made_jobs import small_model

FLOAT = 4


def small_cell(
    family: str,
    *,
    n: int,
    batch: int = 2,
    heads: int = 2,
    depth: int = 2,
    ffn_width: int = 64,
    interface: Interface = Interface(),
    options: Mapping[str, Any] = {},
    **work: Any,
) -> Cell:
    sizes = {"seq_len": n, "depth": depth, "heads": heads, "ffn_width": ffn_width}
    model = small_model(family, options=options, interface=interface, **sizes)
    return Cell(model=model, workload=Workload(batch_size=batch, **work))


def job(cell: Cell) -> Job:
    return Job(cell=cell, metric="memory", repeat=0)


def quadratic_floats(lengths: tuple[int, int, int], **changes: Any) -> float:
    """The coefficient of n^2, in floats, of what a step's activations take at three equidistant lengths."""
    low, middle, high = (memory.measure(job(small_cell(n=n, **changes))).values["activation_bytes"] for n in lengths)
    found: float = (high - 2 * middle + low) / (2 * (lengths[1] - lengths[0]) ** 2 * FLOAT)
    return found


WIDE_APART, NEAR = (192, 256, 320), (16, 24, 32)


@pytest.mark.parametrize(
    ("family", "lengths", "changes", "few", "many"),
    [
        # two n x n matrices per head and sample at work, and in training one more kept by each of the three layers
        ("vit", WIDE_APART, {"attention": "math", "depth": 3}, 4, 16),
        ("vit", WIDE_APART, {"attention": "math", "depth": 3, "phase": "train"}, 10, 40),
        ("vit", WIDE_APART, {"attention": "flash", "phase": "train"}, 0, 0),
        # with 32 gated channels, n below and above them
        ("gmlp", NEAR, {}, 0, 0),
        ("gmlp", WIDE_APART, {}, 0, 0),
        # the one n x n matrix is the gradient of a spatial weight, just before it is accumulated; below the channels there is none
        ("gmlp", (256, 384, 512), {"phase": "train", "options": {"spatial_heads": 2}}, 1, 1),
        ("gmlp", (64, 128, 192), {"phase": "train", "ffn_width": 512}, 0, 0),
    ],
)
def test_what_grows_with_n_squared_is_known_to_the_byte(
    family: str, lengths: tuple[int, int, int], changes: dict[str, Any], few: int, many: int
) -> None:
    """Of two samples by one head, and of four by two."""
    found = [quadratic_floats(lengths, family=family, batch=batch, heads=heads, **changes) for batch, heads in ((2, 1), (4, 2))]
    assert found == [few, many]


def gmlp_above_the_channels(batch: int, dtype: str, kernel: str = "auto") -> float:
    return quadratic_floats((256, 384, 512), family="gmlp", phase="train", batch=batch, dtype=dtype, options={"kernel": kernel})


@pytest.mark.parametrize("dtype", ["bf16", "bf16-autocast"])
def test_in_bf16_gmlp_at_n_above_the_channels_holds_no_n_squared_per_sample(dtype: str) -> None:
    assert gmlp_above_the_channels(4, dtype) <= gmlp_above_the_channels(2, dtype) <= 2


def test_a_batched_spatial_product_is_caught() -> None:
    """The broken specimen: at n above the channels, this kernel's weight gradient passes through one n x n matrix per sample."""
    few, many = (gmlp_above_the_channels(batch, "fp32", "baddbmm") for batch in (2, 4))
    assert many - few == 2


def measured_and_predicted(cell: Cell, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, Any], dict[str, Any]]:
    """Predicted where there is no memory."""
    measured = dict(memory.measure(job(cell)).values)
    with monkeypatch.context() as patch:
        patch.setattr(memory, "available_bytes", lambda _: 1)
        return measured, dict(memory.measure(job(cell)).values)


@pytest.mark.parametrize(
    ("family", "phase", "attention"), [("gmlp", "train", "flash"), ("vit", "infer", "math"), ("transformer", "train", "math")]
)
def test_the_prediction_equals_the_measurement(family: str, phase: str, attention: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for n, interface in ((9, Interface()), (33, Interface(input="tokens"))):
        cell = small_cell(family, n=n, phase=phase, attention=attention, interface=interface)
        measured, predicted = measured_and_predicted(cell, monkeypatch)
        assert (measured.pop("memory_source"), predicted.pop("memory_source")) == ("live_storages", "predicted")
        assert predicted == {**measured, "rss_bytes": None}


def test_under_autocast_the_prediction_is_within_one_per_cent(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = small_cell("vit", n=33, phase="train", attention="flash", dtype="bf16-autocast")
    measured, predicted = measured_and_predicted(cell, monkeypatch)
    assert predicted["peak_memory_bytes"] == pytest.approx(measured["peak_memory_bytes"], rel=0.01)


@pytest.mark.parametrize(
    ("family", "phase", "dtype"),
    [("vit", "infer", "fp32"), *(pytest.param(name, "train", "bf16-autocast", marks=pytest.mark.slow) for name in ("gmlp", "transformer"))],
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


def test_a_compiled_step_is_predicted_as_its_eager_twin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_measured", _forbidden)
    monkeypatch.setattr(memory, "available_bytes", lambda _: 1)
    eager, compiled = (memory.measure(job(small_cell("gmlp", n=17, engine=engine))).values for engine in ("eager", "compile"))
    assert compiled == eager


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


def test_running_out_of_memory_ends_in_a_prediction(monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(*_: object) -> dict[str, object]:
        raise torch.OutOfMemoryError("CUDA out of memory.")

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


def test_a_compiled_step_on_cpu_tells_its_state_and_its_resident_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", lambda model, **_: model)
    eager, compiled = (
        memory.measure(job(small_cell("gmlp", n=17, phase="train", engine=engine))).values for engine in ("eager", "compile")
    )
    assert compiled["memory_source"] == "rss"
    assert {compiled[name] for name in ("peak_memory_bytes", "activation_bytes")} == {None}
    for column in ("weight_bytes", "gradient_bytes", "optimizer_bytes"):
        assert compiled[column] == eager[column]


@pytest.mark.parametrize("compiled", [False, True])
def test_on_cuda_the_peak_is_the_allocators(monkeypatch: pytest.MonkeyPatch, compiled: bool) -> None:
    """The arithmetic, with a planted allocator: no GPU is touched."""
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


def _forbidden(*_: object) -> None:
    raise AssertionError("this must not run")
