"""Outside models in a plan: sizes as published or outright, costs that are counted, and one line for what cannot be built."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from bench.flop_counter import HAS_FVCORE, CountError
from bench.measure.model import build_model, config_of, cost_of, num_data_tokens_of, uses_attention
from bench.measure.step import synthetic_batch
from bench.measure.weights import build_trained, files_of
from bench.metrics import flops, params
from bench.peers import python
from bench.peers.adapter import unadapted
from bench.peers.counted import counted
from bench.planning.check import check_plan
from bench.progress import listening
from bench.report.describe import description
from bench.serialize import from_json, to_json
from bench.spec import Cell, ModelSpec, Plan, Recipe, RequestError, Workload
from bench.training.data import load_training_data
from models.layers.patches import cut_patches
from tests.answered import Answer
from tests.made_jobs import small_job
from tests.planning.plans import plan_of
from tests.trained_run import trained_run

MADE = "python:tests.peers.made_models"
SIZES = {"width": "32", "depth": "2", "heads": "4", "ffn_width": "64"}


def planned(models: str, **flags: Any) -> Plan:
    return plan_of(models=models, **flags)


def spec(models: str, **flags: str) -> ModelSpec:
    return planned(models, **flags).cells[0].cell.model


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        pytest.param("timm:gmlp_s16_224", "gmlp-s", marks=pytest.mark.slow),
        ("torchvision:vit_b_16", "vit-b16"),
    ],
)
def test_a_published_model_costs_what_our_closed_form_of_it_says(name: str, ours: str) -> None:
    pytest.importorskip(name.partition(":")[0])
    theirs, closed = planned(name).cells[0], planned(ours).cells[0]
    n = theirs.cell.model.shape.seq_len
    assert n == closed.cell.model.shape.seq_len
    assert theirs.sizing.params == closed.sizing.params
    assert theirs.sizing.cost.flops().at(n) == closed.sizing.cost.flops().at(n)
    assert theirs.sizing.cost.train_flops().at(n) == closed.sizing.cost.train_flops().at(n)
    assert [theirs.size(size) for size in ("width", "depth", "heads", "ffn_width")] == [
        closed.size(size) for size in ("width", "depth", "heads", "ffn_width")
    ]
    assert theirs.cell.workload.attention == closed.cell.workload.attention


def test_what_is_not_known_of_a_published_model_is_none_and_not_zero() -> None:
    found = planned("torchvision:vit_b_16", seq="17,5").cells
    assert [cell.cell.model.shape.seq_len for cell in found] == [17, 5]
    assert found[0].cell.model.interface.input == "images"
    assert (found[0].sizing.params_seq, found[0].sizing.params_blocks) == (None, None)
    described = description(found[0])
    assert (found[0].sizing.unknown_sizes, config_of(found[0].cell.model).pool) == ((), "cls")
    assert (described["flops_by_degree"], described["quadratic_equals_linear_at"], described["params_seq"]) == (None, None, None)


def test_what_is_counted_at_one_length_is_in_no_statement_about_growth() -> None:
    from bench.analysis.crossings import closed_forms, closed_pairs
    from bench.analysis.growth import quadratic_home

    plan = planned("vit,torchvision:vit_b_16", seq="17,5", **SIZES)
    assert {home["model"] for home in quadratic_home(plan).values()} == {"vit"}
    assert closed_pairs(plan) == []
    assert {found.model for found in closed_forms(plan)} == {"vit"}


@pytest.mark.parametrize("phase", ["infer", "train"])
def test_both_counters_agree_on_a_model_with_a_convolution(phase: str) -> None:
    model = spec("python:bench.peers.torchvision:vit", seq="17", **SIZES)
    job = small_job("flops", model, work={"phase": phase})
    values = flops.measure(job).values
    closed = planned("vit", seq="17", **SIZES).cells[0].sizing.cost
    assert values["flops"] == values["flops_torch"] == closed.flops().at(17)
    assert values["flops_fvcore"] == (values["flops"] if HAS_FVCORE else None)
    assert values["flops_quadratic_share"] is None
    assert values.get("flops_train") == (closed.train_flops().at(17) if phase == "train" else None)
    assert params.measure(job).values == {"params": closed.params().at(17), "params_seq": None, "params_blocks": None}


def test_a_disagreement_of_the_counters_fails_the_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    from bench import flop_counter

    monkeypatch.setattr(flop_counter, "HAS_FVCORE", True)
    monkeypatch.setattr(flop_counter, "count_with_fvcore", lambda *_: 10**12)
    model = spec("python:bench.peers.torchvision:vit", seq="17", **SIZES)
    with pytest.raises(flop_counter.CountError, match="fvcore 1000000000000"):
        flops.measure(small_job("flops", model))


@pytest.mark.skipif(not HAS_FVCORE, reason="compares with fvcore")
def test_work_that_no_answer_depends_on_is_counted_where_fvcore_leaves_it_out() -> None:
    values = flops.measure(small_job("flops", spec(f"{MADE}:Wasting", seq="17"))).values
    head, wasted = 2 * 192 * 10, 2 * 17 * 192 * 192
    assert (values["flops"], values["flops_fvcore"], values["flops_agree"]) == (head + wasted, head, False)
    assert values["flops_counted_by"] == f"torch; fvcore counts {100 * wasted / (head + wasted):.2g} % less"


def test_what_fvcore_cannot_follow_is_counted_by_torch_alone() -> None:
    values = flops.measure(small_job("flops", spec(f"{MADE}:Recurring", seq="17"))).values
    assert (values["flops_fvcore"], values["flops_agree"], values["flops_counted_by"]) == (None, None, "torch")
    assert values["flops"] == 2 * (17 * 3 * 8 * (192 + 8) + 8 * 10)  # three gates


def test_a_model_that_cannot_run_on_meta_is_counted_on_the_cpu() -> None:
    values = flops.measure(small_job("flops", spec(f"{MADE}:Centring", seq="17"), work={"phase": "train"})).values
    assert (values["flops"], values["flops_train"]) == (2 * 192 * 10, 4 * 192 * 10)


@pytest.mark.parametrize(("name", "block"), [("Normalising", 0), ("Skipping", 2 * 17 * 192 * 192)])
def test_a_step_is_counted_at_one_sample_and_with_every_block(name: str, block: int) -> None:
    """Batch normalisation refuses one sample in training: its backward pass was guessed. A block was counted by chance."""
    model, head = spec(f"{MADE}:{name}", seq="17"), 2 * 192 * 10
    for _ in range(5):
        counted.cache_clear()
        values = flops.measure(small_job("flops", model, work={"phase": "train"})).values
        assert (values["flops"], values["flops_train"]) == (head + block, 2 * head + (head + 2 * block if block else 0))


def test_a_backward_pass_that_cannot_be_counted_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise CountError("torch's flop counter cannot count aten::mine")

    monkeypatch.setattr("bench.peers.counted.count_train_with_torch", refuse)
    model = spec(f"{MADE}:averaging+hidden=5", seq="17")
    values = flops.measure(small_job("flops", model, work={"phase": "train"})).values
    assert (values["flops_train"], values["flops_recompute"]) == (None, None)
    assert values["flops"] == 2 * (192 * 5 + 5 * 10)


def test_a_plan_with_outside_models_is_read_again_and_held_to_its_cost() -> None:
    plan = planned("gmlp,torchvision:vit_b_16", seq="17", **SIZES)
    again = from_json(Plan, json.loads(json.dumps(to_json(plan))))
    assert again == plan
    check_plan(again, "plan.json")
    data = to_json(plan)
    data["cells"][1]["sizing"]["params"] += 1
    with pytest.raises(RequestError, match="parameters of torchvision:vit_b_16 differ from its cost"):
        check_plan(from_json(Plan, data), "plan.json")


@pytest.mark.parametrize(
    ("name", "flags", "said"),
    [
        ("timm:gmlp_s", {}, "timm has no model 'gmlp_s'"),
        ("timm:resnet18", {}, "timm:resnet18 does not cut images into patches"),
        ("torchvision:resnet18", {}, "torchvision:resnet18 does not cut images into patches"),
        ("timm:resnet18", {"task": "digits"}, "timm:resnet18 has no seq_len: n says beside which models it stands"),
        ("timm:resnet18", {"task": "digits", "seq": "18"}, "lengths that fit: 2, 5, 17, 65"),
        ("timm:resnet18", {"task": "copy", "seq": "17"}, "reads images; task copy has none"),
        ("torchvision:resnet18", {"task": "digits", "seq": "17"}, "torchvision:resnet18 reads images of three channels, not 1"),
        ("torchvision:vit_b", {}, "torchvision has no model 'vit_b'"),
        ("torchvision:vit_b_16", {"seq": "19"}, "reads square images of three channels, not 18 patches"),
        ("torchvision:vit_b_16", {"input": "tokens"}, "reads images, not --input tokens"),
        ("torchvision:vit_b_16", {"task": "copy", "seq": "17"}, "reads images; task copy has none"),
        ("python:bench.peers.g_mlp_pytorch:gmlp", {"seq": "17", "width": "32", "ffn_width": "40"}, "ffn_width must be a multiple of width"),
        ("python:nowhere.at_all:f", {"seq": "17"}, "python:nowhere.at_all cannot be imported: ModuleNotFoundError"),
        (f"{MADE}:absent", {"seq": "17"}, "has no function absent"),
        (f"{MADE}:nothing", {"seq": "17"}, "must return a torch.nn.Module, not str"),
        (f"{MADE}:stubborn", {"seq": "17"}, "cannot be built and counted at seq_len 17: no model of 192"),
        (
            f"{MADE}:Twice",
            {"seq": "17"},
            "called with one float tensor [batch, 17, 192]; returned no tensor; [batch, 10] is needed",
        ),
        (f"{MADE}:averaging+colour=red", {"seq": "17"}, "refuses its arguments: TypeError"),
        (f"{MADE}:Attending", {"seq": "17", "width": "32"}, "called with one float tensor [batch, 17, 192]; if it takes images, add READS"),
        (f"{MADE}:Demanding", {"seq": "17"}, f"give the argument as an option: {MADE}:Demanding+channels=VALUE"),
    ],
)
def test_what_cannot_be_built_is_one_line(name: str, flags: dict[str, str], said: str) -> None:
    if name.startswith("timm") or "pytorch" in name:
        pytest.importorskip(name.removeprefix("python:bench.peers.").partition(":")[0])
    with pytest.raises(RequestError) as caught:
        planned(name, **flags)
    assert said in f"{caught.value} {caught.value.hint}"
    assert "\n" not in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("name", "task", "channels"),
    [pytest.param("timm:resnet18", "digits", 1, marks=pytest.mark.slow), ("torchvision:resnet18", "cifar10", 3)],
)
def test_a_convolutional_network_reads_a_tasks_images_whole_beside_vit(name: str, task: str, channels: int) -> None:
    pytest.importorskip(name.partition(":")[0])
    plan = planned(f"vit,{name}", task=task, seq="17,65", params="11M,300k", depth="6", metrics="params")
    ours = [found for found in plan.cells if found.cell.model.name == name]
    assert [(found.cell.model.shape.seq_len, found.sizing.budget, found.sizing.match) for found in ours] == [
        (17, 11_000_000, "params"),
        (65, 11_000_000, "params"),
    ]
    assert planned(name, task=task, seq="17").cells[0].sizing.budget is None  # alone it is as published
    assert [found.size(size) for found in ours for size in ("width", "depth", "heads", "ffn_width")] == [None] * 8
    for found in ours:
        model = found.cell.model
        assert num_data_tokens_of(model) == model.shape.seq_len - 1
        module = build_model(model).eval()
        images = torch.randn(2, channels, 32, 32)
        with torch.no_grad():
            torch.testing.assert_close(module(cut_patches(images, 32 // math.isqrt(model.shape.seq_len - 1))), unadapted(module)(images))
        params_of = sum(parameter.numel() for parameter in module.parameters())
        assert (
            found.sizing.params == params_of == 11_181_642 - 64 * 49 * (3 - channels)
        )  # published: 11,689,512 with a head of 1,000 classes
        assert params_of + 990 * 513 + 64 * 49 * (3 - channels) == 11_689_512


@pytest.mark.slow
def test_a_convolutional_network_trains(tmp_path: Path) -> None:
    pytest.importorskip("timm")
    plan, (found,) = trained_run(
        tmp_path, "digits+items=100", models="timm:resnet10t", recipe=Recipe(epochs=2), seq="17", width="", depth=""
    )
    assert found.samples["loss"][-1] < found.samples["loss"][0]
    assert found.values["train_flops"] > 0
    assert "mixing" not in found.values
    _, model = build_trained(files_of(tmp_path)[0])
    data = load_training_data(plan.cells[0].cell.model, plan.cells[0].cell.workload.task, plan.recipe, seed=0)
    with torch.no_grad():
        right = model(data.test.inputs).argmax(1) == data.test.targets
    assert right.float().tolist() == found.samples["item_scores"]


def test_a_width_and_a_budget_are_too_much_for_a_user_model() -> None:
    """Its width is all that a search may vary."""
    with pytest.raises(RequestError, match=f"--width and --params both set the size of {MADE}:averaging"):
        planned(f"{MADE}:averaging", seq="17", width="32", params="100k")


def test_a_user_factory_is_called_with_what_it_names() -> None:
    plain, hidden = spec(f"{MADE}:averaging", seq="17"), spec(f"{MADE}:averaging+hidden=4", seq="17")
    assert cost_of(plain).params().at(17) == 192 * 10 + 10
    assert cost_of(hidden).params().at(17) == 192 * 4 + 4 + 4 * 10 + 10
    assert cost_of(plain).macs().at(17) == 192 * 10
    assert cost_of(plain).train_flops().at(17) == 2 * 2 * 192 * 10  # the data need no gradient
    sizing = planned(f"{MADE}:averaging", seq="17").cells[0]
    assert [sizing.size(size) for size in ("width", "depth", "heads", "ffn_width")] == [None] * 4
    assert not uses_attention(plain)


@pytest.mark.parametrize("phase", ["infer", "train"])
def test_ffts_of_an_outside_model_are_counted(phase: str) -> None:
    cell = planned(f"{MADE}:Transforming", seq="17").cells[0]
    values = flops.measure(small_job("flops", cell.cell.model, work={"phase": phase})).values
    channels, tokens = 17 * round(2.5 * 192 * math.log2(192)), 192 * 2 * round(2.5 * 17 * math.log2(17))  # the second one is complex
    assert (values["flops"], values["fft_flops"]) == (2 * 192 * 10, channels + tokens)
    assert values.get("fft_flops_train") is None
    assert values["flops_fvcore"] == (values["flops"] if HAS_FVCORE else None)
    assert description(cell)["fft_flops"] == channels + tokens


def test_attention_inside_torchs_own_layer_is_seen() -> None:
    found = spec(f"{MADE}:Attending", seq="17", width="32", input="tokens")
    assert uses_attention(found)
    products = 17 * (3 * 32 * 32 + 32 * 32) + 2 * 17 * 17 * 32 + 32 * 10
    assert cost_of(found).macs().at(17) == products
    assert build_model(found)(*synthetic_batch(Cell(model=found, workload=Workload(batch_size=2)))[:1]).shape == (2, 10)


def test_a_model_that_reads_numbers_while_it_builds_is_counted_all_the_same() -> None:
    assert cost_of(spec(f"{MADE}:reading", seq="17")).macs().at(17) == 17 * 192 * 10


def test_what_is_imported_is_told() -> None:
    python.known.cache_clear()
    python._module.cache_clear()
    told: list[str] = []
    with listening(told.append):
        spec(f"{MADE}:averaging", seq="17")
    assert len(told) == 1
    assert told[0].startswith("imported tests.peers.made_models from ")


def test_a_task_is_read_in_patches() -> None:
    model = spec("python:bench.peers.torch_nn:transformer", seq="17", task="digits", **SIZES)
    assert model.interface.input == "patches"
    assert num_data_tokens_of(model) == 16
    built = build_model(model).eval()
    patches = torch.randn(2, 16, model.interface.patch_dim)
    assert built(patches, None).shape == (2, 10)
    with pytest.raises(ValueError, match="valid must be None"):
        built(patches, torch.ones(2, 16, dtype=torch.bool))


def test_folded_patches_are_the_image_that_the_model_reads() -> None:
    from bench.peers.adapter import Adapter
    from models.layers.patches import cut_patches

    model = build_model(spec("python:bench.peers.torchvision:vit", seq="17", task="cifar10", **SIZES)).eval()
    assert isinstance(model, Adapter)
    torch.nn.init.normal_(model.model.get_parameter("heads.head.weight"))  # torchvision's head starts at zero
    images = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        assert torch.allclose(model(cut_patches(images, 8)), model.model(images), atol=1e-6)
        assert not torch.allclose(model(cut_patches(images, 8).flip(1)), model.model(images), atol=1e-3)


def test_describe_takes_a_published_model_at_its_own_length(answer: Answer) -> None:
    code, out, _ = answer("describe torchvision:vit_b_16 --json")
    assert code == 0
    found = json.loads(out)
    assert (found["seq_len"], found["width"], found["flops"]) == (197, 768, 2 * 17_563_828_224)
    assert [(term["name"], term["flops"]) for term in found["terms"]] == [("counted as a whole", found["flops"])]
