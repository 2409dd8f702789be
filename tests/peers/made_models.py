"""A user's own models, as `python:tests.peers.made_models:NAME` names them."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Averaging(nn.Module):
    """`(batch, tokens, patch_dim)` -> the mean patch, classified."""

    def __init__(self, patch_dim: int, num_classes: int, hidden: int = 0) -> None:
        super().__init__()
        self.classify = (
            nn.Sequential(nn.Linear(patch_dim, hidden), nn.Linear(hidden, num_classes)) if hidden else nn.Linear(patch_dim, num_classes)
        )

    def forward(self, patches: Tensor) -> Tensor:
        answers: Tensor = self.classify(patches.mean(dim=1))
        return answers


class Attending(nn.Module):
    """torch's own attention layer over token ids."""

    def __init__(self, width: int, heads: int, vocab_size: int, num_classes: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.classify = nn.Linear(width, num_classes)

    def forward(self, ids: Tensor) -> Tensor:
        tokens = self.embedding(ids)
        mixed, _ = self.attention(tokens, tokens, tokens, need_weights=False)
        answers: Tensor = self.classify(mixed.mean(dim=1))
        return answers


class Transforming(nn.Module):
    """FNet's mixing (arXiv 2105.03824): the real part of an FFT over channels and tokens."""

    def __init__(self, patch_dim: int, num_classes: int) -> None:
        super().__init__()
        self.classify = nn.Linear(patch_dim, num_classes)

    def forward(self, patches: Tensor) -> Tensor:
        answers: Tensor = self.classify(torch.fft.fft(torch.fft.fft(patches), dim=1).real.mean(dim=1))
        return answers


def averaging(patch_dim: int, num_classes: int, hidden: int = 0) -> nn.Module:
    return Averaging(patch_dim, num_classes, hidden)


def stubborn(patch_dim: int) -> nn.Module:
    raise RuntimeError(f"no model of {patch_dim}\nwith a second line")


class Demanding(nn.Linear):
    """Needs an argument that no task gives."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels, 10)


def nothing() -> str:
    return "no model"


def reading() -> nn.Module:
    """It reads a number while it builds, which the `meta` device has not."""
    return nn.Sequential(nn.Linear(192, int(torch.tensor([10]).item())), Averaged())


class Wasting(Averaging):
    """It multiplies what no answer depends on."""

    def __init__(self, patch_dim: int, num_classes: int) -> None:
        super().__init__(patch_dim, num_classes)
        self.unused = nn.Linear(patch_dim, patch_dim)

    def forward(self, patches: Tensor) -> Tensor:
        self.unused(patches)
        return super().forward(patches)


class Normalising(Averaging):
    """Its batch normalisation refuses a single sample in training."""

    def __init__(self, patch_dim: int, num_classes: int) -> None:
        super().__init__(patch_dim, num_classes)
        self.norm = nn.BatchNorm1d(num_classes)

    def forward(self, patches: Tensor) -> Tensor:
        answers: Tensor = self.norm(super().forward(patches))
        return answers


class Skipping(Averaging):
    """It skips its block at random while it trains."""

    def __init__(self, patch_dim: int, num_classes: int) -> None:
        super().__init__(patch_dim, num_classes)
        self.block = nn.Linear(patch_dim, patch_dim)

    def forward(self, patches: Tensor) -> Tensor:
        is_skipped = self.training and torch.rand((), device="cpu").item() < 0.5
        return super().forward(patches if is_skipped else patches + self.block(patches))


class Recurring(Averaging):
    """fvcore cannot follow its recurrence."""

    def __init__(self, patch_dim: int, num_classes: int) -> None:
        super().__init__(8, num_classes)
        self.recurrence = nn.GRU(patch_dim, 8, batch_first=True)

    def forward(self, patches: Tensor) -> Tensor:
        return super().forward(self.recurrence(patches)[0])


MEAN = torch.full((192,), 0.5)


class Centring(Averaging):
    """It holds a constant on the CPU, and marks its forward pass for the profiler."""

    def __init__(self, patch_dim: int, num_classes: int) -> None:
        super().__init__(patch_dim, num_classes)

    def forward(self, patches: Tensor) -> Tensor:
        with torch.profiler.record_function("centring"):
            return super().forward(patches - MEAN)


class Averaged(nn.Module):
    def forward(self, tokens: Tensor) -> Tensor:
        return tokens.mean(1)


class Twice(nn.Module):
    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        return tokens, tokens
