"""A request as a TOML file: the flags' words and errors, written and read again."""

from __future__ import annotations

import json
import re
import shlex
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bench
from bench.planning.fields import flags_of, read, texts_of
from bench.planning.request import Request
from bench.planning.request_file import texts_in, write_request
from bench.spec import RequestError
from tests.answered import Answer
from tests.planning.test_recipe import EVERY_KEY
from tests.specimens import ROOT

OWN_FILE = ROOT / "tests" / "peers" / "made_models.py"


def lists(*entries: str) -> st.SearchStrategy[str]:
    return st.lists(st.sampled_from(entries), min_size=1, unique=True).map(",".join)


def whole(low: int = 1, high: int = 10) -> st.SearchStrategy[str]:
    return st.integers(low, high).map(str)


def real(low: float, high: float) -> st.SearchStrategy[str]:
    return st.floats(low, high).map(str) | st.sampled_from([f"{low:.0e}", f"{high:g}"])


TEXTS = {
    "models": lists("gmlp", "vit+pool=mean", "deit-ti", "metaformer+mixer=window_attention:window=8", f"{OWN_FILE}:averaging"),
    "seq": lists("17", "65", "0257", " 1025"),
    "metrics": lists("params", "flops", "accuracy"),
    "task": st.sampled_from(["", "digits", "copy+symbols=8", "images:my folder"]),
    "input": st.sampled_from(["patches", "tokens"]),
    "params": lists("250k", "1M", "1.5M", "400000"),
    "match": st.sampled_from(["params", "flops"]),
    "reference": st.sampled_from(["gmlp", "metaformer+mixer=attention:causal=true"]),
    "budget_scope": st.sampled_from(["all", "blocks"]),
    "depth": whole(),
    "width": whole(),
    "heads": whole(),
    "ffn_width": whole(),
    "phase": lists("infer", "train"),
    "dtype": lists("fp32", "bf16"),
    "engine": lists("eager", "compile"),
    "attention": lists("auto", "math"),
    "batch": lists("1", "32"),
    "batch_tokens": whole(2),
    "device": st.sampled_from(["auto", "cpu", "cuda"]),
    "threads": whole(),
    "rounds": whole(),
    "limit_s": real(1e-3, 6e5),
    "margin": real(1e-6, 1),
    "seed": whole(0),
    **dict.fromkeys(("quick", "cold", "profile", "save_weights", "download"), st.just("true")),
    "seeds": whole(),
    "epochs": whole(),
    "recipe": st.just("") | lists(*(f"{key}={text}" for key, (text, _) in EVERY_KEY.items() if key != "init"), "init=1e5", "init=007"),
    "lr_trials": whole(3, 9),
    "decay_trials": whole(3, 9),
    "accuracy_seq": lists("17", "65"),
    "data_root": st.just(str(ROOT)),
}
"""Texts that each flag takes."""


def written(texts: dict[str, str]) -> Path:
    path = Path(tempfile.mkdtemp()) / "mine.toml"
    write_request(path, texts)
    return path


def test_every_field_is_tried() -> None:
    assert TEXTS.keys() == flags_of(Request).keys()


@given(texts=st.fixed_dictionaries({}, optional=TEXTS).filter(bool))
@settings(max_examples=30, deadline=None)
def test_a_request_that_was_written_is_read_as_the_same(texts: dict[str, str]) -> None:
    assert read(Request, texts_in(written(texts))) == read(Request, texts)


def test_values_are_written_as_arrays_tables_and_numbers() -> None:
    recipe = "learning_rate=5e-4,compile=true,augment=crop+flip"
    texts = {"models": "gmlp,vit", "seq": "17,65", "params": "1M", "margin": "0.05", "quick": "true", "recipe": recipe}
    assert tomllib.loads(written(texts).read_text()) == {
        "models": ["gmlp", "vit"],
        "seq": [17, 65],
        "params": ["1M"],
        "margin": 0.05,
        "quick": True,
        "recipe": {"learning_rate": 0.0005, "compile": True, "augment": "crop+flip"},
    }


def test_what_would_be_read_as_something_else_stays_text() -> None:
    assert tomllib.loads(written({"recipe": "epochs=3,init=1e5"}).read_text()) == {"recipe": "epochs=3,init=1e5"}


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return Path("mine.toml")


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        ("batch-tokens = 1_024", {"batch_tokens": "1024"}),
        ('seq = "17,65"\nquick = false', {"seq": "17,65"}),
        ("recipe.augment = ['crop', 'flip']\nrecipe.epochs = 3", {"recipe": "augment=crop+flip,epochs=3"}),
        ("\ufeffparams = 1e6\r\nlimit_s = 2.5\r\n", {"params": "1000000", "limit_s": "2.5"}),
    ],
)
def test_a_file_is_written_in_several_ways(content: str, texts: dict[str, str], mine: Path) -> None:
    mine.write_bytes(content.encode())
    assert texts_in(mine) == texts


WRONG: dict[str, tuple[bytes, str, str]] = {
    "unknown key": (b"sequence = 17", "mine.toml: there is no sequence", "did you mean seq?"),
    "key of how it runs": (b"dry-run = true", "mine.toml: dry-run says how to run, not what to measure", "type it: --dry-run"),
    "a table around all": (b"[run]\nseq = 17", "mine.toml: run is a table; only recipe may be one", "write the rest above it"),
    "a misspelt table": (b"[recepie]\nepochs = 3", "mine.toml: recepie is a table; only recipe may be one", "did you mean [recipe]?"),
    "a field below the recipe": (b"[recipe]\nepochs = 3\nseq = 17", "mine.toml: seq stands in [recipe]", "write it above [recipe]"),
    "value out of bounds": (
        b"depth = 0",
        "mine.toml: wrong value of depth: '0' is not a whole number between 1 and 10,000",
        "try depth = 6",
    ),
    "number for words": (b"match = 3", "mine.toml: wrong value of match: unknown value '3'; allowed: params", 'match = "params"'),
    "boolean for a number": (b"seq = true", "mine.toml: wrong value of seq: 'true' is not a whole number", ""),
    "word for a boolean": (b'quick = "yes"', "mine.toml: wrong value of quick: a switch is true or false, not yes", ""),
    "number for a boolean": (b"quick = 1", "mine.toml: wrong value of quick: a switch is true or false, not 1", ""),
    "a date": (b"seq = 2026-01-02", "mine.toml: seq must be text, a number or a list of these, not date", ""),
    "an array in an array": (b"seq = [[17]]", "mine.toml: seq must be text, a number or a list of these, not list", ""),
    "an empty array": (b"models = []", "mine.toml: models is an empty list", "give it an entry"),
    "a table for a list": (b"seq = {n = 17}", "mine.toml: seq is a table", ""),
    "unknown key of the recipe": (
        b"[recipe]\nlr = 1",
        "mine.toml: wrong value of recipe: unknown option of recipe: 'lr'",
        "learning_rate?",
    ),
    "no quotes": (
        b"seq = 17\nmodels = vit",
        "mine.toml is not TOML: Invalid value (at line 2, column 10)",
        'words in quotes: models = ["gmlp"',
    ),
    "a key twice": (b"seq = 17\nseq = 65", "mine.toml is not TOML: Cannot overwrite a value (at line 2, column 9)", "each key once"),
    "two spellings": (b"limit_s = 5\nlimit-s = 6", "mine.toml: limit-s and limit_s are one key", "leave one of them out"),
    "deeply nested": (b"seq = " + b"[" * 10**5, "mine.toml is not TOML: ", ""),
    "a long number": (b"seq = 0x" + b"f" * 10**4, "mine.toml: a number is too long", ""),
    "comments alone": (b"# seq = 17\n", "mine.toml holds no request", 'begin with models = ["gmlp", "vit"]'),
    "not UTF-8": (b"task = '\xe9'", "mine.toml is not UTF-8: invalid continuation byte at byte 8", "save it as UTF-8"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_file_gets_one_line_that_names_it(name: str, mine: Path, answer: Answer) -> None:
    content, message, hint = WRONG[name]
    mine.write_bytes(content)
    for command in ("plan", "run"):
        code, out, err = answer(f"{command} --config", mine)
        assert (code, out) == (2, "")
        error, hinted = err.splitlines()
        assert error.startswith(f"error: {message}")
        assert hint in hinted


@pytest.mark.parametrize(("path", "message"), [("nowhere.toml", "No such file or directory"), (".", "Is a directory")])
def test_what_cannot_be_read_is_named(path: str, message: str) -> None:
    with pytest.raises(RequestError, match=re.escape(f"cannot read {path}: {message}")):
        texts_in(Path(path))


@given(content=st.text(max_size=30) | st.tuples(st.sampled_from([*TEXTS]), st.text(max_size=9)).map(" = ".join))
@settings(max_examples=30, deadline=None)
def test_any_text_is_a_request_or_refused(content: str) -> None:
    path = Path(tempfile.mkdtemp()) / "mine.toml"
    path.write_bytes(content.encode(errors="replace"))
    try:
        assert read(Request, texts_in(path)).typed <= TEXTS.keys()
    except RequestError as wrong:
        assert str(path) in wrong.message  # noqa: PT017


def planned(answer: Answer, *words: str) -> dict[str, Any]:
    """The plan of `bench run` or `bench plan`, without when it was made."""
    code, out, _ = answer(*words, "--json")
    assert code == 0
    plan: dict[str, Any] = json.loads(out)["plan"]
    return {name: value for name, value in plan.items() if name != "created"}


SMALL = ("--models", f"gmlp,{OWN_FILE}:averaging", "--seq", "17,65", "--params", "300k", "--depth", "2", "--device", "cpu")
TRAINED = (
    "--task",
    "digits",
    "--metrics",
    "params,accuracy",
    "--recipe",
    "augment=crop,learning_rate=5e-4",
    "--seeds",
    "2",
    "--save-weights",
)


def test_a_file_gives_the_plan_of_its_flags_and_its_command_needs_no_file(mine: Path, answer: Answer) -> None:
    asked = planned(answer, "plan", *SMALL, *TRAINED, "--out", str(mine))
    found = planned(answer, "run", "--config", str(mine), "--dry-run")
    mine.unlink()
    again = planned(answer, *shlex.split(found["command"])[1:-1])
    del again["command"], asked["command"]
    assert found.pop("command").startswith(f"bench run {shlex.join(SMALL[:4])} ")
    assert again == found == asked
    assert len(found["cells"]) == 4


def test_what_is_typed_wins_over_the_file(mine: Path) -> None:
    mine.write_text('models = ["gmlp", "vit"]\nseq = [17, 65]\ndata_root = "of another machine"\nparams = "300k"\ndepth = 2\nquick = true')
    found = bench.plan(config=mine, seq=17, data_root=".", params=["300k", "400k"], metrics="params")
    assert sorted(set(found.table["seq_len"])) == [17]
    assert sorted(set(found.table["budget"])) == [300_000, 400_000]
    with pytest.raises(RequestError, match=re.escape("mine.toml: wrong value of data_root: 'of another machine' is not a folder")):
        bench.plan(config=mine)
    assert "--config" not in found._plan.command
    assert "--quick" in found._plan.command


@pytest.mark.parametrize("more", ["", "\nbatch_size = 8"])
def test_typed_epochs_win_over_those_of_the_files_recipe(more: str, mine: Path) -> None:
    mine.write_text(f'models = "gmlp"\nseq = 17\ntask = "digits"\nwidth = 16\ndepth = 1\nmetrics = "accuracy"\n[recipe]\nepochs = 9{more}')
    texts = texts_in(mine, overridden=["epochs"])
    assert texts.get("recipe", "") == ("batch_size=8" if more else "")
    assert "epochs=9" in texts_in(mine)["recipe"]
    assert bench.plan(config=mine, epochs=2)._plan.recipe.epochs == 2


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        ("run --config mine.toml --resume there", "--resume takes the whole request from there; --config cannot be added", "--config out"),
        ("run --plan mine.toml", "mine.toml is a request, not a plan", "try --config mine.toml"),
        ("plan --models vit --seq 17 --out mine.toml", "mine.toml exists and holds something else", "choose another --out"),
    ],
)
def test_a_file_is_not_mistaken_for_a_plan_nor_overwritten(words: str, message: str, hint: str, mine: Path, answer: Answer) -> None:
    content = 'models = "gmlp"  # not lost\nseq = 17'
    mine.write_text(content)
    code, _, error = answer(words)
    assert (code, message in error, hint in error) == (2, True, True)
    assert mine.read_text() == content


def test_a_path_that_is_not_utf_8_is_not_written(mine: Path) -> None:
    with pytest.raises(RequestError, match=re.escape("mine.toml cannot hold a name that is not UTF-8")):
        write_request(mine, {"task": "text:\udcff.csv"})
    assert not mine.exists()


def test_a_python_object_is_not_written(mine: Path) -> None:
    with pytest.raises(RequestError, match=re.escape("mine.toml cannot hold a Python object")):
        write_request(mine, texts_of({"models": ["vit", lambda: None]}, flags_of(Request)))
    assert not mine.exists()
