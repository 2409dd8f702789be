"""What the contract of bench/tasks asks of a task: its facts are those of its data, and its splits can be trained on."""

from __future__ import annotations

import functools
import pickle
import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor

from bench.spec import RequestError
from bench.tasks import IGNORED, Split, Splits, load_splits
from bench.tasks._info import CLASS, TOKEN_CLASS, TOKEN_VALUE, Images, Sequences, TaskInfo, info_of
from models.layers.patches import cut_patches
from models.layers.shape import NO_POOL, POOLS, num_data_tokens

MIDDLE = 64
"""Data tokens at which splits are looked at most closely."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A task under test. `load`: (data tokens) -> Splits; `counts_match`: are there as many items as the facts say?"""

    info: TaskInfo
    load: Callable[[int], Splits]
    counts_match: bool = True

    @functools.cached_property
    def splits(self) -> Splits:
        """At the second of the lengths tried."""
        return self.load(lengths_of(self.info)[1])


def subject_of(text: str, *, counts_match: bool = True) -> Subject:
    return Subject(info=info_of(text), load=lambda num_tokens: load_splits(text, num_tokens=num_tokens), counts_match=counts_match)


def lengths_of(info: TaskInfo) -> tuple[int, ...]:
    """Data tokens to try: the shortest, a middle length, the next one where not all are allowed, and the longest where there is a limit."""
    if isinstance(info.reads, Images):
        return tuple(num_data_tokens(n, POOLS[0]) for n in info.reads.seq_lens(POOLS[0]))
    reads = info.reads
    found = [reads.nearest(0), reads.nearest(MIDDLE)]
    found += [reads.nearest(found[1] + reads.multiple)] if reads.multiple > 1 else []
    return (*found, *([reads.nearest(reads.max_tokens)] if reads.max_tokens else []))


def pools_of(info: TaskInfo) -> tuple[str, ...]:
    return POOLS if info.answers == CLASS else (NO_POOL,)


def seq_len_of(num_tokens: int, pool: str) -> int:
    return num_tokens + 1 - num_data_tokens(1, pool)


def parts_of(splits: Splits) -> list[Split]:
    return [splits.train, splits.test, *([splits.validation] if splits.validation else [])]


def check_counts(info: TaskInfo, splits: Splits) -> None:
    found = [len(part.inputs) for part in parts_of(splits)]
    assert found == [info.num_train, info.num_test, *([info.num_validation] if info.num_validation else [])]


def check_inputs(info: TaskInfo, split: Split) -> None:
    inputs, reads = split.inputs, info.reads
    if isinstance(reads, Images):
        assert inputs.shape[1:] == (reads.channels, reads.height, reads.width)
        assert inputs.dtype in (torch.uint8, torch.float32)
    elif reads.vocab_size:
        assert inputs.ndim == 2
        assert not inputs.dtype.is_floating_point
        assert 0 <= int(inputs.min()) <= int(inputs.max()) < reads.vocab_size
    else:
        assert inputs.shape[2:] == (reads.vector_width,)
        assert inputs.dtype == torch.float32
    assert inputs.float().isfinite().all()


def check_targets(info: TaskInfo, split: Split) -> None:
    targets, shape = split.targets, split.inputs.shape
    if info.answers == CLASS:
        assert (targets.shape, targets.dtype) == (shape[:1], torch.int64)
        assert targets.unique().tolist() == list(range(info.num_classes))
        return
    assert targets.shape == shape[:2]
    asked = asked_tokens(info, split)
    assert asked.any(dim=1).all()
    if info.answers == TOKEN_CLASS:
        assert targets.dtype == torch.int64
        assert 0 <= int(targets[asked].min()) <= int(targets[asked].max()) < info.num_classes
    else:
        assert (targets.dtype, info.num_classes, info.answers) == (torch.float32, 1, TOKEN_VALUE)
        assert targets[asked].isfinite().all()


def asked_tokens(info: TaskInfo, split: Split) -> Tensor:
    return split.targets != IGNORED if info.answers == TOKEN_CLASS else ~split.targets.isnan()


def check_lengths(info: TaskInfo, split: Split) -> None:
    if split.lengths is None:
        return
    num_tokens = split.inputs.shape[1]
    assert isinstance(info.reads, Sequences)
    assert (split.lengths.shape, split.lengths.dtype) == (split.inputs.shape[:1], torch.int64)
    assert 1 <= int(split.lengths.min()) <= int(split.lengths.max()) <= num_tokens
    if info.answers != CLASS:
        padding = torch.arange(num_tokens) >= split.lengths[:, None]
        assert not (asked_tokens(info, split) & padding).any()


def check_normalised_on_train(info: TaskInfo, splits: Splits) -> None:
    if not isinstance(info.reads, Images):
        return
    images = splits.train.inputs.double()
    if splits.train.inputs.dtype == torch.uint8:
        assert splits.mean is not None
        assert splits.spread is not None
        images = (images / 255 - splits.mean.view(-1, 1, 1)) / splits.spread.view(-1, 1, 1)
    spread, mean = torch.std_mean(images, dim=(0, 2, 3))
    torch.testing.assert_close(mean, torch.zeros_like(mean), atol=1e-3, rtol=0)
    torch.testing.assert_close(spread, torch.ones_like(spread), atol=1e-3, rtol=0)


def check_splits_disjoint(splits: Splits) -> None:
    train = {item.tobytes() for item in splits.train.inputs.numpy()}
    assert not any(item.tobytes() in train for item in splits.test.inputs.numpy())


def check_every_length(subject: Subject) -> None:
    """Every length on offer loads as that many tokens, of the kind that the interface announces."""
    for place, num_tokens in enumerate(lengths_of(subject.info)):
        splits = subject.splits if place == 1 else subject.load(num_tokens)
        for pool in pools_of(subject.info):
            check_length(subject.info, splits.test.inputs[:2], num_tokens, pool)


def check_length(info: TaskInfo, inputs: Tensor, num_tokens: int, pool: str) -> None:
    seq_len = seq_len_of(num_tokens, pool)
    interface = info.interface(seq_len, pool)
    assert interface.num_classes == info.num_classes
    if isinstance(info.reads, Images):
        patch_side = info.reads.patch_side(seq_len, pool)
        assert patch_side is not None
        assert cut_patches(inputs, patch_side).shape == (2, num_tokens, interface.patch_dim)
    elif interface.input == "tokens":
        assert inputs.shape == (2, num_tokens)
        assert interface.vocab_size == info.reads.vocab_size
    else:
        assert inputs.shape == (2, num_tokens, interface.patch_dim)


def check_same_bits(subject: Subject) -> None:
    """A second load brings the same, and leaves the global generators as they were."""
    first = subject.splits
    # moved on, so that a load that seeds them leaves another state than it found
    torch.rand(1), np.random.random(), random.random()
    before = generator_states()
    second = subject.load(lengths_of(subject.info)[1])
    assert generator_states() == before
    for one, other in zip(parts_of(first), parts_of(second), strict=True):
        for name in ("inputs", "targets", "lengths"):
            a, b = getattr(one, name), getattr(other, name)
            assert (a is None) == (b is None)
            assert a is None or (a.dtype == b.dtype and a.numpy().tobytes() == b.numpy().tobytes())


def generator_states() -> tuple[object, ...]:
    return torch.get_rng_state().tolist(), pickle.dumps(np.random.get_state()), random.getstate()


def check_refusals(info: TaskInfo) -> None:
    """A length that does not fit is refused, saying what does."""
    for pool in pools_of(info):
        if isinstance(info.reads, Images):
            lengths = info.reads.seq_lens(pool)
            unfit, rule = [lengths[-1] + 1], ", ".join(str(n) for n in lengths)
        else:
            reads = info.reads
            unfit = [seq_len_of(n, pool) for n in (reads.min_tokens - 1, reads.min_tokens + 1, reads.max_tokens + 1) if not reads.fits(n)]
            rule = reads.rule
            assert unfit
        for seq_len in unfit:
            with pytest.raises(RequestError) as refused:
                info.interface(seq_len, pool)
            assert rule in str(refused.value)
            assert info.interface(int(refused.value.hint.removeprefix("try --seq ").split(",")[0]), pool)


def check_facts(subject: Subject) -> None:
    if subject.counts_match:
        check_counts(subject.info, subject.splits)
    for split in parts_of(subject.splits):
        check_inputs(subject.info, split)
        check_targets(subject.info, split)
        check_lengths(subject.info, split)


def check_all(subject: Subject) -> None:
    check_facts(subject)
    check_normalised_on_train(subject.info, subject.splits)
    check_splits_disjoint(subject.splits)
    check_every_length(subject)
    check_refusals(subject.info)
    check_same_bits(subject)
