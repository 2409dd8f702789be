"""MetaFormer: which mixers it holds, how they are named, and statistics of a batch among padding."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import pytest
import torch

from bench import catalog
from bench.contracts.architectures import randomise
from models import metaformer
from models.layers.shape import Shape

SHAPE = Shape(seq_len=17, width=16, depth=2, heads=2, ffn_width=64)


def config(**options: Any) -> metaformer.Config:
    return metaformer.Config(shape=SHAPE, **options)


def test_padding_takes_no_part_in_the_statistics_of_a_batch() -> None:
    model = metaformer.build(config(norm="batch", mixer="attention"))
    torch.manual_seed(0)
    randomise(model)
    other = copy.deepcopy(model)
    data, valid = torch.randn(3, 17, 192), torch.ones(3, 17, dtype=torch.bool)
    valid[0, 5:] = False
    answers, others = (each(data.masked_fill(~valid[..., None], fill), valid) for each, fill in ((model, 0.0), (other, float("nan"))))
    assert torch.equal(answers, others)
    statistics, other_statistics = (each.get_buffer("norm.running_mean") for each in (model, other))
    assert statistics.any()
    assert torch.equal(statistics, other_statistics)


def test_every_mixer_that_keeps_the_width_can_be_held() -> None:
    assert set(metaformer.mixer_names()) == set(catalog.names("mixers")) - {"spatial_gating"}


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"mixer": "attention", "reach": 5}, "reach must be 0"),
        ({"mixer": "window_attention:window=8", "reach": 4}, "the mixer's own option sets it"),
        ({"short_convolution": 1}, r"short_convolution must be 0 \(none\) or at least 2"),
        ({"reach": 4}, "kernel_size must be odd"),
        ({"mixer": "window_attention:window=1"}, "window must be at least 2"),
        ({"mixer": "attention:out_width=8"}, "unknown option of mixer=attention: 'out_width'"),
    ],
)
def test_a_mixer_that_cannot_be_built_is_refused(options: dict[str, Any], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        config(**options)


@pytest.mark.parametrize(
    ("options", "field", "value"),
    [
        ({"mixer": "window_attention"}, "heads", 2),
        ({"mixer": "window_attention", "reach": 5}, "window", 5),
        ({"mixer": "depthwise_convolution:kernel_size=5:convolution=products"}, "convolution", "products"),
        ({"mixer": "gru:bidirectional=true"}, "bidirectional", True),
    ],
)
def test_a_mixer_is_named_with_options_of_its_own(options: dict[str, Any], field: str, value: Any) -> None:
    assert getattr(config(**options).mixing, field) == value


def test_the_reference_is_that_of_the_mixer() -> None:
    for mixer, option in (("depthwise_convolution:kernel_size=5", "convolution"), ("gru:bidirectional=true", "recurrence")):
        native, reference = config(mixer=mixer), config(mixer=mixer, formulation="reference")
        assert reference.mixing == dataclasses.replace(native.mixing, **{option: "products"})
    kept = config(mixer="gated_projection:kernel=fft:toeplitz=true", formulation="reference").mixing
    assert (kept.kernel, config(mixer="gated_projection:kernel=matmul", formulation="reference").mixing.kernel) == ("fft", "linear")
