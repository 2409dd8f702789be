"""How a task is named in a request, what is known of it before its data are loaded, and which lengths fit."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.spec import RequestError
from bench.tasks._info import TOKEN_CLASS, Images, Sequences, TaskInfo, choose, info_of


def test_a_name_chooses_the_defaults_but_for_the_options_that_follow_it() -> None:
    choice = choose("copy")
    assert (choice.text, choice.name, choice.argument) == ("copy", "copy", "")
    assert choice.options == {"items": 20_000, "test_items": 2_000, "seed": 0, "symbols": 16, "form": "blank", "learn_up_to": 0}
    assert choose("copy+symbols=8+items=50").options == {**choice.options, "items": 50, "symbols": 8}
    choice = choose("text:C:/made folder/a.csv+text_column=a b:c")
    assert (choice.name, choice.argument) == ("text", "C:/made folder/a.csv")
    assert choice.options["text_column"] == "a b:c"


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("coppy", "unknown task 'coppy'; allowed: associative_recall", "did you mean copy"),
        ("Copy!", "must be written name, name:argument or name[+]option=value", "bench list tasks"),
        ("copy+symbol=8", "unknown option of task copy: 'symbol'; allowed: items", "did you mean symbols"),
        ("digits:folder", "task digits takes no argument, found 'folder'", "try --task digits"),
        ("text:", "task text needs a FILE", "write text:FILE"),
    ],
)
def test_what_cannot_be_meant_is_refused_saying_what_to_type(text: str, message: str, hint: str) -> None:
    with pytest.raises(RequestError, match=message) as refused:
        choose(text)
    assert re.search(hint, refused.value.hint)


def test_facts_that_cannot_be_known_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from bench.tasks import copy

    def info(_choice: object) -> TaskInfo:
        raise ValueError("planted fault")

    info_of.cache_clear()
    monkeypatch.setattr(copy, "info", info)
    with pytest.raises(RequestError, match="--task copy: planted fault"):
        info_of("copy")


def test_images_fit_where_a_square_grid_divides_the_side() -> None:
    reads = Images(channels=3, height=32, width=32)
    assert reads.seq_lens("cls") == (2, 5, 17, 65, 257, 1025)
    assert reads.seq_lens("mean") == (4, 16, 64, 256, 1024)
    assert reads.patch_side(17, "cls") == 8
    assert reads.patch_side(17, "mean") is None
    # a grid of three is square and does not divide 32
    assert reads.patch_side(10, "cls") is None


@pytest.mark.parametrize(
    ("answers", "pool", "fits", "unfit", "suggested"),
    [
        ("class", "cls", 9, 8, 9),
        (TOKEN_CLASS, "cls", 8, 9, 8),
        ("class", "mean", 16, 99, 16),
    ],
)
def test_a_class_token_counts_only_where_one_class_is_asked_for(answers: str, pool: str, fits: int, unfit: int, suggested: int) -> None:
    reads = Sequences(vocab_size=9, multiple=4, min_tokens=3, max_tokens=18, longer_with="more keys")
    facts = TaskInfo(
        name="made", summary="", source="", reads=reads, answers=answers, num_classes=10, chance=0.1, num_train=40, num_test=20
    )
    assert facts.interface(fits, pool)
    with pytest.raises(
        RequestError, match=r"lengths that fit: 3 to 18 data tokens, a multiple of 4 [(]longer with more keys[)]"
    ) as refused:
        facts.interface(unfit, pool)
    assert refused.value.hint == f"try --seq {suggested}"


@given(
    num_tokens=st.integers(0, 300), multiple=st.integers(1, 9), shortest=st.integers(2, 40), room=st.one_of(st.none(), st.integers(9, 99))
)
def test_the_nearest_that_fits_is_nearest(num_tokens: int, multiple: int, shortest: int, room: int | None) -> None:
    reads = Sequences(vocab_size=9, multiple=multiple, min_tokens=shortest, max_tokens=shortest + room if room else 0)
    longest = reads.max_tokens or 10**9
    allowed = [n for n in range(400) if shortest <= n <= longest and n % multiple == 0]
    assert [n for n in range(400) if reads.fits(n)] == allowed
    assert abs(reads.nearest(num_tokens) - num_tokens) == min(abs(n - num_tokens) for n in allowed)
