"""Texts to ids: what goes in comes out, padding is zero, no id leaves the vocabulary, and the same texts give the same ids."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.spec import OptionValue, RequestError
from bench.tasks.readers import byte_pairs
from bench.tasks.readers.tokenise import BYTE_VOCAB_SIZE, PADDING, TOKEN_OPTIONS, byte_ids, learn_tokens, pad, require_tokens
from tests.contracts.made_data import text_of_bytes

TEXTS = ["How far is it from Denver to Aspen ?", "<pad> Who was Galileo ?", "", "naïve café, 12 €"] * 3
needs_tokenizers = pytest.mark.skipif(importlib.util.find_spec("tokenizers") is None, reason="tokenizers is not installed")
DEFAULTS = {option.name: option.default for option in TOKEN_OPTIONS}
BPE: dict[str, OptionValue] = {"tokenizer": "bpe", "vocab_size": 280}
lists_of_texts = st.lists(st.text(max_size=40), min_size=1, max_size=6)


def check_ids(ids: Any, lengths: Any, vocab_size: int) -> None:
    is_padding = np.arange(ids.shape[1]) >= lengths[:, None]
    assert lengths.min() >= 1
    assert (ids[is_padding] == PADDING).all()
    assert ids[~is_padding].min() > PADDING
    assert ids.max() < vocab_size


@given(lists_of_texts, st.integers(min_value=1, max_value=20))
def test_bytes_are_cut_to_the_first(texts: list[str], num_tokens: int) -> None:
    ids, lengths = learn_tokens([], options=DEFAULTS, num_tokens=num_tokens)(texts)
    check_ids(ids, lengths, BYTE_VOCAB_SIZE)
    for row, length, text in zip(ids, lengths, texts, strict=True):
        assert bytes(int(i) - 1 for i in row[:length]) == (text or " ").encode()[:num_tokens]


def test_the_byte_ids_by_hand() -> None:
    ids, lengths = learn_tokens([], options=DEFAULTS, num_tokens=4)(["A\x00ÿ", "", "abcdef"])
    assert ids.tolist() == [[66, 1, 196, 192], [33, 0, 0, 0], [98, 99, 100, 101]]
    assert lengths.tolist() == [4, 1, 4]
    assert ids.dtype == np.int16
    wide, _ = pad([np.array([39_999])], num_items=1, num_tokens=2, vocab_size=40_000)
    assert wide.dtype == np.int32
    assert wide.tolist() == [[39_999, 0]]


@needs_tokenizers
def test_what_utf8_cannot_hold_becomes_a_question_mark() -> None:
    assert text_of_bytes(byte_ids("a\ud800b")) == "a?b"
    ids, lengths = learn_tokens(TEXTS, options=BPE, num_tokens=9)(["a\ud800b", "a?b"])
    assert ids[0].tolist() == ids[1].tolist()
    assert lengths[0] == lengths[1]


@needs_tokenizers
@pytest.mark.parametrize("vocab_size", [BYTE_VOCAB_SIZE, 280])
def test_byte_pairs_stay_in_their_vocabulary(vocab_size: int) -> None:
    unseen = [bytes(range(256)).decode("latin-1"), "日本語 🎬", "<pad>"]
    ids, lengths = learn_tokens(TEXTS, options={**BPE, "vocab_size": vocab_size}, num_tokens=600)(TEXTS + unseen)
    check_ids(ids, lengths, vocab_size)


@needs_tokenizers
@given(lists_of_texts)
def test_byte_pairs_come_back(texts: list[str]) -> None:
    learned = byte_pairs.learn(TEXTS, vocab_size=279)
    assert [learned.decode(ids, skip_special_tokens=False) for ids in byte_pairs.encode(learned, texts, 1000)] == texts


@needs_tokenizers
def test_the_same_texts_give_the_same_byte_pairs_with_and_without_a_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, _ = learn_tokens(TEXTS, options=BPE, num_tokens=32)(TEXTS)
    kept = list((tmp_path / "cache" / "gmlp-bench").glob("bpe-*"))
    again, _ = learn_tokens(TEXTS, options=BPE, num_tokens=32)(TEXTS)
    cut, _ = learn_tokens(TEXTS, options=BPE, num_tokens=5)(TEXTS)
    assert (cut == first[:, :5]).all()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "elsewhere"))
    afresh, _ = learn_tokens(TEXTS, options=BPE, num_tokens=32)(TEXTS)
    assert len(kept) == 1
    assert (first == again).all()
    assert (first == afresh).all()


@needs_tokenizers
def test_byte_pairs_are_learned_once_per_texts_and_size(monkeypatch: pytest.MonkeyPatch) -> None:
    trained: list[int] = []
    train = byte_pairs._train

    def count(texts: Sequence[str], size: int) -> Any:
        trained.append(size)
        return train(texts, size)

    monkeypatch.setattr(byte_pairs, "_train", count)
    for texts, size in ((TEXTS, 280), (TEXTS, 280), (TEXTS, 270), (["ab", "c"], 280), (["a", "bc"], 280)):
        byte_pairs.learn(texts, vocab_size=size)
    assert trained == [280, 270, 280, 280]


@needs_tokenizers
def test_a_cache_that_cannot_be_written_or_read_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, _ = learn_tokens(TEXTS, options=BPE, num_tokens=32)(TEXTS)
    for kept in (tmp_path / "cache" / "gmlp-bench").glob("bpe-*"):
        kept.write_text("torn {")
    torn, _ = learn_tokens(TEXTS, options=BPE, num_tokens=32)(TEXTS)
    (tmp_path / "a file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a file"))
    uncached, _ = learn_tokens(TEXTS, options=BPE, num_tokens=32)(TEXTS)
    assert (first == torn).all()
    assert (first == uncached).all()


def test_the_cache_is_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert byte_pairs.cache_folder() == Path("/somewhere/gmlp-bench")
    for unset in ("", "relative/folder"):
        monkeypatch.setenv("XDG_CACHE_HOME", unset)
        assert byte_pairs.cache_folder() == tmp_path / ".cache/gmlp-bench"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tokenizer": "bpe", "vocab_size": 256}, "too small for bpe; at least 257"),
        ({"tokenizer": "bytes", "vocab_size": 1000}, "vocab_size 1000 needs tokenizer bpe; tokenizer bytes has 257"),
    ],
)
def test_options_that_cannot_be_met_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(RequestError, match=said):
        require_tokens(options)
