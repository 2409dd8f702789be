"""Print docs/command-line.md: every command with its flags, from the command line itself.

python -m tests.docs.command_line > docs/command-line.md
"""

from __future__ import annotations

import inspect
import re
from typing import Any

import typer

from bench.cli import app
from bench.planning.recipe import OPTIONS
from bench.spec import Recipe

INTRODUCTION = """# Command line

Every command of `bench`, with its arguments and flags. `make docs` writes this page from the program; `bench COMMAND --help` shows the same.

A LIST is comma-separated, without spaces. Results go to stdout; progress, warnings and paths go to stderr. Exit codes: 0 done; 1 done, but
something failed or a bound was exceeded; 2 the request was wrong; 75 the time of `--minutes` is over; 130 interrupted.
`bench --install-completion` lets the shell complete commands, flags, models, metrics, tasks, engines, questions and runs."""
RECIPE = """## Keys of --recipe

`--recipe epochs=20,augment=crop+flip` changes these keys alone, for every model alike."""
TYPED = [option for option in OPTIONS if option.name != "init_sha256"]
"""Planning fills in the sha256 itself."""
SHARED_WITH = "run"
"""The command whose flags other commands repeat."""


def commands() -> dict[str, Any]:
    """Return the commands by name, in the order of the help."""
    group: Any = typer.main.get_command(app)
    return {name: command for name, command in group.commands.items() if not command.hidden}


def page() -> str:
    """Return the page as Markdown."""
    shared = [_line(parameter) for parameter in commands()[SHARED_WITH].params]
    sections = [_section(name, command, shared) for name, command in commands().items()]
    return "\n\n".join([INTRODUCTION, *sections, RECIPE, recipe_table()])


def recipe_table() -> str:
    """Return one row per key of a recipe that can be typed, with its default, its values and what the class says of it."""
    text = inspect.cleandoc(Recipe.__doc__ or "").replace("\n    ", " ")
    meanings = dict(re.findall(r"^`(\w+)`: (.+)$", text, re.MULTILINE))
    rows = [f"| `{option.name}` | {_typed(option.default)} | {option.rule} | {_meaning(meanings[option.name])} |" for option in TYPED]
    return "\n".join(["| key | default | values | meaning |", "|---|---|---|---|", *rows])


def _typed(default: Any) -> str:
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, tuple):
        return "+".join(default) or "none"
    return f"{default:g}" if isinstance(default, float) else str(default)


def _meaning(text: str) -> str:
    """Return a description without the names of modules."""
    text = re.sub(r" \(`[\w.]+`\)", "", text).rstrip(".")
    return text[0].upper() + text[1:]


def _section(name: str, command: Any, shared: list[str]) -> str:
    """Return a command's section; flags that `run` describes in the same words are only named."""
    shown = [parameter for parameter in command.params if not parameter.hidden]
    lines = {parameter.name: _line(parameter) for parameter in shown}
    repeated = [parameter for parameter in shown if name != SHARED_WITH and lines[parameter.name] in shared]
    panels: dict[str, list[str]] = {}
    for parameter in shown:
        if parameter not in repeated:
            panels.setdefault(parameter.rich_help_panel or "Options", []).append(lines[parameter.name])
    usage = " ".join(["bench", name, *(_argument(parameter) for parameter in shown if _is_argument(parameter))])
    blocks = [f"## bench {name}", f"`{usage} [FLAGS]`", command.help, "    " + command.epilog.removeprefix("Example: ")]
    for title, found in panels.items():
        blocks.append("\n".join([f"| {title} | |", "|---|---|", *found]))
    if repeated:
        blocks.append(f"As for [bench {SHARED_WITH}](#bench-{SHARED_WITH}): " + ", ".join(f"`{p.opts[0]}`" for p in repeated) + ".")
    return "\n\n".join(blocks)


def _is_argument(parameter: Any) -> bool:
    return str(parameter.param_type_name) == "argument"


def _argument(parameter: Any) -> str:
    name = parameter.metavar or parameter.name.upper()
    return name if parameter.required else f"[{name}]"


def _line(parameter: Any) -> str:
    name = _argument(parameter) if _is_argument(parameter) else " ".join(filter(None, [parameter.opts[0], parameter.metavar]))
    help_text = " ".join(parameter.help.split()).replace("|", "\\|")
    return f"| `{name}` | {help_text}{_default(parameter)} |"


def _default(parameter: Any) -> str:
    value = parameter.default
    if parameter.required and not _is_argument(parameter):
        return " Required."
    if not parameter.show_default or value in (None, "", ()) or value is False or _is_argument(parameter):
        return ""
    return f" Default: `{','.join(map(str, value)) if isinstance(value, tuple) else value}`."


if __name__ == "__main__":
    print(page())  # noqa: T201
