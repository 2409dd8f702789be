"""`bench diff RUN_A RUN_B` as a user meets it: what became slower, what cannot be compared, what fails a build, and what is refused."""

from __future__ import annotations

import dataclasses
import json
import math
import random
import shutil
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bench.analysis.diff import DIFFERS
from bench.planning.jobs import jobs
from bench.reading.store import RECORDS
from bench.running.writer import line_of, start_run
from bench.spec import MUST_AGREE, Job, Outcome, Plan, Settings
from tests.answered import Answer
from tests.fake_executor import measured, recorded
from tests.planning.plans import plan_of

ENVIRONMENT: dict[str, Any] = {**dict.fromkeys(MUST_AGREE, "same"), "code_version": "same", "num_cores": 2}
ITEMS = 400


def planned(**flags: Any) -> Plan:
    seeds, rounds = flags.pop("seeds", 3), flags.pop("rounds", Settings().rounds)
    wanted = {"models": "gmlp,vit", "seq": "17,65,257", "params": "1M", "metrics": "params,latency", **flags}
    return plan_of(settings=Settings(seeds=seeds, rounds=rounds), **wanted)


def stored(folder: Path, plan: Plan, seed: int, *, slower: Mapping[tuple[str, int], float] = {}, rate: float = 0.8, **facts: Any) -> Path:
    """A run with 1 % of noise; some cells slower by a factor; trained models right in a share of the items."""
    draw = random.Random(seed)
    start_run(folder, plan, {**ENVIRONMENT, **facts})
    (folder / RECORDS).write_bytes(b"".join(line_of(recorded(job, outcome(job, draw, slower, rate))) for job in jobs(plan)))
    return folder


def outcome(job: Job, draw: random.Random, slower: Mapping[tuple[str, int], float], rate: float) -> Outcome:
    n, name = job.cell.model.shape.seq_len, job.cell.model.name
    if job.metric == "params":
        return Outcome(status="measured", values={"params": 1000 + n, "params_seq": 0, "params_blocks": 1000})
    if job.metric == "accuracy":
        scores = tuple(float(draw.random() < rate) for _ in range(ITEMS))
        values: dict[str, Any] = {"accuracy": sum(scores) / ITEMS, "train_accuracy": 1.0, "train_s": 5.0, "train_images_per_s": 100.0}
        return Outcome(status="measured", values={**values, "data_id": "d"}, samples={"item_scores": scores})
    if job.metric == "latency":
        timed = measured(job, n * slower.get((name, n), 1.0) * math.exp(draw.gauss(0, 0.01)), num_bursts=10)
        return dataclasses.replace(timed, values={**timed.values, "attention_effective": "none"})
    return measured(job)


def rewrite(folder: Path, old: bytes, new: bytes) -> None:
    """As if it had been measured so, with a checksum that fits."""
    content = (folder / RECORDS).read_bytes().replace(old, new)
    lines = [line.rpartition(b',"checksum"')[0] + b"}" for line in content.splitlines()]
    (folder / RECORDS).write_bytes(b"".join(line[:-1] + b',"checksum":"%08x"}\n' % zlib.crc32(line) for line in lines))


@pytest.fixture
def before(tmp_path: Path) -> Path:
    return stored(tmp_path / "before", planned(), 1)


def verdicts(said: str) -> dict[str, str]:
    return {cell["name"]: cell["verdict"] for cell in json.loads(said)["cells"]}


def test_the_cell_that_differs_is_named_and_fails_the_bound(before: Path, tmp_path: Path, answer: Answer) -> None:
    after = stored(tmp_path / "after", planned(), 2, slower={("vit", 65): 1.2})
    code, out, err = answer("diff", before, after, "--fail-if", "latency_ms>1.05", "--json")
    assert code == 1
    found = verdicts(out)
    assert [name for name, verdict in found.items() if verdict == DIFFERS] == ["vit, n = 65, budget 1 M"]
    assert set(found.values()) == {DIFFERS, "no significant difference"}
    assert len(json.loads(out)["failing"]) == 1
    assert "vit, n = 65" in err
    assert answer("diff", before, after, "--fail-if", "latency_ms>1.3")[0] == 0
    assert answer("diff", before, after, "--fail-if", "latency_ms>0.9")[0] == 1  # all six are shown to be above that
    assert answer("diff", before, after, "--fail-if", "latency_ms<0.9")[0] == 0
    assert answer("diff", after, before, "--fail-if", "latency_ms<0.9")[0] == 1


def test_cells_that_lost_their_latency_fail_the_bound(before: Path, tmp_path: Path, answer: Answer) -> None:
    after = stored(tmp_path / "after", planned(), 2)
    lines = [line for line in (after / RECORDS).read_bytes().splitlines(keepends=True) if b'"latency"' not in line]
    (after / RECORDS).write_bytes(b"".join(lines))
    code, _, err = answer("diff", before, after, "--fail-if", "latency_ms>1.05")
    assert code == 1
    assert err.count("latency_ms missing") == 6


def test_flags_of_the_other_kind_of_comparison_are_refused(before: Path, tmp_path: Path, answer: Answer) -> None:
    after = shutil.copytree(before, tmp_path / "after")
    assert answer("diff", before, after, "--fail-if", "")[0] == 2
    assert answer("diff", before, after, "--out", before / "plan.json")[0] == 2


def test_ratios_between_models_stand_side_by_side_with_their_spread(before: Path, tmp_path: Path, answer: Answer) -> None:
    after = stored(tmp_path / "after", planned(), 2, slower={("vit", n): 1.1 for n in (17, 65, 257)})
    _, out, _ = answer("diff", before, after, "--json")
    found = json.loads(out)["ratios"]
    assert [(ratio["name"], ratio["ratio_to"]) for ratio in found] == [(f"gmlp, n = {n}, budget 1 M", f"vit n={n}") for n in (17, 65, 257)]
    for ratio in found:
        assert 0.95 < ratio["first_ratio_low"] < ratio["first_ratio"] < ratio["first_ratio_high"]
        assert ratio["second_ratio_low"] < ratio["second_ratio_high"] < 0.95
        assert ratio["spread"] == pytest.approx(ratio["second_ratio"] / ratio["first_ratio"])
    assert "slower" not in answer("diff", before, after)[1]
    elsewhere = stored(tmp_path / "elsewhere", planned(), 2, threads=2)
    assert json.loads(answer("diff", before, elsewhere, "--json")[1])["ratios"] == []


def test_too_few_rounds_decide_nothing(tmp_path: Path, answer: Answer) -> None:
    runs = [stored(tmp_path / str(i), planned(rounds=3), i, slower={("vit", 65): 1.0 + i}) for i in range(2)]
    code, out, err = answer("diff", *runs, "--json", "--fail-if", "latency_ms>1.05")
    assert code == 2
    assert "tests nothing" in err
    assert {(cell["verdict"], cell["low"], cell["high"]) for cell in json.loads(out)["cells"]} == {("too few rounds to decide", None, None)}


@pytest.mark.parametrize(("key", "other"), [("cpu_model", "another"), ("num_cores", 64)])
def test_times_of_other_machines_are_not_compared(key: str, other: Any, before: Path, tmp_path: Path, answer: Answer) -> None:
    after = stored(tmp_path / "after", planned(), 2, slower={("vit", 65): 3.0}, **{key: other})
    code, out, err = answer("diff", before, after, "--fail-if", "latency_ms>1.05", "--json")
    assert code == 2
    assert "tests nothing" in err
    assert answer("diff", before, after)[0] == 0
    cells = json.loads(out)["cells"]
    assert {cell["verdict"] for cell in cells} == {"not comparable"}
    assert all(key in cell["reason"] for cell in cells)


KNOWN: dict[str, Any] = {"cpu_type": "AMD EPYC family 26 model 2 stepping 1 (avx2)", "work_version": "0123456789abcdef", "boot": "0123abcd"}
CEILINGS = {"copy_bytes_per_s": 3e10, "torch_mm_flops_per_s": 1e11}


def test_hosts_of_one_type_are_compared_and_their_differences_named(tmp_path: Path, answer: Answer) -> None:
    slow = {**CEILINGS, "torch_mm_flops_per_s": 5e10, "copy_bytes_per_s": 3.1e10}
    first = stored(tmp_path / "a", planned(), 1, **KNOWN, ceilings_at_start=CEILINGS)
    other = {"boot": "4567cdef", "work_version": "f", "code_version": "new", "torch_version": "2.15"}
    second = stored(tmp_path / "b", planned(), 2, **{**KNOWN, **other}, ceilings_at_start=slow)
    code, out, _ = answer("diff", first, second, "--json")
    assert code == 0
    found = json.loads(out)
    assert {cell["verdict"] for cell in found["cells"]} == {"no significant difference"}
    assert found["differing"] == {
        "boot": ["0123abcd", "4567cdef"],
        "work_version": ["0123456789abcdef", "f"],
        "code_version": ["same", "new"],
        "torch_version": ["same", "2.15"],
        "torch_mm_flops_per_s in ceilings_at_start": [1e11, 5e10],
    }


@pytest.mark.parametrize("cpu_type", ["AMD EPYC family 25 model 1 stepping 1 (avx2)", None])
def test_times_of_hosts_of_another_type_or_an_unknown_one_are_not_compared(cpu_type: str | None, tmp_path: Path, answer: Answer) -> None:
    first = stored(tmp_path / "a", planned(), 1, **KNOWN)
    second = stored(tmp_path / "b", planned(), 2, **{**KNOWN, "cpu_type": cpu_type})
    cells = json.loads(answer("diff", first, second, "--json")[1])["cells"]
    assert {cell["verdict"] for cell in cells} == {"not comparable"}
    assert all((cpu_type or "host unknown") in cell["reason"] for cell in cells)


def test_cells_of_one_run_alone_say_so(before: Path, tmp_path: Path, answer: Answer) -> None:
    after = stored(tmp_path / "after", planned(seq="17,65"), 2)
    _, out, _ = answer("diff", before, after, "--json")
    reasons = {cell["name"]: cell["reason"] for cell in json.loads(out)["cells"]}
    assert reasons["vit, n = 257, budget 1 M"] == "not in the second run"
    assert reasons["vit, n = 65, budget 1 M"] == ""


def trained(folder: Path, seeds: int) -> tuple[Path, Path]:
    """Two runs of models trained on digits; those of the second are right in fewer items."""
    plan = planned(metrics="params,accuracy", task="digits", seq="17", seeds=seeds)
    return stored(folder / "a", plan, 1), stored(folder / "b", plan, 2, rate=0.5)


def test_counts_and_scores_are_compared_too(tmp_path: Path, answer: Answer) -> None:
    first, second = trained(tmp_path, seeds=5)
    rewrite(second, b'"params":1017', b'"params":1018')
    code, out, err = answer("diff", first, second, "--fail-if", "accuracy<0.9", "--json")
    changes = json.loads(out)["changes"]
    assert {change["column"] for change in changes if change["shown"]} == {"params", "accuracy"}
    assert code == 1
    assert err.count("accuracy x 0.6") == 2
    shown = answer("diff", first, second)[1]
    assert "1,017" in shown
    assert "1,018" in shown
    assert answer("diff", first, second, "--fail-if", "params>1")[0] == 1


@pytest.mark.parametrize(
    ("seeds", "lost", "caveat"), [(1, False, "one seed: other seeds may differ"), (3, True, "only 2 of 3 seeds have a result")]
)
def test_scores_of_one_seed_and_of_lost_seeds_are_not_claimed(seeds: int, lost: bool, caveat: str, tmp_path: Path, answer: Answer) -> None:
    first, second = trained(tmp_path, seeds)
    lines = (second / RECORDS).read_bytes().splitlines(keepends=True)
    last_seed = [line for line in lines if b'"accuracy"' in line and f'"repeat":{seeds - 1}'.encode() in line]
    assert last_seed
    if lost:
        (second / RECORDS).write_bytes(b"".join(line for line in lines if line not in last_seed))
    code, out, _ = answer("diff", first, second, "--json", "--fail-if", "accuracy<0.9")
    changes = [change for change in json.loads(out)["changes"] if change["column"] == "accuracy"]
    assert [(change["doubt"], change["shown"]) for change in changes] == [(caveat, False)] * 2
    assert all(change["low"] is None if seeds == 1 else change["low"] < change["high"] < 0 for change in changes)
    assert code == int(lost)  # a seed that diverged is a result, and no better one


def test_scores_on_other_data_say_so(tmp_path: Path, answer: Answer) -> None:
    first, second = trained(tmp_path, seeds=3)
    rewrite(second, b'"data_id":"d"', b'"data_id":"e"')
    code, out, _ = answer("diff", first, second)
    assert code == 0
    assert out.count("scores not compared") == 2
    assert answer("diff", first, second, "--fail-if", "accuracy<0.9")[0] == 2


def test_a_page_for_a_pull_request(before: Path, tmp_path: Path, answer: Answer) -> None:
    after = stored(tmp_path / "after", planned(), 2, slower={("vit", 65): 1.2})
    code, _, _ = answer("diff", before, after, "--fail-if", "latency_ms>1.05", "--out", tmp_path / "page")
    assert code == 1
    page = (tmp_path / "page" / "comparison.md").read_text()
    assert page.startswith("# after against before")
    assert f"| vit, n = 65, budget 1 M | {DIFFERS} |" in page


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--fail-if", "latency_ms"), "cannot read 'latency_ms'"),
        (("--fail-if", "speed>2"), "column of --fail-if"),
    ],
)
def test_a_bound_that_cannot_be_read_is_refused(arguments: tuple[str, ...], words: str, before: Path, answer: Answer) -> None:
    code, _, err = answer("diff", before, before, *arguments)
    assert code == 2
    assert words in err


def test_one_run_has_no_bound_and_runs_without_common_cells_are_refused(before: Path, tmp_path: Path, answer: Answer) -> None:
    assert answer("diff", before, "--fail-if", "latency_ms>1.05")[0] == 2
    other = stored(tmp_path / "other", planned(seq="33"), 2)
    code, _, err = answer("diff", before, other)
    assert code == 2
    assert "no configuration in common" in err
