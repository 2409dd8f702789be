"""Architectures: one family per file, built from the token mixers in `models.mixers` and the parts in `models.layers`.

A family module holds a frozen `Config`, the `nn.Module`s, `build(config)` and `cost(config)`; nothing here knows `bench`.
"""
