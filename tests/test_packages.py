"""Plugins of installed packages: found without being imported, never in place of another, held to the contracts, and used like own ones."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bench as bench_in_python
from bench import catalog
from bench.commands.options import Options
from bench.commands.plugins import show_plugins
from bench.contracts.package import CHECKS, OK, UNCHECKED, WRONG, UncheckedError, check_package
from bench.measure import environment
from bench.measure.model import generating_models
from bench.measure.training_code import training_version
from bench.reading.store import read_environment
from bench.spec import RequestError
from bench.tasks._info import info_of
from models import metaformer
from models.layers import plugins
from models.layers.shape import Interface, Shape
from tests.answered import Answer
from tests.packages import EXAMPLE, EXECUTOR, ROOT, example, install
from tests.specimens import run_bench

BROKEN = '"""Cannot be imported."""\n\nfrom no_such_library import *\n'
CACHES = (
    plugins.find,
    plugins._declared,
    plugins._warn,
    catalog.load,
    catalog.variants,
    training_version,
    info_of,
    metaformer.mixer_names,
)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of sys.path for packages, which are forgotten after the test."""
    folder, known = tmp_path / "site", set(sys.modules)
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    forget()
    yield folder
    for name in set(sys.modules) - known:
        if str(folder) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]
    monkeypatch.undo()
    forget()


def forget() -> None:
    for cached in CACHES:
        cached.cache_clear()


def with_mixer(name: str) -> metaformer.Config:
    return metaformer.Config(shape=Shape(seq_len=17, width=16, depth=1, heads=2, ffn_width=32), interface=Interface(), mixer=name)


def test_names_summaries_and_options_are_read_without_importing(site: Path) -> None:
    own = install(site, "far-off", {"shift": f"{example('per_token')}\n{BROKEN}"}, {"mixers": {"shift": "shift"}}, version="2.1")
    (own / "__init__.py").write_text("raise SystemExit")
    assert catalog.summary("mixers", "shift").startswith("A linear layer")
    assert [(option.name, option.default) for option in catalog.options("shift", "mixers")] == [("bias", False)]
    assert catalog.plugin("mixers", "shift").origin == "far-off 2.1"
    assert "shift" in metaformer.mixer_names()
    with pytest.raises(RequestError, match=r"mixer shift of package far-off cannot be imported: SystemExit; .*pip uninstall far-off"):
        with_mixer("shift")
    assert with_mixer("identity").mixing is not None
    assert not any("shift" in model for model in generating_models())


def test_flags_of_a_mixer_are_read_from_its_text(site: Path) -> None:
    causal = example("per_token").replace("    bias: bool = False", "    bias: bool = False\n    causal: bool = True")
    mixers = {"narrows": f"{example('per_token')}\nKEEPS_WIDTH = False\n", "later": causal}
    install(site, "far-off", mixers, {"mixers": {name: name for name in mixers}})
    assert set(mixers) & set(metaformer.mixer_names()) == {"later"}
    assert "metaformer+mixer=later:causal=true" in generating_models()


def test_an_own_name_is_never_replaced(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    install(site, "far-off", {"x": '"""Theirs."""\n'}, {"tasks": {"digits": "x"}, "mixers": {"attention": "x"}})
    with pytest.warns(
        UserWarning, match="task digits of package far-off is left out: gmlp-bench has one of that name; .*pip uninstall far-off"
    ):
        show_plugins(("tasks",), Options(json=True))
    listed = json.loads(capsys.readouterr().out)
    assert [entry["package"] for entry in listed if entry["name"] == "digits"] == [""]
    assert catalog.load("tasks", "digits").__name__ == "bench.tasks.digits"
    with pytest.warns(UserWarning, match="mixer attention of package far-off is left out"):
        assert with_mixer("attention").mixer_module.__name__ == "models.mixers.attention"


def test_neither_of_two_packages_gets_a_name_that_both_declare(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for package in ("far-off", "nearby"):
        install(site, package, {"x": example("first_token")}, {"tasks": {"twice": "x"}})
    show_plugins(("tasks",), Options(json=True))
    said = capsys.readouterr()
    assert "twice" not in {entry["name"] for entry in json.loads(said.out)}
    assert [line.partition(";")[0] for line in said.err.splitlines()] == [
        "task twice of package far-off is left out: package nearby has one of that name",
        "task twice of package nearby is left out: package far-off has one of that name",
    ]
    with pytest.raises(RequestError, match="task twice of package far-off is left out: package nearby has one of that name"):
        catalog.plugin("tasks", "twice")


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("x", "far_off.absent", "'far_off.absent' is not the name of a module with a .py file"),
        ("x", "far_off.binary", "'far_off.binary' is not the name"),
        ("x", "far_off.sound:build", "'far_off.sound:build' is not the name"),
        ("x", "nowhere.at.all", "'nowhere.at.all' is not the name"),
        ("Two-words", "far_off.sound", "a name is lower-case letters"),
        ("x", "far_off.unparsed", "unparsed.py cannot be read: invalid syntax"),
        ("x", "far_off.computed", "computed.py cannot be read: malformed node"),
        ("x", "far_off.half", r"half.py defines no Config; the contract: python -m pydoc models\.mixers"),
    ],
)
def test_what_cannot_be_listed_is_one_line(name: str, value: str, reason: str, site: Path) -> None:
    sound = example("per_token")
    modules = {"sound": sound, "unparsed": "def :", "computed": sound.replace("bias: bool = False", "bias: bool = bool(0)")}
    modules["half"] = sound.replace("class Config", "class Settings")
    own = install(site, "far-off", modules, {"mixers": {name: value}})
    (own / "binary.so").touch()
    assert name not in catalog.names("mixers")
    with pytest.raises(RequestError, match=f"mixer {name} of package far-off is left out: .*{reason}"):
        with_mixer(name)


@pytest.mark.slow
def test_versions_follow_a_package_where_they_follow_own_files(site: Path) -> None:
    family = (ROOT / "models" / "vit.py").read_text().replace('"deit', '"wide')
    points = {"families": {"wide_vit": "wide_vit"}, "mixers": {"per_token": "per_token"}, "tasks": {"first_token": "first_token"}}
    modules = {"wide_vit": family, **{name: example(name) for name in ("per_token", "first_token")}, "beside": ""}

    def versions() -> dict[str, str]:
        forget()
        return {"work": environment.work_version(), **{name: training_version(name) for name in ("gmlp", "metaformer", "wide_vit")}}

    def changed(before: dict[str, str]) -> set[str]:
        after = versions()
        return {name for name in before if before[name] != after[name]}

    bare = versions()
    own = install(site, "far-off", modules, points)
    assert changed(bare) == {"work", "metaformer", "wide_vit"}
    before = versions()
    (own / "beside.py").write_text("1")
    assert changed(before) == {"work", "metaformer", "wide_vit"}
    shutil.rmtree(site / "far_off-1.0.dist-info")
    install(site, "nearby", {"x": example("first_token")}, {"tasks": {"first_token": "x"}})
    assert changed(bare) == set()
    facts = environment.inspect_environment(threads=1, device="cpu")
    assert facts["plugins"] == {"tasks first_token": "nearby 1.0"}


METRIC, TASK, ABLATION, MIXER = (example(name) for name in ("weight_norm", "first_token", "no_mixing", "per_token"))
TASK = TASK.replace('name="first_token"', 'name="x"')
ENGINE = '''"""Runs a model, or half of it."""

from dataclasses import dataclass

from bench.measure.engines import Prepared

HIDES_OPERATORS = False


@dataclass(frozen=True)
class Config:
    share: int = 1


def why_unsupported(config, workload):
    return ""


def prepare(model, data, config, *, trains):
    return Prepared(forward=lambda data: model(data) * config.share)
'''
SPECIMENS: dict[str, tuple[str, str, str, str]] = {
    "wrong cost": ("mixers", MIXER.replace("macs=N * weights", "macs=N * weights * 2"), WRONG, "x: training FLOPs at n = 17"),
    "parameters left out at an option": (
        "mixers",
        MIXER.replace(" + config.width * config.bias", ""),
        WRONG,
        "x+bias=True: parameters at n = 17",
    ),
    "weights of another draw": ("mixers", MIXER.replace("initialise_linears(nn", "nn.Sequential(nn"), WRONG, "up to the bound of Xavier"),
    "sizes that are not refused": ("mixers", MIXER.replace('require_positive("width"', 'print("width"'), WRONG, "width = 0 is not refused"),
    "a mixer without a docstring": ("mixers", MIXER.partition("\n")[2], WRONG, "no docstring"),
    "a mixer without options": ("mixers", MIXER.replace("class Config", "class Settings"), WRONG, "x.py defines no Config"),
    "a mixer without a cost": ("mixers", MIXER.replace("def cost", "def _cost"), WRONG, "x.py defines no cost"),
    "a metric without columns": (
        "metrics",
        METRIC.replace("COLUMNS", "_COLUMNS"),
        WRONG,
        "x.py defines no COLUMNS; the contract: python -m pydoc bench.metrics",
    ),
    "a task without items": ("tasks", TASK.replace("def load", "def _load"), WRONG, "x.py defines no load"),
    "an engine of half a contract": ("engines", ENGINE.replace("def prepare", "def _prepare"), WRONG, "x.py defines no prepare"),
    "a module that cannot be imported": ("metrics", BROKEN, WRONG, "No module named 'no_such_library'"),
    "torch at the top": ("metrics", f"{METRIC}\nimport torch\n", WRONG, "imports torch: import it within functions"),
    "a column of another metric": (
        "metrics",
        METRIC.replace("weight_norm", "latency_ms"),
        WRONG,
        "latency_ms of COLUMNS are another one's",
    ),
    "a column that is not filled": (
        "metrics",
        METRIC.replace('("weight_norm",)', '("weight_norm", "more")\nNOT_NUMBERS = ("none",)'),
        WRONG,
        "none",
    ),
    "a misspelt column": (
        "metrics",
        METRIC.replace('("weight_norm",)', '("weigth_norm",)'),
        WRONG,
        "the column weigth_norm stays empty, but measure gives weight_norm",
    ),
    "a text among numbers": ("metrics", METRIC.replace("sum(squares) ** 0.5", "'large'"), WRONG, "the column weight_norm holds 'large'"),
    "a measurement that fails": ("metrics", METRIC.replace("sum(squares) ** 0.5", "1 / 0"), WRONG, "is failed: ZeroDivisionError"),
    "splits that share items": (
        "tasks",
        TASK.replace("split(NUM_TEST, 2)", "split(NUM_TEST, 1)"),
        WRONG,
        "items of the test are also trained on",
    ),
    "data that differ": ("tasks", TASK.replace("manual_seed(seed)", "seed() and None"), WRONG, "global random generator"),
    "a chance that no guess has": (
        "tasks",
        TASK.replace("chance=1 / NUM_IDS", "chance=0.9"),
        WRONG,
        "chance is 0.9, but guesses of 4 classes",
    ),
    "a task of another name": ("tasks", example("first_token"), WRONG, "info names the task first_token"),
    "a task of one's own data": ("tasks", f'{TASK}\nARGUMENT = "FILE"\n', UNCHECKED, "x:FILE"),
    "an ablation that cites nothing": (
        "ablations",
        ABLATION.replace("Source:", "From:"),
        WRONG,
        "no paragraph of the docstring begins with Source:",
    ),
    "a prediction about no arm": ("ablations", ABLATION.replace('arm="no mixing"', 'arm="mixing"'), WRONG, "'mixing'"),
    "an engine": ("engines", ENGINE, OK, ""),
    "an engine that answers otherwise": (
        "engines",
        ENGINE.replace("share: int = 1", "share: int = 2"),
        WRONG,
        "those of the plain model: differs",
    ),
    "an executor": ("executors", EXECUTOR, OK, ""),
    "an executor of nothing": ("executors", '"""None."""\n\n\nclass Executor:\n    pass\n', WRONG, "TypeError"),
    "an unknown kind": ("mixtures", MIXER, WRONG, "unknown group gmlp_bench.mixtures"),
}


@pytest.mark.parametrize("fault", SPECIMENS)
def test_a_package_is_held_to_the_contracts(fault: str, site: Path) -> None:
    kind, text, answer, reason = SPECIMENS[fault]
    install(site, "far-off", {"x": text.replace("metaformer+mixer=per_token", "vit")}, {kind: {"x": "x"}})
    (site / "torch.py").touch()  # a stand-in for the interpreter that looks whether it is imported
    (finding,) = check_package("Far_off")
    assert (finding.kind, finding.answer) == (kind, answer), finding.reason
    assert reason in finding.reason
    assert bool(finding.advice or "; the contract: " in finding.reason) == (answer == WRONG)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind in ("metrics", "engines") for name in catalog.names(kind) if name != "compile"]
)
def test_own_metrics_and_engines_keep_these_contracts_too(kind: str, name: str) -> None:
    with contextlib.suppress(UncheckedError):
        CHECKS[kind](name)


def test_a_metric_that_fills_columns_of_this_program_is_refused(site: Path, answer: Answer) -> None:
    install(site, "far-off", {"x": METRIC.replace('("weight_norm",)', '("params", "latency_ms")')}, {"metrics": {"x": "x"}})
    code, _, err = answer("plan --models vit --seq 17 --metrics x")
    assert code == 2
    error, hint = err.splitlines()
    assert error == "error: metric x of package far-off fills columns of this program: latency_ms, params"
    assert hint == "hint: see: bench list --check far-off"


@pytest.mark.parametrize("value", ["numpy.float32(2.5)", "torch.tensor(2.5)", "object()"])
def test_numbers_of_numpy_and_torch_are_kept_and_what_is_no_number_fails_the_job(value: str, site: Path) -> None:
    install(
        site,
        "far-off",
        {"x": METRIC.replace("import torch\n", "import numpy, torch\n").replace("sum(squares) ** 0.5", value)},
        {"metrics": {"x": "x"}},
    )
    run = bench_in_python.run(
        models="vit", seq=17, width=16, depth=1, metrics="params,x", device="cpu", on="inline", out=site.parent / "run"
    )
    (row,) = run.table.to_dict("records")
    if value == "object()":
        assert (row["status"], "weight_norm is of type object" in row["reason"]) == ("failed", True)
    else:
        assert (row["status"], row["weight_norm"]) == ("measured", 2.5)


def test_a_run_with_a_plugin_that_is_gone_names_its_package(site: Path, tmp_path: Path, answer: Answer) -> None:
    install(site, "far-off", {"x": METRIC}, {"metrics": {"x": "x"}}, version="2.1")
    bench_in_python.run(models="vit", seq=17, width=16, depth=1, metrics="params,x", device="cpu", on="inline", out=tmp_path / "run")
    shutil.rmtree(site / "far_off-2.1.dist-info")
    forget()
    code, _, err = answer("check", tmp_path / "run")
    assert code == 2
    *_, error, hint = err.splitlines()
    assert error == f"error: {tmp_path / 'run'} has the metric x of far-off 2.1, which is not installed"
    assert hint == "hint: install far-off 2.1"


def test_a_package_without_plugins_is_refused(site: Path) -> None:
    install(site, "far-off", {"x": MIXER}, {"mixers": {"x": "x"}})
    for name in ("faroff", ""):
        with pytest.raises(RequestError, match=f"'{name}'; allowed: far-off"):
            check_package(name)


def test_without_any_package_that_is_said(site: Path) -> None:  # noqa: ARG001
    with pytest.raises(RequestError, match="'faroff' declares no plugins, nor does any other installed package") as refused:
        check_package("faroff")
    assert "CONTRIBUTING" not in refused.value.hint


def test_what_is_left_out_is_wrong(site: Path, answer: Answer) -> None:
    install(site, "far-off", {"x": MIXER}, {"mixers": {"attention": "x"}})
    code, out, _ = answer("list --check far-off")
    assert code == 1
    (line,) = out.splitlines()
    assert line.startswith("mixers attention: wrong: mixer attention of package far-off is left out: gmlp-bench has one of that name; ")
    assert line.endswith("pip uninstall far-off")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example package, installed by pip."""
    folder = tmp_path_factory.mktemp("installed")
    shutil.copytree(EXAMPLE, folder / "source")
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--target", str(folder / "site")]
    subprocess.run([*command, str(folder / "source")], check=True, capture_output=True, timeout=300)
    return folder / "site"


def bench(site: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_bench(ROOT, folder, *arguments, variables={"PYTHONPATH": os.pathsep.join((str(ROOT), str(site)))})


def answer_of(site: Path, folder: Path, typed: str) -> Any:
    ran = bench(site, folder, *typed.split(), "--json")
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


@pytest.mark.slow
def test_the_example_is_listed_checked_planned_measured_and_reported(installed: Path, tmp_path: Path) -> None:
    listed = {f"{entry['kind']} {entry['name']}" for entry in answer_of(installed, tmp_path, "list") if entry["package"]}
    assert listed == {"tasks first_token", "mixers per_token", "metrics weight_norm", "ablations no_mixing"}
    checked = answer_of(installed, tmp_path, "list --check gmlp-bench-example")
    assert {f"{entry['kind']} {entry['name']}" for entry in checked if entry["answer"] == OK} == listed
    sizes = (
        "--models metaformer+mixer=per_token:bias=true,vit --task first_token+items=40 --seq 17 --width 16 --heads 2 --depth 1 --device cpu"
    )
    assert len(answer_of(installed, tmp_path, f"plan {sizes}")["plan"]["cells"]) == 2
    found = answer_of(installed, tmp_path, f"run {sizes} --metrics params,flops,weight_norm,accuracy --seeds 1 --epochs 1 --threads 1")
    for row in found["rows"]:
        assert (row["status"], row["task"], row["flops_agree"]) == ("measured", "first_token+items=40", True)
        assert row["weight_norm"] > 0
        assert 0 <= row["accuracy"] <= 1
    run = tmp_path / found["run"]
    assert read_environment(run)["plugins"]["mixers per_token"] == "gmlp-bench-example 1.0"
    page = (tmp_path / "reports" / run.name / "report.html").read_text()
    shown = bench(installed, tmp_path, "run", "--resume", str(run))
    assert "weight_norm" in shown.stdout, "the table on the terminal lacks it"
    assert "weight_norm" in page
    assert "metaformer+mixer=per_token:bias=true" in page
    answered = answer_of(installed, tmp_path, "ablate no_mixing --device cpu --threads 1")
    told = json.loads((tmp_path / "reports" / Path(answered["run"]).name / "verdicts.json").read_text())
    assert [prediction["answer"] for prediction in told["predictions"]] == ["supported"]


@pytest.mark.slow
def test_families_engines_and_executors_are_used_and_broken_plugins_are_one_line(tmp_path: Path) -> None:
    site = tmp_path / "site"
    family = (ROOT / "models" / "vit.py").read_text().replace('"deit', '"wide')
    modules = {"wide_vit": family, "engine": ENGINE, "executor": EXECUTOR, "broken": BROKEN}
    kinds = {"families": {"wide_vit": "wide_vit"}, "engines": {"plain": "engine"}, "executors": {"here": "executor"}}
    install(site, "far-off", modules, {**kinds, **{kind: {"broken": "broken"} for kind in ("mixers", "metrics", "tasks", "ablations")}})
    sizes = "--seq 17 --width 16 --heads 2 --depth 1 --device cpu --threads 1"
    found = answer_of(site, tmp_path, f"run --models wide_vit {sizes} --metrics params,flops,memory --engine plain+share=2 --on here")
    assert [(row["family"], row["engine"], row["status"]) for row in found["rows"]] == [("wide_vit", "plain+share=2", "measured")]
    for typed in (
        f"plan --models metaformer+mixer=broken {sizes}",
        f"plan --models vit --metrics broken {sizes}",
        f"plan --models vit --task broken {sizes}",
        "ablate broken --dry-run",
    ):
        refused = bench(site, tmp_path, *typed.split())
        assert refused.returncode == 2, refused.stderr
        assert "of package far-off cannot be imported: ModuleNotFoundError: No module named 'no_such_library'" in " ".join(
            refused.stderr.split()
        )
        assert "Traceback" not in refused.stderr
    for typed in ("list tasks", "list mixers", "list", f"plan --models metaformer+mixer=gru,vit --task copy --seq 16 {sizes[9:]}"):
        ran = bench(site, tmp_path, *typed.split())
        assert ran.returncode == 0, ran.stderr
