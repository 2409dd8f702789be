"""A user's own model as a contestant: an object, a function, or a name in a file; sized by its width, imported by each process."""

from __future__ import annotations

import functools
import json
import math
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

import bench
from bench.analysis.sizes import unlike_planned, unlike_sizes
from bench.cli import main
from bench.peers import own_code, own_import
from bench.planning.own_width import nearest_width
from bench.planning.request import parse_model
from bench.reading.store import read_plan_of_run, read_run
from bench.report.sections.wording import size_note
from bench.running.worker import THREADS_SET

SMALL: dict[str, Any] = {"seq": 17, "params": "100k", "depth": 2, "batch": 2}

CODE = """
from torch import nn

class Pooling(nn.Module):
    def __init__(self, patch_dim, num_classes, width, depth=1):
        super().__init__()
        self.embed = nn.Linear(patch_dim, width)
        self.blocks = nn.Sequential(*(nn.Linear(width, width) for _ in range(depth)))
        self.head = nn.Linear(width, num_classes)

    def forward(self, patches):
        return self.head(self.blocks(self.embed(patches)).mean(1))

class Seeing(nn.Module):
    READS = "images"

    def __init__(self, num_classes, width):
        super().__init__()
        self.cut = nn.Conv2d(3, width, 8, 8)
        self.head = nn.Linear(width, num_classes)

    def forward(self, images):
        assert images.shape[2] == images.shape[3]
        return self.head(self.cut(images).mean((2, 3)))

def odd(patch_dim, num_classes, width):
    if width % 3:
        raise ValueError("width must be a multiple of 3")
    return Pooling(patch_dim, num_classes, width)

def constant(patch_dim, num_classes, width):
    return Pooling(patch_dim, num_classes, 24)

def flat(seq_len, patch_dim, num_classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(seq_len * patch_dim, num_classes))

built = Pooling(192, 10, 40)
per_token = nn.Linear(192, 10)
_hidden = 1
"""


@pytest.fixture(autouse=True)
def mine(in_tmp: Path) -> Path:
    path = in_tmp / "mine.py"
    path.write_text(CODE)
    return path


def notebook(code: str = CODE) -> dict[str, Any]:
    """The namespace of a notebook that ran this code: no file, no module that could be imported."""
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(textwrap.dedent(code), names)
    return names


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a process that has seen none of the models yet."""
    monkeypatch.setattr(own_code, "_known", {})
    monkeypatch.setattr(own_import, "_imported", {})


def run(**request: Any) -> Any:
    """Of counts, in this process."""
    return bench.run(**{"metrics": "params", "out": "run", "on": "inline", **request})


def refused(**request: Any) -> bench.RequestError:
    with pytest.raises(bench.RequestError) as caught:
        bench.plan(**{**SMALL, **request})
    return caught.value


def test_a_width_is_searched_for_the_budget() -> None:
    table = bench.plan(models=["vit", "mine.py:Pooling"], seq=[17, 26], params=["30k", "100k"], depth=2).table
    own = table[table["model"] == "mine.py:Pooling"]
    assert len(own) == 4
    assert (own["width"] % 8 == 0).all()
    for row in own.to_dict("records"):
        others = [_params(192, row["width"] + step) for step in (-8, 8)]
        assert abs(row["params"] / row["budget"] - 1) <= min(abs(other / row["budget"] - 1) for other in others)
        assert row["params"] == _params(192, row["width"])
        assert row["budget_error"] == pytest.approx(row["params"] / row["budget"] - 1)


def _params(patch_dim: int, width: float) -> float:
    return (patch_dim + 1) * width + 2 * (width + 1) * width + 10 * (width + 1)


def test_a_search_passes_over_widths_that_cannot_be_built() -> None:
    found = bench.plan(models="mine.py:odd", **SMALL).table.iloc[0]
    assert found["width"] % 24 == 0
    assert abs(found["budget_error"]) < 0.1
    assert bench.plan(models="mine.py:constant", **SMALL).table.iloc[0]["params"] == 192 * 24 + 24 + 24 * 24 + 24 + 24 * 10 + 10


def test_flops_and_shapes_are_matched_too() -> None:
    by_flops = bench.plan(models=["vit", "mine.py:Pooling"], **SMALL, match="flops").table
    assert by_flops["flops"].max() / by_flops["flops"].min() < 1.1
    kept = bench.plan(models=["vit", "mine.py:Pooling"], **{**SMALL, "seq": [17, 26]}, match="shape").table
    assert kept.groupby("model")["width"].nunique().eq(1).all()
    assert set(bench.plan(models="mine.py:Pooling", width=40, depth=2, seq=17).table["width"]) == {40}


def test_a_built_module_keeps_its_size_at_the_nearest_budget() -> None:
    found = bench.plan(models=["vit", "mine.py:built"], seq=17, params=["20k", "100k"], depth=1).table
    (own,) = found[found["model"] == "mine.py:built"].to_dict("records")
    assert own["params"] == 193 * 40 + 41 * 40 + 41 * 10
    assert own["budget"] == 20_000
    assert own["width"] is None or own["width"] != own["width"]


def test_what_a_partial_fixes_stays_fixed() -> None:
    fixed = functools.partial(notebook()["Pooling"], width=40)
    assert bench.plan(models=fixed, **SMALL).table["params"].tolist() == [_params(192, 40)]


@pytest.mark.parametrize(
    ("target", "nearest"),
    [(3, 8), (650, 648), (10**9, 16_384)],
)
def test_the_nearest_width(target: int, nearest: int) -> None:
    assert nearest_width(lambda width: width, target) == nearest


def test_a_model_that_rounds_its_width_up_is_sized_by_it_and_one_without_a_width_as_it_is() -> None:
    assert nearest_width(lambda width: (math.ceil(width / 64) * 64) ** 2, 320**2) in range(264, 328, 8)
    assert nearest_width(lambda _: 100, 1000) == 8


def test_without_any_width_the_reason_is_told() -> None:
    def count(width: int) -> int:
        raise ValueError(f"no width {width}")

    with pytest.raises(ValueError, match="no width"):
        nearest_width(count, 100)


def test_unlike_sizes_are_named_in_the_answer() -> None:
    found = run(models=["vit", "mine.py:built"], **SMALL, metrics=["params", "latency"], quick=True, rounds=2)
    assert "at unlike sizes" in found.answer.lower()
    assert "mine.py:built has 90 % fewer parameters than ViT" in found.answer
    assert unlike_planned(bench.plan(models=["vit", "gmlp"], **SMALL)._plan) == ()


def test_equal_sizes_are_not_called_unlike() -> None:
    def row(label: str, family: str, params: int, **more: Any) -> dict[str, Any]:
        return {"label": label, "model": label, "family": family, "params": params, "seq_len": 17, "budget": 100, "match": "params", **more}

    vit = row("vit", "vit", 1000)
    assert unlike_sizes([vit, row("mine", "python", 1019)]) == ()
    assert unlike_sizes([vit, row("gmlp", "gmlp", 3000)]) == ()
    assert unlike_sizes([vit, row("python:bench.peers.timm:vit", "python", 3000)]) == ()
    assert unlike_sizes([row("vit", "vit", 1000, match="flops"), row("mine", "python", 3000, match="flops", budget_error=0.01)]) == ()
    assert unlike_sizes([row("vit", "vit", 1000, match="flops"), row("mine", "python", 3000, match="flops", budget_error=0.5)])
    assert size_note(unlike_sizes([row("one", "python", 1000), row("two", "python", 955)])) == "two has 4.5 % fewer parameters than one"
    assert size_note(unlike_sizes([vit, row("timm:resnet18", "timm", 112_000)])) == "timm:resnet18 has 112 times the parameters of ViT"
    assert unlike_sizes([vit, row("timm:resnet18", "timm", 112_000, match="none")]) == ()
    lengths = [vit, row("mine", "python", 800), {**vit, "seq_len": 65}, row("mine", "python", 700, seq_len=65)]
    assert size_note(unlike_sizes(lengths)) == "mine has 20 to 30 % fewer parameters than ViT"


def test_a_budget_that_all_miss_is_not_called_their_size() -> None:
    twins = {"one": notebook()["built"], "two": notebook()["built"]}
    found = run(models=twins, **{**SMALL, "params": "1M"}, metrics=["params", "latency"], quick=True, rounds=2)
    assert found.report is not None
    text = found.report.read_text()
    assert "Equal parameters, 9770" in text
    assert "Equal parameters, 1 M" not in text


def test_lazy_layers_are_given_their_shapes() -> None:
    lazy = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.LazyLinear(8), torch.nn.LazyBatchNorm1d(), torch.nn.Linear(8, 10).eval())
    found = run(models={"lazy": lazy}, seq=17, metrics=["params", "flops", "latency"], quick=True, rounds=2, phase="train", batch=2)
    (row,) = found.table.to_dict("records")
    assert (row["status"], row["params"]) == ("measured", (17 * 192 + 1) * 8 + 16 + 90)
    assert row["flops"] == 2 * (17 * 192 * 8 + 80)


class WithoutGradient(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Linear(192, 10)

    @torch.inference_mode()
    def forward(self, patches: torch.Tensor) -> torch.Tensor:
        answers: torch.Tensor = self.net(patches.mean(1))
        return answers


def test_answers_without_a_gradient_are_timed_in_no_training_step() -> None:
    found = run(models=WithoutGradient, seq=17, metrics=["flops", "latency"], quick=True, rounds=2, phase=["infer", "train"])
    infer, train = found.table.sort_values("phase").to_dict("records")
    assert (infer["status"], infer["flops"]) == ("measured", 2 * 192 * 10)
    assert "carry no gradient" in train["reason"]
    assert train["flops_train"] != train["flops_train"]  # empty


def test_torchscript_is_refused_by_name(mine: Path) -> None:
    (mine.parent / "scripted.py").write_text(f"import torch\n{CODE}\nscripted = torch.jit.script(per_token)\n")
    assert "scripted.py:scripted holds TorchScript" in str(refused(models="scripted.py:scripted"))


BRANCHING = """
class Branching(Pooling):
    def forward(self, patches):
        return super().forward(patches if patches.mean() > 0 else -patches)

class Shifting(Branching):
    # its constant takes it to the CPU, where values can be read
    shift = torch.ones(192)

    def forward(self, patches):
        return super().forward(patches + self.shift)
"""


def test_a_model_that_reads_values_says_why_it_is_refused(mine: Path) -> None:
    (mine.parent / "branching.py").write_text(f"import torch\n{CODE}{BRANCHING}")
    for name in ("Branching", "Branching+width=8", "Shifting"):
        assert "let sizes alone decide" in refused(models=f"branching.py:{name}").hint


def test_what_a_model_is_called_with_is_said(mine: Path) -> None:
    text = str(refused(models="mine.py:per_token", seq=65))
    assert text.startswith(
        "mine.py:per_token: called with one float tensor [batch, 65, 192]; returned [batch, 65, 10]; [batch, 10] is needed"
    )
    assert "called with one float tensor [batch, 3, 64, 64]" in refused(models="mine.py:built", seq=65, input="images").hint
    assert "called with one float tensor [batch, 1, 32, 32]" in refused(models="mine.py:Seeing", task="digits", metrics="params").hint
    assert "called with one integer tensor [batch, 65]" in refused(models="mine.py:built", seq=65, input="tokens").hint
    assert "NAME one of Pooling, Seeing, odd, constant, flat, built, per_token" in refused(models="mine.py").hint
    assert "has no function, class or module _absent; it has Pooling" in str(refused(models="mine.py:_absent"))
    assert "cannot read other.py" in str(refused(models="other.py:net"))
    assert "mine.py:built is a built module, which takes no arguments; leave +depth=2 out" in str(refused(models="mine.py:built+depth=2"))
    assert "no signature found" in str(refused(models="python:builtins:dict"))
    (mine.parent / "broken.py").write_text("import absent_library\n")
    assert "ModuleNotFoundError: No module named 'absent_library'" in str(refused(models="broken.py:net"))
    (mine.parent / "script.py").write_text("import sys\ndef net(): ...\nsys.exit('no arguments')\n")
    assert "script.py cannot be imported: SystemExit: no arguments" in str(refused(models="script.py:net"))
    assert "python:script cannot be imported: SystemExit: no arguments" in str(refused(models="python:script:net"))
    (mine.parent / "leaving.py").write_text("def net(): raise SystemExit('no arguments')\n")
    assert "leaving.py:net ends the program: SystemExit: no arguments" in str(refused(models="leaving.py:net"))


def test_images_are_square_or_refused() -> None:
    assert bench.plan(models="mine.py:Seeing", **{**SMALL, "seq": [65, 64]}).table["seq_len"].tolist() == [64, 65]
    error = refused(models="mine.py:Seeing", seq=60)
    assert "n = 60 gives no square number of patches; nearest lengths: 50 and 65" in str(error)
    assert error.hint == "try seq=65"
    assert "nearest lengths: 49 and 64" in str(refused(models="mine.py:Seeing+pool=mean", seq=50))


def test_a_model_is_told_the_length_of_its_data() -> None:
    """Beside ViT, whose class token is one of the 17; a mixer over tokens is made for 16."""
    found = bench.plan(models=["vit", "mine.py:flat"], task="digits", seq=17, params="100k", depth=2, metrics="params").table
    assert found["seq_len"].tolist() == [17, 17]
    assert found.set_index("model")["params"]["mine.py:flat"] == 16 * 64 * 10 + 10


def test_near_names_arguments_and_packages_are_named(mine: Path) -> None:
    assert refused(models="mine.py:Pooling_").hint == "write mine.py:Pooling"
    text = str(refused(models="mine.py:odd+foo=3"))
    assert "it takes patch_dim, num_classes, width" in text
    (mine.parent / "relative.py").write_text("from . import mine\n")
    assert f"python:{mine.parent.name}.relative:NAME" in refused(models="relative.py:net").hint


def test_objects_and_functions_without_a_file(tmp_path: Path) -> None:
    names = notebook()
    table = bench.plan(models=["vit", names["Pooling"], {"built": names["built"]}, names["odd"]], **SMALL).table
    assert table["model"].tolist() == ["vit", "Pooling", "built", "odd"]
    assert "Pooling is the name of two models" in str(refused(models=[names["built"], names["Pooling"]]))
    assert "vit is the name of a model of this program" in str(refused(models={"vit": names["built"]}))
    assert "a mapping of models= names Python objects alone" in str(refused(models={"vit": "vit", "net": names["built"]}))
    assert "'my net' cannot name a model" in str(refused(models={"my net": names["built"]}))
    with pytest.raises(bench.RequestError, match="a plan file cannot hold the code of Pooling"):
        bench.plan(models=names["built"], **SMALL, out=tmp_path / "plan.json")


def test_what_cannot_be_pickled_says_what_to_write() -> None:
    lock = threading.Lock()
    error = refused(models=lambda: lock)
    assert "lambda cannot be sent to the processes that measure" in str(error)
    assert error.hint == 'write it into a file: models="FILE.py:NAME"'


def test_the_same_object_has_one_digest() -> None:
    net = notebook()["built"]
    first = own_code.entry_of(net)
    assert own_code.entry_of(net) == first
    with torch.no_grad():
        net.head.bias.add_(1)
    assert own_code.entry_of(net) != first
    assert parse_model(first).name == "Pooling"
    with pytest.raises(bench.RequestError, match="was an object of another Python process"):
        parse_model("object:Pooling@0123456789ab")


def test_code_that_was_kept_by_halves_is_kept_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, digest = own_code.parse_entry(own_code.entry_of(notebook()["built"]))
    own_code.keep([digest], tmp_path)
    origin = tmp_path / own_code.FOLDER / f"{digest}.json"
    origin.unlink()
    own_code.keep([digest], tmp_path)
    forget(monkeypatch)
    own_code.look_in(tmp_path)
    own_code.require_known(digest, "Pooling")
    origin.write_text("{}")
    forget(monkeypatch)
    own_code.look_in(tmp_path)
    with pytest.raises(bench.RequestError, match="missing or damaged"):
        own_code.require_known(digest, "Pooling")


def test_a_built_module_is_measured_anew_each_time() -> None:
    """What one job does to it must not reach the next."""
    from bench.measure.model import build_model

    model = bench.plan(models={"net": notebook()["built"]}, **SMALL)._plan.cells[0].cell.model
    first, second = build_model(model), build_model(model)
    with torch.no_grad():
        next(first.parameters()).zero_()
    assert next(second.parameters()).abs().sum() > 0


@pytest.mark.slow
def test_all_kinds_are_measured_in_processes_of_their_own() -> None:
    """Closures of a notebook among them; their code is in the run's folder."""
    closure = """
    scale = 2
    def maker(hidden):
        return lambda width, num_classes: nn.Sequential(nn.Flatten(), nn.Linear(17 * 192, width * scale), nn.Linear(width * scale, num_classes))
    closure = maker(3)
    """
    names = notebook(CODE + textwrap.dedent(closure))
    found = bench.run(
        models=["vit", names["built"], {"closure": names["closure"]}, "mine.py:Pooling", "mine.py:Seeing"],
        **SMALL,
        metrics=["params", "flops", "latency", "memory"],
        quick=True,
        out="run",
    )
    assert found.table["status"].tolist() == ["measured"] * 5, found.table["reason"].tolist()
    assert sorted(path.name for path in Path("run/models").glob("*/*")) == ["mine.py", "object.pkl", "object.pkl"]
    assert "own model" not in found.answer
    assert all(planned.cell.model.digest for planned in read_plan_of_run(Path("run")).cells[1:])


def test_a_run_goes_on_elsewhere_with_its_own_code(mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(models=["mine.py:built", {"net": notebook()["built"]}], **SMALL)
    monkeypatch.chdir("/")
    forget(monkeypatch)
    mine.rename(tmp_path / "moved.py")
    again = bench.run(resume=tmp_path / "run", on="inline")
    assert again.table["status"].tolist() == ["measured"] * 2


def test_a_changed_file_is_not_mixed_into_its_run(mine: Path) -> None:
    run(models="mine.py:built", **SMALL)
    mine.write_text(f"{CODE}\n# changed\n")
    with pytest.raises(bench.RequestError, match=r"mine.py has changed since this run began, and mine.py:built with it"):
        bench.run(resume="run", on="inline")
    with pytest.raises(bench.RequestError, match=r"mine\.py:built has changed since run was measured"):
        run(models="mine.py:built", **SMALL)
    mine.write_text(CODE)
    assert len(bench.run(resume="run", on="inline").table) == 1


def test_a_plan_of_someone_elses_code_is_run_only_if_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    run(models="mine.py:built", **SMALL)
    with pytest.raises(bench.RequestError, match=r"wants to import and call mine\.py:built"):
        bench.run(plan="run", out="other", on="inline")
    monkeypatch.setenv("BENCH_ALLOW_FACTORIES", "1")
    assert len(bench.run(plan="run", out="other", on="inline").table) == 1
    for path in Path("run/models").rglob("*.py"):
        path.write_text("damaged = 1")
    forget(monkeypatch)
    with pytest.raises(bench.RequestError, match=r"the code of mine.py:built \(\w{12}\) is missing or damaged"):
        bench.run(plan="run", out="third", on="inline")


HEAD = """
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = block()

    def forward(self, patches):
        return self.net(patches).mean(1)
"""


def block(hidden: int) -> str:
    """A helper; the model has 13,002 parameters if it has 64 hidden units, and 103,946 if it has 512."""
    layers = f"nn.Sequential(nn.Linear(192, {hidden}), nn.ReLU(), nn.Linear({hidden}, 10))"
    return f"from torch import nn\n\ndef block():\n    return {layers}\n"


def written(files: dict[str, str]) -> None:
    for name, text in files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(textwrap.dedent(text))


@pytest.fixture
def two() -> str:
    """Two files that each import a helper of one name from their own folders."""
    written({"v1/blocks.py": block(64), "v1/first.py": f"from blocks import block\n{HEAD}"})
    written({"v2/blocks.py": block(512), "v2/second.py": f"from blocks import block\n{HEAD}"})
    return "v1/first.py:Net,v2/second.py:Net"


def test_each_file_imports_its_own_helper(two: str) -> None:
    found = run(models=two, seq=17, metrics="params,flops").table
    assert found["params"].tolist() == [13_002, 103_946]
    assert found["flops"].tolist() == [439_552, 3_516_416]
    assert not own_import._children, "they must end with planning"


@pytest.mark.parametrize("init", [True, False])
def test_packages_beside_a_file_may_have_the_names_of_ours(init: bool) -> None:
    """Also those that it imports only when the model is built."""
    files = {"models/vit.py": block(64), "models/late.py": "SCALE = 1"} | ({"models/__init__.py": ""} if init else {})
    built = "from models.late import SCALE\n        self.net = block()"
    written({**files, "clash.py": f"from models.vit import block\n{HEAD.replace('self.net = block()', built)}"})
    found = run(models="clash.py:Net,vit", seq=17, params="1M").table
    assert found["params"].tolist()[0] == 13_002
    from models import vit

    assert hasattr(vit, "VARIANTS")


def test_a_changed_helper_is_not_mixed_into_its_run(two: str) -> None:
    run(models=two, seq=17)
    written({"v2/blocks.py": block(256)})
    with pytest.raises(bench.RequestError, match=r"v2/blocks\.py has changed since this run began, and second\.py:Net with it"):
        bench.run(resume="run", on="inline")
    with pytest.raises(bench.RequestError, match=r"second\.py:Net has changed since run was measured"):
        run(models=two, seq=17)
    assert bench.plan(models=two, seq=17, metrics="params").table["params"].tolist() == [13_002, 52_106 - 128]
    Path("v2/blocks.py").unlink()
    with pytest.raises(bench.RequestError, match=r"v2/blocks\.py has changed"):
        bench.run(resume="run", on="inline")


def test_a_run_keeps_what_its_files_import(two: str, monkeypatch: pytest.MonkeyPatch) -> None:
    written({"v1/unused.py": "raise SystemExit"})
    run(models=two, seq=17)
    kept = sorted(path.name for path in Path("run/models").rglob("*.py"))
    assert kept == ["blocks.py", "blocks.py", "first.py", "second.py"]
    forget(monkeypatch)
    monkeypatch.setenv("BENCH_ALLOW_FACTORIES", "1")
    for folder in ("v1", "v2"):
        Path(folder).rename(f"{folder}_moved")
    assert bench.run(plan="run", out="again", on="inline").table["params"].tolist() == [13_002, 103_946]


def test_a_file_of_any_name_goes_on() -> None:
    written({"modèle.py": block(64) + HEAD})
    run(models="modèle.py:Net", seq=17)
    assert bench.run(resume="run", on="inline").table["params"].tolist() == [13_002]


SAYING = """
class Saying(Net):
    def forward(self, x):
        print('called')
        return super().forward(x)
"""


@pytest.mark.parametrize("model", ["banner.py:Saying", "python:banner:Saying"])
def test_what_a_model_prints_keeps_off_stdout(model: str, capfd: pytest.CaptureFixture[str]) -> None:
    written({"banner.py": f"print('my models')\n{block(64)}{HEAD}{SAYING}"})
    with pytest.raises(SystemExit, match="0"):
        main(["run", "--models", model, "--seq", "17", "--metrics", "params,flops,equality", "--on", "inline", "--json", "--out", "run"])
    told = capfd.readouterr()
    assert json.loads(told.out)["rows"][0]["status"] == "measured"
    assert {"my models", "called"} <= set(told.err.splitlines())


def test_a_file_that_ends_its_process_is_refused() -> None:
    written({"ending.py": "import os\nos._exit(3)\n"})
    assert "ending.py ends the process that imports it" in str(refused(models="ending.py:net"))


@pytest.mark.slow
def test_workers_import_files_outside_any_device_and_with_the_threads_of_the_run(two: str) -> None:
    values = "RATES = [rate.item() for rate in torch.linspace(0, 0.2, 4)]"
    stored = """
    net = nn.Sequential(nn.Flatten(), nn.Linear(17 * 192, 10))
    torch.save(net.state_dict(), "weights.pt")
    net.load_state_dict(torch.load("weights.pt"))
    scale = float(net[1].weight.detach().abs().max())
    """
    written(
        {
            "rates.py": f"import torch\n{values}\n{block(64)}{HEAD}",
            "built.py": f"import torch\nfrom torch import nn\n{textwrap.dedent(stored)}",
        }
    )
    written({"threads.py": f"import torch\ntorch.set_num_threads(3)\n{block(64)}{HEAD}"})
    found = bench.run(
        models=f"{two},rates.py:Net,built.py:net,threads.py:Net", seq=17, metrics="params,latency", quick=True, threads=1, out="run"
    ).table
    assert found["status"].tolist() == ["measured"] * 5, found["reason"].tolist()
    assert found["params"].tolist() == [13_002, 103_946, 13_002, 32_650, 13_002]
    assert found["threads"].tolist() == [1] * 5
    noted = {record.outcome.values.get(THREADS_SET) for record in read_run(Path("run")).records}
    assert noted == {None, 3}
