"""Mean and spread of training images, counted exactly."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bench.tasks.readers.images import channel_statistics


@given(items=st.integers(1, 40), channels=st.integers(1, 4), side=st.integers(2, 5), seed=st.integers(0, 2**31))
def test_statistics_are_those_of_double_precision(items: int, channels: int, side: int, seed: int) -> None:
    images = torch.randint(0, 256, (items, channels, side, side), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))
    spread, mean = torch.std_mean(images.double() / 255, dim=(0, 2, 3))
    found = channel_statistics(images)
    torch.testing.assert_close(found, (mean.float(), spread.float()))


def test_a_constant_channel_has_spread_one() -> None:
    images = torch.arange(54, dtype=torch.uint8).view(2, 3, 3, 3)
    images[:, 1] = 77
    mean, spread = channel_statistics(images)
    assert mean[1].item() == pytest.approx(77 / 255)
    assert spread[1].item() == 1.0
    assert channel_statistics(images[:1, :, :1, :1])[1].tolist() == [1.0] * 3
