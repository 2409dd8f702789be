"""What the contract of bench/tasks asks of a task: its facts are those of its data, and its splits can be trained on.

Each check raises AssertionError; tests/contracts/test_broken_tasks.py shows that it can.
"""

from __future__ import annotations

import functools
import math
import pickle
import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from bench.spec import RequestError
from bench.tasks import IGNORED, Split, Splits, load_splits
from bench.tasks._info import CLASS, TOKEN_CLASS, TOKEN_VALUE, Images, Sequences, TaskInfo, info_of
from models.layers.patches import cut_patches
from models.layers.shape import NO_POOL, POOLS, num_data_tokens

MIDDLE = 64
"""Data tokens at which splits are looked at most closely."""
ROUNDED = 0.01
"""How much less than a uniform guess a chance may be, as a share: 0.33 for 1 / 3."""


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
    told = [info.num_train, info.num_test, *([info.num_validation] if info.num_validation else [])]
    assert found == told, f"items to train on, of the test, and of validation if apart: {found} loaded, {told} by info"


def check_inputs(info: TaskInfo, split: Split) -> None:
    inputs, reads = split.inputs, info.reads
    if isinstance(reads, Images):
        told = (reads.channels, reads.height, reads.width)
        assert inputs.shape[1:] == told, f"images are {tuple(inputs.shape[1:])}, but {told} by info"
        assert inputs.dtype in (torch.uint8, torch.float32), f"images are {inputs.dtype}, not uint8 or float32"
    elif reads.vocab_size:
        assert inputs.ndim == 2, f"ids have the shape {tuple(inputs.shape)}, not (items, tokens)"
        assert not inputs.dtype.is_floating_point, f"ids are {inputs.dtype}, not whole numbers"
        low, high = int(inputs.min()), int(inputs.max())
        assert 0 <= low <= high < reads.vocab_size, f"ids lie from {low} to {high}, but vocab_size is {reads.vocab_size}"
    else:
        assert inputs.shape[2:] == (reads.vector_width,), (
            f"vectors have the shape {tuple(inputs.shape)}, with width {reads.vector_width} by info"
        )
        assert inputs.dtype == torch.float32, f"vectors are {inputs.dtype}, not float32"
    assert inputs.float().isfinite().all(), "inputs are not finite"


def check_targets(info: TaskInfo, split: Split) -> None:
    targets, shape = split.targets, split.inputs.shape
    if info.answers == CLASS:
        is_one = (targets.shape, targets.dtype) == (shape[:1], torch.int64)
        assert is_one, f"targets are {targets.dtype} of the shape {tuple(targets.shape)}, not one int64 per item"
        met = targets.unique().tolist()
        assert met == list(range(info.num_classes)), f"the classes of a split are {met}, but num_classes is {info.num_classes}"
        return
    assert targets.shape == shape[:2], f"targets have the shape {tuple(targets.shape)}, not (items, tokens)"
    asked = asked_tokens(info, split)
    assert asked.any(dim=1).all(), "an item asks for nothing"
    if info.answers == TOKEN_CLASS:
        assert targets.dtype == torch.int64, f"targets are {targets.dtype}, not int64"
        low, high = int(targets[asked].min()), int(targets[asked].max())
        assert 0 <= low <= high < info.num_classes, f"classes lie from {low} to {high}, but num_classes is {info.num_classes}"
    else:
        told = (targets.dtype, info.num_classes, info.answers)
        assert told == (torch.float32, 1, TOKEN_VALUE), f"values are float32 with num_classes 1 and answers {TOKEN_VALUE}, not {told}"
        assert targets[asked].isfinite().all(), "targets are not finite"


def check_chance(info: TaskInfo, splits: Splits) -> None:
    """The score of guessing is an accuracy between that of a uniform guess and that of the most frequent class, as far as the items show it.

    The mean in place of values scores 0. A score of another name is the task's own.
    """
    if info.answers == TOKEN_VALUE:
        assert info.chance == 0, f"chance is {info.chance:g}, but the mean of the values scores 0"
        return
    if info.score_name:
        return
    low, high = 1 / info.num_classes, max(most_frequent(info, split) for split in parts_of(splits))
    is_near = (1 - ROUNDED) * low <= info.chance <= high
    assert is_near, f"chance is {info.chance:g}, but guesses of {info.num_classes} classes score {low:.3g} to {high:.3g}"


def most_frequent(info: TaskInfo, split: Split) -> float:
    """The share of the most frequent class among the answers asked for, with three standard errors: items are few, and may be drawn."""
    asked = split.targets if info.answers == CLASS else split.targets[asked_tokens(info, split)]
    share = float(asked.unique(return_counts=True)[1].max()) / asked.numel()
    return share + 3 * math.sqrt(share * (1 - share) / asked.numel())


def asked_tokens(info: TaskInfo, split: Split) -> Tensor:
    return split.targets != IGNORED if info.answers == TOKEN_CLASS else ~split.targets.isnan()


def check_lengths(info: TaskInfo, split: Split) -> None:
    if split.lengths is None:
        return
    num_tokens = split.inputs.shape[1]
    assert isinstance(info.reads, Sequences), "images have no lengths"
    is_one = (split.lengths.shape, split.lengths.dtype) == (split.inputs.shape[:1], torch.int64)
    assert is_one, "lengths are not one int64 per item"
    low, high = int(split.lengths.min()), int(split.lengths.max())
    assert 1 <= low <= high <= num_tokens, f"lengths lie from {low} to {high}, with {num_tokens} tokens"
    if info.answers != CLASS:
        padding = torch.arange(num_tokens) >= split.lengths[:, None]
        assert not (asked_tokens(info, split) & padding).any(), "padding is asked for"


def check_normalised_on_train(info: TaskInfo, splits: Splits) -> None:
    if not isinstance(info.reads, Images):
        return
    images = splits.train.inputs.double()
    if splits.train.inputs.dtype == torch.uint8:
        assert splits.mean is not None, "splits of bytes have no mean"
        assert splits.spread is not None, "splits of bytes have no spread"
        images = (images / 255 - splits.mean.view(-1, 1, 1)) / splits.spread.view(-1, 1, 1)
    spread, mean = torch.std_mean(images, dim=(0, 2, 3))
    normal = torch.stack((mean, spread - 1)).abs().max() <= 1e-3
    assert normal, f"normalised images to train on have the mean {mean.tolist()} and spread {spread.tolist()} by channel, not 0 and 1"


def check_splits_disjoint(splits: Splits) -> None:
    train = {item.tobytes() for item in splits.train.inputs.numpy()}
    num_both = sum(item.tobytes() in train for item in splits.test.inputs.numpy())
    assert not num_both, f"{num_both} items of the test are also trained on"


def check_every_length(subject: Subject) -> None:
    """Every length on offer loads as that many tokens, of the kind that the interface announces."""
    for place, num_tokens in enumerate(lengths_of(subject.info)):
        splits = subject.splits if place == 1 else subject.load(num_tokens)
        for pool in pools_of(subject.info):
            check_length(subject.info, splits.test.inputs[:2], num_tokens, pool)


def check_length(info: TaskInfo, inputs: Tensor, num_tokens: int, pool: str) -> None:
    seq_len = seq_len_of(num_tokens, pool)
    interface = info.interface(seq_len, pool)
    assert interface.num_classes == info.num_classes, (
        f"the interface has {interface.num_classes} outputs, but info {info.num_classes} classes"
    )
    found = tuple(inputs.shape)
    if isinstance(info.reads, Images):
        patch_side = info.reads.patch_side(seq_len, pool)
        assert patch_side is not None, f"no patches give seq_len {seq_len}"
        found = tuple(cut_patches(inputs, patch_side).shape)
    told = (2, num_tokens) if interface.input == "tokens" else (2, num_tokens, interface.patch_dim)
    assert found == told, f"two items of {num_tokens} tokens have the shape {found}, not {told}"
    if not isinstance(info.reads, Images):
        assert interface.vocab_size == info.reads.vocab_size or not info.reads.vocab_size, "the interface has another vocab_size than info"


def check_same_bits(subject: Subject) -> None:
    """A second load brings the same, and leaves the global generators as they were."""
    first = subject.splits
    # moved on, so that a load that seeds them leaves another state than it found
    torch.rand(1), np.random.random(), random.random()
    before = generator_states()
    second = subject.load(lengths_of(subject.info)[1])
    assert generator_states() == before, "loading moves or seeds a global random generator"
    for one, other in zip(parts_of(first), parts_of(second), strict=True):
        for name in ("inputs", "targets", "lengths"):
            a, b = getattr(one, name), getattr(other, name)
            is_same = b is None if a is None else b is not None and (a.dtype, a.numpy().tobytes()) == (b.dtype, b.numpy().tobytes())
            assert is_same, f"a second load brings other {name}"


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
            assert unfit, "no length is refused, not even one token"
        for seq_len in unfit:
            refused = _refusal(info, seq_len, pool)
            assert rule in str(refused), f"the refusal of seq_len {seq_len} does not name the lengths that fit: {refused}"
            assert info.interface(int(refused.hint.removeprefix("try --seq ").split(",")[0]), pool)


def _refusal(info: TaskInfo, seq_len: int, pool: str) -> RequestError:
    try:
        info.interface(seq_len, pool)
    except RequestError as refused:
        return refused
    raise AssertionError(f"seq_len {seq_len} does not fit the task and is not refused")


def check_facts(subject: Subject) -> None:
    if subject.counts_match:
        check_counts(subject.info, subject.splits)
    for split in parts_of(subject.splits):
        check_inputs(subject.info, split)
        check_targets(subject.info, split)
        check_lengths(subject.info, split)
    check_chance(subject.info, subject.splits)


def check_all(subject: Subject) -> None:
    check_facts(subject)
    check_normalised_on_train(subject.info, subject.splits)
    check_splits_disjoint(subject.splits)
    check_every_length(subject)
    check_refusals(subject.info)
    check_same_bits(subject)
