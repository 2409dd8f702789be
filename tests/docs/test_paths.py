"""The table of costs and paths in docs/mixers.md is what the models do, and its layers are those of a count by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.paths import cost_text, layers_between, table


def test_the_page_shows_the_table() -> None:
    page = Path(__file__).resolve().parents[2] / "docs/mixers.md"
    assert table() in page.read_text(encoding="utf-8"), "python -m tests.docs.paths"


@pytest.mark.parametrize(
    ("mixer", "num_tokens", "layers"),
    [
        ("attention", 20, 1),
        ("attention:window=4", 20, 5),  # 19 tokens lie before the last, 4 to a layer
        ("attention:window=4", 21, 5),
        ("attention:window=4", 22, 6),
        ("depthwise_convolution:kernel_size=5", 20, 10),  # 2 to a layer
        ("window_attention:window=16", 16, 1),
        ("window_attention:window=16", 17, None),
        ("gru", 20, 1),
        ("identity", 20, None),
    ],
)
def test_layers_by_hand(mixer: str, num_tokens: int, layers: int | None) -> None:
    assert layers_between(mixer, num_tokens) == layers


def test_costs_of_the_source() -> None:
    """arXiv 1706.03762, Table 1: n^2 d in attention, n d^2 in a recurrent layer; a kernel k times n d, if each channel has its own."""
    assert "n² d" in cost_text("attention")
    assert cost_text("gru") == "6 n d²"
    assert cost_text("depthwise_convolution:kernel_size=5") == "5 n d"
