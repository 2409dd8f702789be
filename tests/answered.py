"""What a command answers that is called in the process of the test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bench import cli

Answer = Callable[..., tuple[int, str, str]]


@pytest.fixture
def answer(capsys: pytest.CaptureFixture[str]) -> Answer:
    """Exit status, output and errors of what is typed after `bench`; what is given beside it is one argument each."""

    def run(typed: str, *arguments: Any) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            cli.main([*typed.split(), *map(str, arguments)])
        assert isinstance(ended.value.code, int)
        return ended.value.code, *capsys.readouterr()

    return run
