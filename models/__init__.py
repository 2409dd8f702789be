"""Architectures: one family per file, built from the token mixers in `models.mixers` and the parts in `models.layers`.

A family module holds a frozen `Config`, the `nn.Module`s, `build(config)` and `cost(config)`; nothing here knows `bench`.

A `Config` refuses, with a ValueError, an `Interface` that the family cannot read or answer. A model that cannot tell padding from data holds
`takes_padding` False and refuses `valid`.

A family that reads its tokens as a source and a target says `SOURCE_AND_TARGET = True` (`models.layers.halves`); a `Config` whose answers depend on
no later token has `causal` True; a family whose reference takes one token after another has `is_stepwise(config)`.
"""
