"""Byte-level byte pair encoding by the `tokenizers` library.

Source: Sennrich, Haddow and Birch, arXiv 1508.07909; on bytes as in GPT-2 (Radford et al. 2019). Ids start at 0, and any text can be encoded. The
encoding is learned from the training texts and cached in the user's cache folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.files import write_json
from bench.spec import RequestError

TEXTS_PER_BATCH = 1000
"""Small batches limit memory: encodings hold much more than their ids."""


def require_library() -> None:
    """Raise RequestError if `tokenizers` is not installed."""
    if importlib.util.find_spec("tokenizers") is None:
        raise RequestError("tokenizer bpe needs the library tokenizers, which is not installed", "pip install tokenizers")


def learn(texts: Sequence[str], *, vocab_size: int) -> Any:
    """Learn a `tokenizers.Tokenizer` from `texts`, or load it from the cache.

    It has at most `vocab_size` tokens. The cache only saves time: an entry that cannot be read is learned again, one that cannot be written is not
    cached.
    """
    require_library()
    import tokenizers

    name = _digest(texts, f"{vocab_size} {tokenizers.__version__}")
    with contextlib.suppress(OSError, ValueError, RuntimeError):
        return tokenizers.Tokenizer.from_str(json.loads((cache_folder() / f"bpe-{name}.json").read_text(encoding="utf-8")))
    learned = _train(texts, vocab_size)
    with contextlib.suppress(OSError, RuntimeError):
        cache_folder().mkdir(parents=True, exist_ok=True)
        write_json(cache_folder() / f"bpe-{name}.json", learned.to_str())
    return learned


def cache_folder() -> Path:
    """Return `$XDG_CACHE_HOME/gmlp-bench`, or `~/.cache/gmlp-bench` if the variable is unset or relative.

    Source: XDG Base Directory Specification 0.8, section 3. Raises RuntimeError if the user has no home folder.
    """
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (named if named.is_absolute() else Path.home() / ".cache") / "gmlp-bench"


def encode(learned: Any, texts: Sequence[str], num_tokens: int) -> Iterator[list[int]]:
    """Yield the first `num_tokens` ids of each text."""
    learned.enable_truncation(num_tokens)
    for start in range(0, len(texts), TEXTS_PER_BATCH):
        batch = [_encodable(text) for text in texts[start : start + TEXTS_PER_BATCH]]
        for encoding in learned.encode_batch_fast(batch):
            yield encoding.ids


def _train(texts: Sequence[str], vocab_size: int) -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    learned = Tokenizer(models.BPE())
    learned.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    learned.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        # special tokens would also match inside the texts, so padding is added outside this vocabulary
        special_tokens=[],
        show_progress=False,
    )
    learned.train_from_iterator((_encodable(text) for text in texts), trainer)
    return learned


def _digest(texts: Sequence[str], settings: str) -> str:
    digest = hashlib.sha256(settings.encode())
    for text in texts:
        stored = _encodable(text).encode()
        # the length prefix makes the digest differ for texts that are split differently
        digest.update(len(stored).to_bytes(8, "little") + stored)
    return digest.hexdigest()


def _encodable(text: str) -> str:
    return text.encode("utf-8", errors="replace").decode("utf-8")
