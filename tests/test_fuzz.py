"""Whatever is typed, the answer is data, or one clear line and exit 2: never a traceback.

BENCH_FUZZ=10000 pytest tests/test_fuzz.py tries ten thousand command lines; the everyday run tries a few hundred.
"""

from __future__ import annotations

import contextlib
import io
import os
import string

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bench import catalog, cli
from bench.flags import Flags
from bench.spec import DEVICES

NUM_EXAMPLES = int(os.environ.get("BENCH_FUZZ", "200"))
FLAGS = sorted("--" + name.replace("_", "-") for name in Flags.__dataclass_fields__ if name not in ("data_root", "download", "out"))
SWITCHES = ("--quick", "--json", "--download")
WORDS = (
    *catalog.names("families"),
    *catalog.names("metrics"),
    *catalog.names("engines"),
    *DEVICES,
    *(
        "gmlp+pool=mean",
        "vit+pool=cls",
        "gmlp-s",
        "deit-ti",
        "timm:nothing",
        "torchvision:nothing",
        "python:os:system",
        "metaformer+mixer=none",
    ),
    *(
        "params",
        "flops",
        "shape",
        "infer",
        "train",
        "fp32",
        "bf16",
        "digits",
        "cifar10",
        "max",
        "17",
        "17,65",
        "250k",
        "1M",
        "0",
        "-1",
        "1e9",
        "nan",
    ),
    *("", ",", "+", "=", "a=b", "..", "../..", "/", "\0", "--", "-", "24GiB", "17,17", "1,,2", "é", "🙂", "$(ls)", "`ls`", "<b>", "[red]"),
)
JUNK = st.text(alphabet=string.printable + "é🙂\0", max_size=12)
VALUES = st.sampled_from(WORDS) | JUNK | st.integers(-(10**20), 10**20).map(str) | st.floats().map(str)
OPTIONS = st.tuples(st.sampled_from(FLAGS), VALUES) | st.tuples(st.sampled_from(SWITCHES)) | st.tuples(JUNK)
SMALL = ("--width", "8", "--depth", "1", "--metrics", "params")
"""First, so that what is typed after it stands."""


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    """Of commands that measure nothing."""
    command = draw(st.sampled_from(["plan", "describe", "list", "report", "check", "compare", "ablate", "run"]))
    typed = [part for option in draw(st.lists(OPTIONS, max_size=4)) for part in option]
    if command == "plan":
        return ["plan", "--models", draw(st.sampled_from(["vit", "gmlp", "transformer"])), "--seq", "17", *SMALL, *typed]
    if command in ("run", "ablate"):
        return [command, *(["positions", "--dry-run"] if command == "ablate" else ["--dry-run"]), *typed]
    return [command, *draw(st.lists(VALUES, max_size=2)), *typed]


@pytest.mark.filterwarnings("ignore")
@given(arguments=command_lines())
@settings(max_examples=NUM_EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_no_command_line_ends_in_a_traceback(arguments: list[str], tmp_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code in (0, 1, 2), arguments
    assert "Traceback" not in err.getvalue()
    if ended.value.code == 2:
        assert err.getvalue().strip(), arguments
    if ended.value.code == 0:
        assert out.getvalue().strip() or err.getvalue().strip(), arguments
