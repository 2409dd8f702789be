"""`bench.run`, `plan`, `compare` and `diff`: the words, checks and errors of the command line, as Python."""

from __future__ import annotations

import html
import inspect
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bench
from bench import api, cli
from bench.commands.plan import plan_of
from bench.planning.fields import read, text_of
from bench.planning.request import Request
from bench.reading.store import RECORDS, read_plan_of_run
from bench.report.charts import figures
from bench.running.signals import SIGNALS
from bench.tasks import DATA_VARIABLES
from tests.specimens import ROOT

TRAINED = ROOT / "results" / "2026-11-30_cpu_digits"
TIMED = ROOT / "results" / "2026-11-27_cpu_three_families"
TINY: dict[str, Any] = {"models": "vit", "seq": 17, "params": "100k", "depth": 1, "batch": 1}

MODELS = st.lists(st.sampled_from(["gmlp", "vit", "gmlp+pool=mean", "transformer"]), min_size=1, max_size=3, unique=True)
LENGTHS = st.lists(st.integers(2, 40), min_size=1, max_size=3, unique=True)
REQUESTS = st.fixed_dictionaries(
    {"models": MODELS, "seq": LENGTHS},
    optional={
        "params": st.lists(st.sampled_from([250_000, 10**6]), min_size=1, unique=True),
        "depth": st.integers(1, 3),
        "phase": st.lists(st.sampled_from(["infer", "train"]), min_size=1, unique=True),
        "batch": st.integers(1, 64),
        "limit_s": st.floats(0.5, 90),
        "margin": st.sampled_from([0.01, 0.5]),
        "quick": st.booleans(),
        "profile": st.booleans(),
        "seed": st.integers(0, 5),
    },
)


@given(request=REQUESTS)
@settings(max_examples=8)
def test_keywords_and_flags_make_equal_plans(request: dict[str, Any]) -> None:
    texts = {name: ",".join(map(str, value)) if isinstance(value, list) else str(value) for name, value in request.items()}
    texts = {name: text.lower() if text in ("True", "False") else text for name, text in texts.items()}
    try:
        wanted = [planned.cell.cell_id for planned in plan_of(read(Request, texts), may_be_elsewhere=True).cells]
    except bench.RequestError:
        with pytest.raises(bench.RequestError):
            bench.plan(**request)
    else:
        assert list(bench.plan(**request).table["cell_id"]) == wanted


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("17,65", "17,65"),
        (range(17, 20), "17,18,19"),
        (pandas.Series([17, 65]), "17,65"),
        (17.0, "17"),
    ],
)
def test_a_list_is_a_list_of_python_or_the_shells_text(value: Any, text: str) -> None:
    assert text_of(value) == text


def test_a_mapping_is_a_recipe() -> None:
    found = read(Request, {"recipe": text_of({"epochs": 3, "augment": ["crop", "flip"], "compile": False, "learning_rate": 1e-3})})
    assert dict(found.recipe) == {"epochs": 3, "augment": ("crop", "flip"), "compile": False, "learning_rate": 0.001}


@pytest.mark.parametrize(
    ("request_", "message", "hint"),
    [
        ({"seq": 17}, "models= is missing", 'try models="gmlp,vit" seq=[17, 65, 257]'),
        ({"models": "vit", "seq": 1}, "seq=: '1' is not a whole number between 2", "help(bench.plan)"),
        ({"models": "vit", "sequence": 17}, "there is no sequence=", "did you mean seq=?"),
        ({"models": "vit", "seq": 17, "quick": 1}, "quick=: a switch is true or false, not 1", ""),
        ({"models": "vit", "seq": object()}, "seq= must be text, a number or a list of these, not object", ""),
        ({"models": "vit", "seq": 17, "seeds": 2}, "seeds= needs the metric accuracy", "add accuracy to metrics=, or leave seeds= out"),
    ],
)
def test_an_error_is_a_value_error_that_names_keywords(request_: dict[str, Any], message: str, hint: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        bench.plan(**request_)
    assert isinstance(caught.value, bench.RequestError)
    assert hint in caught.value.hint
    assert caught.value.__notes__ == [f"hint: {caught.value.hint}"]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: bench.load(3), "a run is its folder"),
        (lambda: bench.compare(), "compare needs the folder of a run"),
        (lambda: bench.plan("gmlp"), "plan takes keywords alone, not 'gmlp'"),
    ],
)
def test_what_no_shell_can_say_is_refused(call: Callable[[], object], says: str) -> None:
    with pytest.raises(bench.RequestError, match=says):
        call()


@pytest.mark.parametrize("reads", [bench.load, bench.compare])
def test_a_note_says_which_folder_to_name(reads: Callable[[str], Any]) -> None:
    with pytest.raises(bench.RequestError, match="no run folder at nothing") as caught:
        reads("nothing")
    assert caught.value.__notes__ == ["hint: name a folder in results/"]


def test_a_plan_holds_sizes_skipped_combinations_and_times() -> None:
    found = bench.plan(models=["gmlp", "vit"], seq=[17, 2049], params="1M", batch=1)
    assert set(zip(found.table["model"], found.table["seq_len"], strict=True)) == {("gmlp", 17), ("vit", 17), ("vit", 2049)}
    assert (found.table["flops"] > 0).all()
    assert list(found.skipped["seq_len"]) == [2049]
    assert found.estimated_s > 0 == found.estimated_training_s
    assert "exceed the budget" in found._repr_html_()


def test_a_call_leaves_the_environment_as_it_was(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The next call must not find this one's data, or be allowed its downloads."""
    for name in DATA_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    bench.run(
        **{**TINY, "depth": 2}, task="digits", metrics="params", data_root=tmp_path, download=True, out=tmp_path / "mine", on="inline"
    )
    assert not {*DATA_VARIABLES} & os.environ.keys()


def test_a_plan_is_written_where_out_says(tmp_path: Path) -> None:
    bench.plan(**TINY, metrics="params", out=tmp_path / "plan.json")
    again = bench.run(plan=tmp_path / "plan.json", out=tmp_path / "run", on="inline")
    assert list(again.table["model"]) == ["vit"]


def test_a_run_prints_nothing_and_leaves_no_handler(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    found = bench.run(**TINY, metrics=["params", "flops"], out=tmp_path / "mine", on="inline")
    assert [signal.getsignal(number) for number in SIGNALS] == before
    out, err = capsys.readouterr()
    assert out == ""
    assert "1 configuration" in err
    assert found.folder == tmp_path / "mine"
    assert found.report == tmp_path / "mine" / "report" / "report.html"
    assert found.report.exists()
    assert found.num_failed == 0
    assert found.answer
    assert set(found.verdicts["answer"]) <= {"supported", "refuted", "undecided"}
    pandas.testing.assert_frame_equal(bench.load(found), found.table)
    assert read_plan_of_run(found.folder).command.startswith("bench run --models vit --seq 17 ")
    again = bench.run(**TINY, metrics=["params", "flops"], out=tmp_path / "mine", on="inline")
    pandas.testing.assert_frame_equal(again.table, found.table)
    assert "already complete" in capsys.readouterr().err


@pytest.mark.slow
def test_a_script_without_a_guard_measures_in_processes(tmp_path: Path) -> None:
    """Workers import nothing of the script; multiprocessing alone would run it again in each."""
    script = tmp_path / "script.py"
    script.write_text(
        f"import bench\nprint('once')\nfound = bench.run(**{TINY!r}, metrics='params,latency', quick=True)\nprint(found.folder)\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    once, folder = done.stdout.splitlines()
    assert once == "once"
    assert bench.load(tmp_path / folder)["latency_ms"].notna().all()


def test_a_run_in_another_thread_works(tmp_path: Path) -> None:
    found: list[api.RunResult] = []
    thread = threading.Thread(target=lambda: found.append(bench.run(**TINY, metrics="params", out=tmp_path / "mine", on="inline")))
    thread.start()
    thread.join()
    assert len(found[0].table) == 1


@pytest.mark.slow
def test_an_interrupt_keeps_finished_rounds_and_the_same_call_goes_on(tmp_path: Path) -> None:
    request = {**TINY, "metrics": "latency", "rounds": 12, "quick": True, "out": tmp_path / "mine"}
    before = signal.getsignal(signal.SIGINT)

    def interrupt() -> None:
        path = tmp_path / "mine" / RECORDS
        while not (path.exists() and len(path.read_bytes().splitlines()) >= 4):
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt, daemon=True)  # it waits forever for a run that fails
    thread.start()
    with pytest.raises(KeyboardInterrupt, match=r"finished rounds are in .*mine; the same call, or bench\.run"):
        bench.run(**request)
    thread.join()
    assert signal.getsignal(signal.SIGINT) == before
    assert 0 < bench.load(tmp_path / "mine")["num_rounds"].max() < 12
    assert (tmp_path / "mine" / "report" / "report.html").exists()
    assert bench.run(**request).table["num_rounds"].max() == 12


def test_a_comparison_is_that_of_the_command_line(tmp_path: Path) -> None:
    found = bench.compare(TRAINED, x="params")
    assert {"label", "x", "y"} <= set(found.front.columns)
    assert {"first", "second", "low", "high", "verdict"} <= set(found.tests.columns)
    assert list(found.figures) == ["compare_params_accuracy"]
    assert found.answer in html.unescape(found._repr_html_())
    assert "<svg" in found._repr_html_()
    with pytest.raises(bench.RequestError, match="x= 'cost' is not one of: params"):
        bench.compare(TRAINED, x="cost")
    assert not list(tmp_path.iterdir())
    bench.compare(TRAINED, out=tmp_path)
    assert {path.suffix for path in tmp_path.rglob("*.*")} == {".md", ".svg"}


def test_a_diff_is_that_of_the_command_line(tmp_path: Path) -> None:
    again = shutil.copytree(TIMED, tmp_path / "again")
    found = bench.diff(TIMED, again, fail_if="params>1.05")
    assert len(found.latencies)
    assert found.failing == ()
    assert "<table" in found._repr_html_()
    with pytest.raises(bench.RequestError, match="fail_if= cannot read 'fast'"):
        bench.diff(TIMED, again, fail_if="fast")


def test_a_result_shows_answer_table_and_first_figure(tmp_path: Path) -> None:
    request = {**TINY, "models": ["gmlp", "vit"], "seq": [17, 26]}
    found = bench.run(**request, metrics=["params", "flops"], out=tmp_path / "mine", on="inline")
    text = found._repr_html_()
    assert text.count("<svg") == 1 <= len(found.figures) <= figures.MAX_FIGURES
    assert text.count("<table") == 1
    assert len(repr(found)) < 600


@pytest.mark.parametrize(("function", "command"), [(api.run, "run"), (api.plan, "plan"), (api.compare, "compare"), (api.diff, "diff")])
def test_every_flag_of_a_command_is_a_keyword(function: Callable[..., Any], command: str) -> None:
    """But for those about the terminal, and for comparing revisions."""
    import typer

    group: Any = typer.main.get_command(cli.app)
    flags = {
        option.opts[0].lstrip("-").replace("-", "_")
        for option in group.commands[command].params
        if option.param_type_name == "option" and not option.hidden
    } - {"json", "markdown", "code", "help", "dry_run"}
    keywords = {name for name, p in inspect.signature(function).parameters.items() if p.kind is p.KEYWORD_ONLY}
    assert keywords == flags
    assert all(f"    {name}: " in (function.__doc__ or "") for name in keywords)


def test_importing_stays_light_until_a_request_is_right() -> None:
    code = (
        "import sys, bench\n"
        "assert not {'pandas', 'torch', 'typer', 'IPython', 'bench.api'} & sys.modules.keys()\n"
        "assert 'run' in dir(bench)\n"
        "try:\n    bench.plan(models='glmp', seq=17)\nexcept ValueError:\n    pass\n"
        "assert 'torch' not in sys.modules\n"
        "import bench.running, bench.planning\n"
        "assert callable(bench.run) and callable(bench.plan)\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
