"""Mean and spread in one pass: exact at any chunking, cached, and never those of other images."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from bench.tasks.readers import normalisation
from bench.tasks.readers.normalisation import cached_statistics, channel_statistics


def made_images(items: int = 9, channels: int = 3, side: int = 4, seed: int = 0) -> Tensor:
    return torch.randint(0, 256, (items, channels, side, side), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def assert_exact(statistics: tuple[Tensor, Tensor], images: Tensor) -> None:
    spread, mean = torch.std_mean(images.double() / 255, dim=(0, 2, 3))
    torch.testing.assert_close(statistics[0], mean, atol=1e-10, rtol=0)
    torch.testing.assert_close(statistics[1], spread, atol=1e-10, rtol=0)


@given(
    items=st.integers(1, 40),
    channels=st.integers(1, 4),
    side=st.integers(2, 5),
    chunk_values=st.integers(1, 4000),
    seed=st.integers(0, 2**31),
)
def test_statistics_are_exact_at_any_chunking(items: int, channels: int, side: int, chunk_values: int, seed: int) -> None:
    images = made_images(items, channels, side, seed)
    assert_exact(channel_statistics(images, chunk_values=chunk_values), images)


def test_chunks_of_very_different_means_and_sizes_are_merged_exactly() -> None:
    images = torch.cat((made_images(7) // 100, made_images(2) // 2 + 128))
    assert_exact(channel_statistics(images, chunk_values=7 * 48), images)


def test_a_constant_channel_has_spread_one() -> None:
    images = made_images()
    images[:, 1] = 77
    mean, spread = channel_statistics(images)
    assert mean[1].item() == pytest.approx(77 / 255)
    assert spread[1].item() == 1.0
    assert channel_statistics(images[:1, :, :1, :1])[1].tolist() == [1.0] * 3


@pytest.mark.parametrize("images", [torch.rand(2, 3, 4, 4), made_images(0), made_images()[0]], ids=["float", "none", "one image"])
def test_other_images_are_refused(images: Tensor) -> None:
    with pytest.raises(ValueError, match="uint8 images"):
        channel_statistics(images)


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """Every set that statistics were computed of, with a cache of its own."""
    computed: list[Tensor] = []
    compute: Callable[[Tensor], tuple[Tensor, Tensor]] = channel_statistics

    def watched(images: Tensor) -> tuple[Tensor, Tensor]:
        computed.append(images)
        return compute(images)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(normalisation, "channel_statistics", watched)
    return computed


def test_statistics_are_computed_once_and_read_back_the_same(calls: list[Tensor]) -> None:
    first, second = cached_statistics("made", made_images()), cached_statistics("made", made_images())
    assert len(calls) == 1
    assert torch.equal(first[0], second[0])
    assert torch.equal(first[1], second[1])
    assert first[0].dtype == torch.float32


def test_the_same_bytes_in_another_shape_or_task_are_computed_again(calls: list[Tensor]) -> None:
    images = made_images()
    cached_statistics("made", images)
    cached_statistics("made", images.view(3, 9, 4, 4))
    cached_statistics("other", images)
    images[-1, 0, -1, -1] ^= 255  # one changed pixel
    cached_statistics("made", images)
    assert len(calls) == 4


def test_a_view_has_the_fingerprint_of_its_copy() -> None:
    images = made_images()
    turned = images.transpose(2, 3)
    assert normalisation.fingerprint(turned) == normalisation.fingerprint(turned.contiguous()) != normalisation.fingerprint(images)
