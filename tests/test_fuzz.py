"""Whatever is typed, the answer is data, or one clear line and exit 2: never a traceback.

BENCH_FUZZ=10000 pytest tests/test_fuzz.py tries ten thousand command lines; the everyday run tries a few dozen.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import string
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bench import catalog, cli, console
from bench.commands import run as commands_run
from bench.planning.fields import flags_of
from bench.planning.request import Request
from bench.reading.store import RECORDS, read_run
from bench.running.runner import execute
from bench.spec import DEVICES
from tests.fake_executor import Silent
from tests.running.small_plan import small_plan

NUM_EXAMPLES = int(os.environ.get("BENCH_FUZZ", "60"))
FLAGS = sorted("--" + name.replace("_", "-") for name in flags_of(Request) if name not in ("data_root", "download"))
OTHER_FLAGS = ("--config", "--resume", "--plan", "--retry", "--on", "--address", "--fail-if", "--x", "--y")
PLACES = ("", "new", "new/er", "mine", "spoilt", "mine/plan.json", "asked.toml", "é 🙂")
"""What may be written to: nothing outside of the test's own folder."""
SWITCHES = ("--quick", "--json")
WORDS = (
    *(*catalog.names("families"), *catalog.names("metrics"), *catalog.names("engines"), *DEVICES),
    *"gmlp+pool=mean vit+pool=cls gmlp-s deit-ti timm:nothing torchvision:nothing python:os:system metaformer+mixer=none".split(),
    *"params flops shape infer train fp32 bf16 digits cifar10 max 17 17,65 250k 1M 0 -1 1e9 nan".split(),
    *", + = a=b .. ../.. / -- - 24GiB 17,17 1,,2 é 🙂 $(ls) `ls` <b> [red]".split(),
    "",
)
JUNK = st.text(alphabet=string.printable + "é🙂", max_size=12)
VALUES = st.sampled_from(WORDS) | JUNK | st.integers(-(10**20), 10**20).map(str) | st.floats().map(str)
OPTIONS = (
    st.tuples(st.sampled_from((*FLAGS, *OTHER_FLAGS)), VALUES)
    | st.tuples(st.sampled_from(("--out", "--resume", "--plan", "--config")), st.sampled_from(PLACES))
    | st.tuples(st.sampled_from(SWITCHES))
    | st.tuples(JUNK)
)
SMALL = ("--width", "8", "--depth", "1", "--metrics", "params")
"""First, so that what is typed after it stands."""


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    """Of all commands but `env`, which reads nothing but its two switches."""
    command = draw(st.sampled_from(["plan", "describe", "list", "report", "check", "compare", "diff", "ablate", "run"]))
    typed = [part for option in draw(st.lists(OPTIONS, max_size=4)) for part in option]
    if command == "run" and draw(st.booleans()):
        return [command, *typed]
    if command in ("plan", "run"):
        return [command, "--models", draw(st.sampled_from(["vit", "gmlp", "transformer"])), "--seq", "17", *SMALL, *typed]
    if command == "ablate":
        return [command, "positions", "--dry-run", *typed]
    return [command, *draw(st.lists(st.sampled_from(PLACES) | VALUES, max_size=2)), *typed]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run, and a run with a spoilt record."""
    folder = tmp_path_factory.mktemp("runs")
    execute(small_plan(models="vit,gmlp", metrics="params"), folder / "mine", Silent(), executor="inline")
    shutil.copytree(folder / "mine", folder / "spoilt")
    (folder / "spoilt" / RECORDS).write_bytes(b"spoilt\n")
    return folder


@pytest.mark.filterwarnings("ignore")
@given(arguments=command_lines())
@settings(max_examples=NUM_EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_no_command_line_ends_in_a_traceback(arguments: list[str], runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to where something would be measured: that is another test's."""
    monkeypatch.chdir(runs)
    monkeypatch.setattr(commands_run, "measure", lambda plan, *_: console.print_lines(plan.plan_id))
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code in (0, 1, 2), arguments
    assert "Traceback" not in err.getvalue()
    if ended.value.code == 2:
        assert err.getvalue().strip(), arguments
    if ended.value.code == 0:
        assert out.getvalue().strip() or err.getvalue().strip(), arguments
    assert len(read_run(runs / "mine").records) == 2, arguments
