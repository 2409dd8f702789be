"""Token mixers, one per file.

A mixer module holds a frozen `Config` (at least `seq_len` and `width`, everything else with a default), `build(config)` returning a
module with `forward(tokens, valid=None)` that maps `(batch, seq_len, width)` to `(batch, seq_len, width out)`, and `cost(config)`, its
closed-form `Cost`. `valid` is `(batch, seq_len)` bool, True where a token is data: no valid token's output depends on what a padded one
holds, be it NaN (`models.layers.padding`). None means that all are valid, and costs nothing more.
"""
