"""Requests as tests ask for them: in the words of the command line."""

from __future__ import annotations

import dataclasses

from bench.planning.fields import read
from bench.planning.request import CEILING, Request, checked
from bench.spec import TUNING


def parse_request(**texts: str) -> Request:
    """The request of these flags, without those that are empty, and without the ceilings of `bench run`; of two blocks if a budget sets the sizes."""
    metrics = texts.get("metrics", "").split(",")
    trials = {"lr_trials": "3"} if TUNING in metrics else {}
    given = {name: text for name, text in texts.items() if text}
    depth = {"depth": "2"} if "params" in given and "width" not in given else {}
    request = checked(read(Request, {**depth, **trials, **given}))
    return dataclasses.replace(request, metrics=tuple(name for name in request.metrics if name != CEILING or name in metrics))
