"""From a request to a plan, and from a plan to jobs."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
from collections import Counter
from typing import Any

import pytest

from bench.measure.model import generating_models
from bench.planning.check import check_plan
from bench.planning.jobs import (
    CUDA_LAUNCH_S,
    EXPLICIT_SCORE_S,
    JOB_OVERHEAD_S,
    TURN_S,
    batches,
    control_cell,
    estimated_job_seconds,
    estimated_seconds,
    estimated_step_seconds,
    estimated_training_seconds,
    jobs,
)
from bench.planning.recipe import parse_recipe
from bench.planning.timing import Pilot, setup_seconds, uncounted_calls
from bench.reading.store import parse_plan
from bench.serialize import to_json
from bench.spec import Plan, Recipe, RequestError, Settings, Skipped, training_id
from tests.planning.plans import of_arms, of_parts, plan_of, planned


def test_a_plan_survives_its_json(tmp_path: Any) -> None:
    plan = planned(models="gmlp+pool=mean+activation_after=true,vit", phase="infer,train", attention="auto,math")
    again = parse_plan(json.loads(json.dumps(to_json(plan))), tmp_path)
    assert again == plan
    assert again.plan_id == plan.plan_id
    check_plan(again, "memory")


def test_the_plan_id_is_of_the_work_alone() -> None:
    plan = planned()
    assert dataclasses.replace(plan, name="other", command="x", created="y").plan_id == plan.plan_id
    assert planned(seed=1).plan_id != plan.plan_id


def test_a_skip_reworded_is_the_same_plan() -> None:
    skipped = Skipped(model="vit", seq_len=17, budget=1000, reason="too small")
    plan = dataclasses.replace(planned(), skipped=(skipped,))
    assert dataclasses.replace(plan, skipped=(dataclasses.replace(skipped, reason="no shape is as small"),)).plan_id == plan.plan_id
    assert dataclasses.replace(plan, skipped=(dataclasses.replace(skipped, seq_len=65),)).plan_id != plan.plan_id


def test_axes_multiply_but_a_model_without_attention_has_one_kernel() -> None:
    plan = planned(attention="auto,math", phase="infer,train", dtype="fp32,bf16", batch="1,8")
    per_model = Counter(p.cell.model.name for p in plan.cells)
    assert per_model == {"gmlp": 2 * 2 * 2 * 2, "vit": 2 * 2 * 2 * 2 * 2}
    assert {p.cell.workload.attention for p in plan.cells if p.cell.model.name == "gmlp"} == {"none"}


def test_shape_policy_keeps_the_sizes_and_reports_the_drift() -> None:
    plan = planned(models="gmlp,vit", seq="257,17,65", params="500k", match="shape")
    for family in ("gmlp", "vit"):
        cells = {p.cell.model.shape.seq_len: p for p in plan.cells if p.cell.model.family == family}
        assert list(cells) == [17, 65, 257]
        assert len({(p.cell.model.shape.width, p.cell.model.shape.ffn_width) for p in cells.values()}) == 1
        errors = [p.sizing.budget_error or 0.0 for p in cells.values()]
        assert abs(errors[0]) <= 0.005 < errors[2]
    assert plan.cells[0].sizing.match == "shape"


def test_shape_policy_skips_every_length_where_the_shortest_has_no_size() -> None:
    plan = planned(models="gmlp,vit,transformer", seq="1025,4097", params="250k", match="shape")
    assert {(s.model, s.seq_len) for s in plan.skipped} == {("gmlp", 1025), ("gmlp", 4097)}


def test_what_leaves_nothing_to_compare_is_refused_with_what_has_sizes() -> None:
    with pytest.raises(RequestError, match="no two configurations are left to compare: gmlp at n = 513") as refused:
        planned(models="gmlp,vit", seq="513", params="1M", depth="6")
    assert "; --depth 3 or --params 2M has a size" in str(refused.value)
    assert refused.value.hint == "try --depth 3"
    assert planned(models="gmlp,vit", seq="513", params="1M", depth="3").cells


@pytest.mark.parametrize("flags", [{"batch_tokens": "4096"}, {"width": "64"}])
def test_one_that_is_left_alone_is_refused_in_every_form_of_a_request(flags: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match="no two configurations are left to compare: vit at n = 17"):
        planned(**{"models": "gmlp,vit", "seq": "17", "params": "100k", "depth": "4"} | flags)


def test_one_model_and_what_has_no_partner_by_request_are_no_comparison_lost() -> None:
    assert [p.cell.model.shape.seq_len for p in planned(models="gmlp", seq="65,1025", params="1M", depth="6").cells] == [65]
    assert len(planned(models="gmlp,vit", seq="65,513", params="1M", depth="6").cells) == 3


def test_a_plan_says_how_far_canonical_sizes_are_moved() -> None:
    for p, nominal in zip(planned(models="gmlp,vit", seq="65", params="1M").cells, (6, 4), strict=True):
        shape = p.cell.model.shape
        assert p.sizing.rule == "canonical"
        assert p.sizing.ffn_moved == pytest.approx(shape.ffn_width / shape.width / nominal - 1)
    (at_width,) = planned(models="vit", seq="65", params="100k", depth="2", width="64").cells
    assert (at_width.sizing.rule, at_width.sizing.ffn_moved) == ("free", None)


def test_blocks_scope_leaves_embedding_and_head_out_of_the_budget() -> None:
    plan = planned(budget_scope="blocks")
    found = [p.sizing.params_blocks for p in plan.cells]
    assert all(params is not None and abs(params / 250_000 - 1) <= 0.005 for params in found)


def test_a_budget_that_gives_the_same_cell_again_is_skipped_by_name() -> None:
    plan = planned(models="vit", seq="17", params="1M,1001k")
    assert len(plan.cells) == 1
    (skipped,) = plan.skipped
    assert (skipped.budget, skipped.reason) == (1_001_000, "the same configuration as for the budget 1,000,000")


def test_flops_policy_spares_the_reference_itself_and_no_variation_of_it() -> None:
    plan = planned(models="gmlp,gmlp+tiny_attention=64", seq="257", params="1M", match="flops", reference="gmlp")
    reference, other = plan.cells
    flops = [p.sizing.cost.flops().at(257) for p in (reference, other)]
    assert abs(flops[1] / flops[0] - 1) <= 0.01


SHIFTED = "reverse+form=shifted"
BOUNDED = "metaformer+mixer=attention:inner_width=64"


@pytest.mark.parametrize("model", ["gmlp", "metaformer+mixer=attention", "metaformer+mixer=gru:bidirectional=true"])
def test_who_reads_ahead_cannot_learn_to_generate(model: str) -> None:
    with pytest.raises(RequestError, match=f"{re.escape(model)} reads ahead") as refused:
        planned(models=model, seq="16", task=SHIFTED)
    assert "form=blank" in refused.value.hint
    for able in ("encoder_decoder", "recurrent_attention", "metaformer+mixer=attention:causal=true", "metaformer+mixer=gru"):
        assert able in refused.value.hint.split("try ")[1].split(", ")
    assert planned(models=model, seq="16", task="reverse").cells


def test_what_is_named_as_able_to_generate_is_planned() -> None:
    models = generating_models()
    plan = planned(models=",".join(models), seq="16", task=SHIFTED, params="1M")
    assert [p.cell.model.name for p in plan.cells] == list(models)


def test_dropout_where_a_model_has_none_is_refused_when_planned() -> None:
    trained = {"task": "digits", "metrics": "params,accuracy"}
    recipe = "dropout=0.1,dropout_at=attention"
    with pytest.raises(RequestError, match=r"dropout=0.1 at attention: gmlp has dropout only at embedding") as refused:
        with_recipe(recipe, models="vit,gmlp", **trained)
    assert refused.value.hint == "try dropout_at=embedding+residual+head in --recipe"
    assert with_recipe(refused.value.hint.split()[1].join(("dropout=0.1,", "")), models="vit,gmlp", **trained).cells
    assert with_recipe(recipe, models="vit,gmlp+tiny_attention=8", **trained).cells
    assert with_recipe("dropout_at=attention", models="gmlp", **trained).cells
    assert with_recipe(recipe, models="gmlp").cells  # nothing is trained


def with_recipe(recipe: str, **flags: Any) -> Plan:
    return plan_of(recipe=Recipe(**dict[str, Any](parse_recipe(recipe))), **{"seq": "17", "params": "250k", **flags})


def test_a_model_that_drops_nowhere_is_told_so() -> None:
    flags = {"models": "kernel_regression", "width": "8", "seq": "16", "params": "", "task": "curve_fitting"}
    with pytest.raises(RequestError, match=r"dropout=0.1 at embedding: kernel_regression has no dropout"):
        with_recipe("dropout=0.1", **flags)


def test_sizes_fit_what_a_mixer_asks_of_the_width() -> None:
    """Multiples of 8 that three spatial heads divide."""
    (found,) = planned(models="metaformer+mixer=gated_projection:spatial_heads=3", seq="17", params="1M").cells
    assert found.cell.model.shape.width % 24 == 0
    assert abs(found.sizing.budget_error or 0.0) <= 0.005
    with pytest.raises(RequestError, match="at width 64: width must be a multiple of spatial_heads: 64 is not a multiple of 3"):
        planned(models="metaformer+mixer=gated_projection:spatial_heads=3", seq="17", width="64")


def test_widths_whose_heads_an_option_does_not_allow_are_passed_over() -> None:
    """64 channels are shared by 1, 2, 4 or 8 heads, not by 3; 7 channels by no number of heads that suits a width of 64."""
    (found,) = planned(models=BOUNDED, seq="17", params="1M").cells
    assert 64 % found.cell.model.shape.heads == 0
    assert found.cell.model.shape.heads > 1
    with pytest.raises(RequestError, match=r"at width [0-9]+: inner_width must be a multiple of heads: 7 is not a multiple of"):
        planned(models="metaformer+mixer=attention:inner_width=7", seq="17", params="300k")


def test_a_reference_without_the_models_pooling_has_its_own() -> None:
    """`vit` pools by a class token, which an encoder-decoder has not."""
    plan = planned(models="vit,encoder_decoder", seq="17", params="1M", match="flops", reference="encoder_decoder")
    vit, reference = (p.sizing.cost.flops().at(17) for p in plan.cells)
    assert abs(vit / reference - 1) <= 0.01


def test_nothing_feasible_is_a_wrong_request() -> None:
    with pytest.raises(RequestError, match="nothing in this request can be run"):
        planned(models="gmlp", seq="1025")


def test_every_round_holds_every_cell_once_in_its_own_order() -> None:
    plan = planned(rounds=5, metrics="params,latency")
    timed = [j for j in jobs(plan) if j.metric == "latency"]
    orders = [[j.cell.cell_id for j in timed if j.repeat == r and not j.control] for r in range(5)]
    ids = {p.cell.cell_id for p in plan.cells}
    assert all(sorted(order) == sorted(ids) for order in orders)
    assert len({tuple(order) for order in orders}) > 1
    assert jobs(plan) == jobs(plan)


def test_the_control_is_one_cell_timed_twice_in_every_round() -> None:
    plan = planned(rounds=4, metrics="latency")
    control = [j for j in jobs(plan) if j.control]
    assert [j.repeat for j in control] == [0, 1, 2, 3]
    assert {j.cell for j in control} == {control_cell(plan)}


def test_training_jobs_are_shared_by_the_cells_of_a_model() -> None:
    plan = planned(task="digits", metrics="latency,accuracy", phase="infer,train", batch="1,8", accuracy_seq="17")
    trained = [j for j in jobs(plan) if j.metric == "accuracy"]
    assert Counter((j.cell.model.name, j.cell.model.shape.seq_len, j.repeat) for j in trained) == {
        (model, 17, seed): 1 for model in ("gmlp", "vit") for seed in (0, 1)
    }
    assert jobs(plan)[-len(trained) :] == trained


def test_trainings_are_estimated_by_seed_and_within_the_whole() -> None:
    twice = planned(task="digits", metrics="latency,accuracy", accuracy_seq="17")
    once = dataclasses.replace(twice, settings=dataclasses.replace(twice.settings, seeds=1))
    assert estimated_training_seconds(twice) == pytest.approx(2 * estimated_training_seconds(once))
    assert 0 < estimated_training_seconds(twice) < estimated_seconds(twice)
    assert estimated_training_seconds(planned(task="digits")) == 0


def on_cuda(**flags: Any) -> Plan:
    return plan_of(device="cuda", **{"models": "vit", "seq": "17", "width": "32", "depth": "1", **flags})


def test_attention_without_fp32_is_refused_on_cuda_alone() -> None:
    half = ("bf16", "bf16-autocast")
    dtypes = ("fp32", "tf32", *half)
    plan = on_cuda(dtype=",".join(dtypes), attention="auto,flash,efficient,cudnn,math")
    ran = {(p.cell.workload.attention, p.cell.workload.dtype) for p in plan.cells}
    everywhere = itertools.product(("auto", "efficient", "math"), dtypes)
    assert ran == {*everywhere, *itertools.product(("flash", "cudnn"), half)}
    refused = {s.reason.partition(":")[0] for s in plan.skipped if "--attention" in s.reason}
    assert refused == {f"--attention {name} takes no fp32 tensors on CUDA" for name in ("flash", "cudnn")}
    assert {p.cell.workload.attention for p in planned(models="vit", attention="flash").cells} == {"flash"}  # on a CPU


@pytest.mark.parametrize(
    ("model", "has_mask"),
    [
        ("vit", False),
        ("metaformer+mixer=attention:causal=true", False),
        ("metaformer+mixer=attention:mask=sample", True),
    ],
)
def test_flash_attention_with_a_mask_is_refused_on_cuda(model: str, has_mask: bool) -> None:
    plan = on_cuda(models=model, dtype="bf16", attention="flash,efficient")
    assert [p.cell.workload.attention for p in plan.cells] == (["efficient"] if has_mask else ["flash", "efficient"])
    assert ["flash takes no mask on CUDA" in s.reason for s in plan.skipped] == has_mask * [True]


def test_a_request_of_what_no_attention_takes_says_what_to_change() -> None:
    with pytest.raises(RequestError, match="--attention flash takes no fp32") as refused:
        on_cuda(attention="flash")
    assert "choose another --attention" in refused.value.hint


def test_a_dtype_has_its_own_rate_on_cuda() -> None:
    peaks = {"fp32": 67e12, "tf32": 495e12, "bf16": 989e12, "bf16-autocast": 989e12}
    plan = on_cuda(seq="257", params="20M", width="", depth="2", dtype=",".join(peaks), batch="256")
    flops = {p.cell.workload.dtype: estimated_step_seconds(p, plan.settings) * 0.3 * peaks[p.cell.workload.dtype] for p in plan.cells}
    assert flops == pytest.approx(dict.fromkeys(peaks, flops["fp32"]))
    plan = planned(models="vit", dtype="fp32,bf16", seq="257")
    assert len({estimated_step_seconds(p, plan.settings) for p in plan.cells}) == 1


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_job_that_takes_turns_lasts_as_long_as_its_warm_up_and_its_bursts(device: str) -> None:
    settings = Settings(threads=1, limit_s=3600.0)
    plan = plan_of(settings=settings, device=device, models="vit", seq="257", params="20M", metrics="latency", batch="1")
    job = next(j for j in jobs(plan) if j.metric == "latency")
    step_s = estimated_step_seconds(plan.cells[0], plan.settings)
    bursts_s = job.num_blocks * ((job.num_calls + uncounted_calls(device, step_s)) * step_s + TURN_S)
    setup_s = setup_seconds(Pilot(call_s=step_s), device)
    assert estimated_job_seconds(job, plan.cells[0], plan) == pytest.approx(setup_s + bursts_s)
    pilots = {plan.cells[0].cell.cell_id: Pilot(call_s=3 * step_s)}
    assert estimated_job_seconds(job, plan.cells[0], plan, pilots) > 2 * bursts_s


def test_on_cuda_the_first_compilation_and_the_window_of_energy_are_counted() -> None:
    plan = on_cuda(seq="65", engine="eager,compile", metrics="latency,energy,memory", settings=Settings(rounds=2))
    cells = {planned.cell.cell_id: planned for planned in plan.cells}
    found = {
        (j.metric, j.cell.workload.engine, j.repeat): round(estimated_job_seconds(j, cells[j.cell.cell_id], plan))
        for j in jobs(plan)
        if not j.control
    }
    assert found["pilot", "compile", 0] - found["pilot", "eager", 0] == 20
    assert found["latency", "compile", 0] == found["latency", "compile", 1] <= found["latency", "eager", 0]  # they read what it compiled
    assert found["memory", "compile", 0] - found["memory", "eager", 0] == 20
    assert found["energy", "eager", 1] > 5


def test_small_steps_on_a_gpu_are_estimated_by_their_launches() -> None:
    """At n = 17 and batches of 32 the FLOPs of 51M parameters take 8 s, and some 255 operators a step, of 40 us each, 150 s (170 s on an H200)."""
    recipe = Recipe(epochs=10, batch_size=32, precision="bf16-autocast")
    plan = plan_of(recipe=recipe, device="cuda", models="gmlp", seq="17", params="51M", depth="6", task="cifar10", metrics="accuracy")
    assert 140 <= estimated_job_seconds(jobs(plan)[0], plan.cells[0], plan) <= 180
    few = on_cuda(depth="6", batch="1")
    assert estimated_step_seconds(few.cells[0], few.settings) == pytest.approx(10 * 6 * CUDA_LAUNCH_S)


@pytest.mark.parametrize(("changed", "share"), [({"precision": "bf16-autocast"}, 3), ({"threads": 2}, 2)])
def test_a_training_on_a_cpu_is_estimated_at_its_precision_and_threads(changed: dict[str, Any], share: float) -> None:
    def estimate(threads: int = 1, precision: str = "fp32") -> float:
        settings, recipe = Settings(train_threads=threads), Recipe(precision=precision)
        plan = plan_of(settings=settings, recipe=recipe, models="vit", seq="17", params="20M", task="digits", metrics="accuracy")
        return estimated_job_seconds(jobs(plan)[0], plan.cells[0], plan) - JOB_OVERHEAD_S["cpu"]

    assert estimate() / estimate(**changed) == pytest.approx(share)


def test_fixed_tokens_give_each_length_its_batch() -> None:
    plan = planned(models="vit", seq="17,65,257", batch_tokens="1028")
    assert {p.cell.model.shape.seq_len: p.cell.workload.batch_size for p in plan.cells} == {17: 60, 65: 16, 257: 4}
    (part,) = plan.parts
    assert (part.batching, part.match) == ("1028 tokens per batch", "params")
    assert planned(models="vit").parts == ()


def test_a_cell_of_two_parts_is_planned_once_and_belongs_to_both() -> None:
    plan = of_parts(kept={"seq": "17,65", "match": "shape"}, matched={"seq": "17,65", "match": "params", "metrics": "params,flops"})
    shared = set(plan.parts[0].cells) & set(plan.parts[1].cells)
    assert [part.match for part in plan.parts] == ["shape", "params"]
    assert [p.cell.model.shape.seq_len for p in plan.cells if p.cell.cell_id in shared] == [17]
    assert len(plan.cells) == 3
    assert plan.metrics == ("params", "flops", "latency", "memory")


def test_arms_hold_their_cells_and_facts() -> None:
    plan = of_arms(plain={}, deep={"depth": "3"}, both={"models": "vit,gmlp"})
    (part,) = plan.parts
    models = {p.cell.cell_id: p.cell.model for p in plan.cells}
    assert [(arm.name, [models[cell].name for cell in arm.cells]) for arm in part.arms] == [
        ("plain", ["vit"]),
        ("deep", ["vit"]),
        ("both", ["vit", "gmlp"]),
    ]
    assert part.baseline == "plain"
    assert [dict(arm.facts) for arm in part.arms] == [{"known": "yes"}, {}, {}]
    assert part.arms[0].cells[0] == part.arms[2].cells[0]
    assert len(plan.cells) == len(part.cells) == 3


def test_an_arm_that_cannot_be_sized_is_skipped_and_the_others_stay() -> None:
    plan = of_arms(plain={}, tiny={"params": "100"})
    assert [arm.name for arm in plan.parts[0].arms] == ["plain"]
    assert [(skipped.model, skipped.budget) for skipped in plan.skipped] == [("vit", 100)]


def test_own_recipes_part_cells_and_trainings_and_the_plans_own_is_not_told() -> None:
    plan = of_arms(plain={"recipe": "epochs=10"}, smooth={"recipe": "label_smoothing=0.3"}, same={"recipe": ""})
    arms = {arm.name: arm.cells for arm in plan.parts[0].arms}
    assert arms["plain"] == arms["same"] != arms["smooth"]
    work = {p.cell.cell_id: p.cell.workload for p in plan.cells}
    assert [work[arms[name][0]].recipe for name in ("plain", "smooth")] == [None, Recipe(label_smoothing=0.3)]
    trainings = [job for job in jobs(plan) if job.metric == "accuracy"]
    assert len({job.key for job in trainings}) == len(trainings) == 4
    assert {(job.cell.cell_id, job.recipe) for job in trainings} == {
        (arms["plain"][0], Recipe()),
        (arms["smooth"][0], Recipe(label_smoothing=0.3)),
    }


def test_a_cell_that_is_not_trained_has_no_recipe_of_its_own() -> None:
    plan = of_arms(plain={"task": "", "metrics": "params"}, smooth={"task": "", "metrics": "params", "recipe": "label_smoothing=0.3"})
    assert [p.cell.workload.recipe for p in plan.cells] == [None]


def test_an_own_recipe_that_does_not_fit_its_task_is_refused() -> None:
    with pytest.raises(RequestError, match="randaugment needs images stored as bytes"):
        of_arms(plain={}, bad={"recipe": "augment=randaugment"})


def test_a_training_engine_is_checked_with_the_plan_and_leaves_ids_alone() -> None:
    flags = {"task": "digits", "metrics": "accuracy"}
    with pytest.raises(RequestError, match="engine=graph needs a CUDA device"):
        with_recipe("engine=graph", models="vit", **flags)
    plan = on_cuda(recipe=Recipe(engine="graph"), **flags)
    with pytest.raises(RequestError, match="so engine=graph has no effect"):
        check_plan(dataclasses.replace(plan, recipe=Recipe(engine="graph", compile=True)), "plan.json")
    cell = plan.cells[0].cell
    assert training_id(cell, Recipe(engine="eager")) == training_id(cell, Recipe())
    assert training_id(cell, plan.recipe) != training_id(cell, Recipe())


def test_on_a_gpu_what_shares_a_process_is_neighbours_and_rounds_stay_shuffled() -> None:
    """The jobs of a configuration that are done once, its pilot last; and the members of a timing group."""
    plan = on_cuda(models="vit,gmlp", seq="17,33,65", metrics="params,flops,energy,latency,memory", settings=Settings(rounds=3))
    by_round = {r: [(j.cell.cell_id, j.group) for j in jobs(plan) if j.repeat == r and j.metric in ("latency", "energy")] for r in range(3)}
    for order in by_round.values():
        in_turns = [name for name, _ in itertools.groupby(group for _, group in order) if name]
        assert len(set(in_turns)) == len(in_turns) == 3 + 2  # three lengths, and two models that grow
        assert sorted(cell_id for cell_id, group in order if not group) == sorted(p.cell.cell_id for p in plan.cells)
    assert len({tuple(order) for order in by_round.values()}) == 3
    once = [(j.cell.cell_id, j.metric) for j in jobs(plan) if j.metric in ("params", "flops", "memory", "pilot")]
    assert once == [(p.cell.cell_id, metric) for p in plan.cells for metric in ("params", "flops", "memory", "pilot")]


def test_trainings_of_one_seed_task_and_length_may_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = planned(models="gmlp,vit,transformer", params="100k", task="digits", metrics="accuracy")
    found = jobs(plan)
    for batch in batches(found, side_by_side=True):
        assert len(batch) == 3
        assert len({(job.repeat, job.cell.model.shape.seq_len) for job in batch}) == 1
    assert [len(batch) for batch in batches(found)] == [1] * 12
    monkeypatch.setattr("bench.planning.jobs.MAX_BESIDE", 2)
    assert [len(batch) for batch in batches(jobs(plan), side_by_side=True)] == [2, 1] * 4


def test_explicit_attention_takes_time_for_each_score() -> None:
    """Batch 4, two blocks, three heads: 24 times 65^2 scores; a window has none in n^2."""
    sizes: dict[str, Any] = {"seq": "65", "width": "48", "depth": "2", "heads": "3", "batch": "4"}
    models = "vit,metaformer+mixer=window_attention"
    plan = plan_of(settings=Settings(threads=2), models=models, attention="auto,math", **sizes)
    seconds = {(p.cell.model.family, p.cell.workload.attention): estimated_step_seconds(p, plan.settings) for p in plan.cells}
    assert seconds["vit", "math"] - seconds["vit", "auto"] == pytest.approx(EXPLICIT_SCORE_S * 4 * 2 * 3 * 65**2 / 2)
    assert seconds["metaformer", "math"] == seconds["metaformer", "auto"]
