"""The names that a question gives its variants."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from bench.analysis.frame import variant_names
from bench.spec import Part, PlannedArm


def part(name: str, arms: Mapping[str, str]) -> Part:
    """A part by the cells of its arms, each named by a letter."""
    planned = tuple(PlannedArm(name=arm, cells=tuple(cells)) for arm, cells in arms.items())
    return Part(name=name, match="params", batching="", cells=tuple("".join(arms.values())), arms=planned)


LABELS = {"a": "mixer+x=1", "b": "mixer+x=1+short=2", "c": "mixer+x=2", "d": "vit"}


@pytest.mark.parametrize(
    ("parts", "names"),
    [
        ([part("cost", {"one": "a", "plain": "d"})], {"mixer+x=1": "one"}),
        ([part("cost", {"one": "a"}), part("recall", {"one": "a"})], {"mixer+x=1": "one"}),
        ([part("cost", {"one": "a", "same": "a"})], {}),
        ([part("cost", {"both": "ac"})], {}),
        ([part("cost", {"vit": "a", "plain": "d"})], {"mixer+x=1": "vit, cost"}),
        ([part("cost", {"mixer+x=1": "a"})], {"mixer+x=1": "mixer+x=1"}),
        (
            [part("recall", {"one": "b"}), part("cost", {"one": "a"}), part("copy", {"one": "a"})],
            {"mixer+x=1": "one", "mixer+x=1+short=2": "one, recall"},
        ),
    ],
    ids=["one", "in two parts", "two names", "two models", "another label", "its own label", "another model in one part"],
)
def test_a_model_is_named_as_its_variant_where_that_is_unique(parts: list[Part], names: dict[str, str]) -> None:
    assert variant_names(LABELS, parts) == names
