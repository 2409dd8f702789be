"""README and docs show commands that the program accepts, and the page of all commands is up to date."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from bench.cli import UsageError
from bench.commands.options import flags_of_command, objects_of
from bench.commands.plan import plan_to_run
from bench.planning.fields import texts_of
from bench.planning.request import checked
from bench.spec import RequestError
from tests.answered import Answer
from tests.docs.command_line import commands, page
from tests.docs.fill import ROOT

PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
WITH_COMMANDS = 8
"""At least so many pages show commands; fewer means that they are no longer found."""
BLOCK_LINE = re.compile(r"^ {4}(?=\S)(.*)$", re.MULTILINE)
OWN = f"{ROOT / 'tests' / 'peers' / 'made_models.py'}:averaging"
PLACEHOLDERS = {
    "DIR": str(ROOT),
    "vit,my_mixer.py:mean_mixer": f"vit,{OWN}",
    "mine.py:Net": OWN,
    "metaformer+mixer=per_token,metaformer+mixer=attention": "metaformer+mixer=identity,metaformer+mixer=attention",
    "first_token": "digits",
}
"""Values that must exist when the command line reads them; the last two are those of a reader's own package (docs/plugins.md)."""


def shown(text: str) -> Iterator[list[str]]:
    """Yield the words of each command in the indented blocks of a page."""
    for line in BLOCK_LINE.findall(re.sub(r"\\\n\s*", "", text)):
        try:
            words = shlex.split(line, comments=True)
        except ValueError:  # prose or code
            continue
        while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
            del words[0]
        if words:
            yield [words[0].removeprefix(".venv/bin/"), *words[1:]]


def check(words: list[str]) -> None:
    """Parse a command without running it. Raises an error if it is wrong; other programs' commands pass."""
    match words:
        case ["bench", name, *rest] | ["python", "-m", "bench", name, *rest]:
            parse(name, rest)
        case ["make", *targets]:
            require(targets, re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
        case ["python", "-m", "pytest", *rest] | ["pytest", *rest]:
            require([word for word in rest if word.startswith("tests/") and not (ROOT / word).exists()], [])
        case ["python", "-m", module, *_] if module.startswith("tests."):
            require([] if importlib.util.find_spec(module) else [module], [])


def parse(name: str, words: list[str]) -> None:
    """Parse the arguments of a command of `bench`; for `run` and `plan` also check that the flags agree."""
    require([name], commands())
    words = [PLACEHOLDERS.get(word, word) for word in words]
    words, compared = (words[: words.index("--")], words[words.index("--") + 1 :]) if "--" in words else (words, [])
    given = commands()[name].make_context(f"bench {name}", [*words]).params
    flags = flags_of_command(name)
    request = objects_of(plan_to_run, texts_of({field: given[field] for field in flags}, flags))["request"]
    require([word for word in words if word.startswith("results/2") and not list(ROOT.glob(word))], [])
    if compared:
        parse("run", compared)
    if name in ("run", "plan") and request.models:
        checked(request)


def require(names: list[str], known: Iterable[str]) -> None:
    missing = set(names) - set(known)
    if missing:
        raise LookupError(f"not there: {', '.join(missing)}")


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The file that the manual writes by hand, in the current folder."""
    (block,) = re.findall(r"^    # Is .*\n(?:    .*\n|\n(?=    ))*", (ROOT / "docs" / "plan-by-hand.md").read_text(), re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    Path("study.toml").write_text(textwrap.dedent(block))
    return "study.toml"


def test_the_study_written_by_hand_runs(study: str, answer: Answer) -> None:
    code, out, _ = answer("run --dry-run --json --config", study)
    assert code == 0
    plan = json.loads(out)["plan"]
    assert {planned["sizing"]["budget"] for planned in plan["cells"]} == {300_000, 1_000_000}
    assert (plan["settings"]["seeds"], plan["recipe"]["epochs"], plan["recipe"]["augment"]) == (5, 20, ["crop"])


@pytest.mark.slow
@pytest.mark.usefixtures("study")
def test_every_command_is_accepted() -> None:
    """One that several pages show is checked once."""
    for words in {tuple(words) for path in PAGES for words in shown(path.read_text())}:
        try:
            check([*words])
        except Exception as error:
            error.add_note(" ".join(words))
            raise


def test_make_replicate_measures_the_headline() -> None:
    (recipe,) = re.findall(r"^replicate:.*\n\t\.venv/bin/(.*)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    check(shlex.split(recipe))
    assert recipe.startswith("bench ablate headline ")


def test_pages_show_commands() -> None:
    assert len([path for path in PAGES if any(words[0] == "bench" for words in shown(path.read_text()))]) >= WITH_COMMANDS


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("bench run --models gmlp --sequence 17", UsageError),
        ("bench run --models gmlp --seq 17 --batch 8 --batch-tokens 64", RequestError),
        ("bench run --models gmlp \\\n    --seq x    # a comment", RequestError),
        ("bench runs", LookupError),
        ("bench check results/2000-01-01_cpu", LookupError),
        ("bench diff --code main . -- --models gmlp --seq 1", RequestError),
        ("make tests", LookupError),
        ("python -m tests.docs.nothing", LookupError),
        ("pytest tests/nothing.py", LookupError),
    ],
)
def test_a_wrong_command_is_an_error(line: str, error: type[Exception]) -> None:
    ((words),) = shown(f"Prose.\n\n    {line}\n")
    with pytest.raises(error):
        check(words)


def test_the_page_of_all_commands_is_up_to_date() -> None:
    assert (ROOT / "docs" / "command-line.md").read_text() == f"{page()}\n", "docs/command-line.md differs from the program: make docs"
