"""Token mixers, one per file.

A mixer module holds a frozen `Config` (at least `seq_len` and `width`, everything else with a default), `build(config)` returning a
module that maps `(batch, seq_len, width)` to `(batch, seq_len, width out)`, and `cost(config)`, its closed-form `Cost`.
"""
