"""Token mixers, one per file.

A mixer module holds a frozen `Config` (at least `seq_len` and `width`, everything else with a default), `build(config)` returning a
module with `forward(tokens, valid=None)` that maps `(batch, seq_len, width)` to `(batch, seq_len, width out)`, and `cost(config)`, its
closed-form `Cost`. `valid` is `(batch, seq_len)` bool, True where a token is data: no valid token's output depends on what a padded one
holds, be it NaN (`models.layers.padding`). None means that all are valid, and costs nothing more.

A mixer that calls `scaled_dot_product_attention` gives its scores as `recompute_macs`. One in which a token reads a fixed number of others may
name the field of `Config` that holds it in `REACH`; one in which no token reads a later one has `causal` true in its `Config`; one that
answers with another width than it reads says `KEEPS_WIDTH = False`. `models.metaformer` builds a family from every mixer that keeps the width:
the fields of `Config` are options of the mixer there (strings, whole numbers and booleans), but for `seq_len`, `width`, `heads` and
`out_width`, which are the block's own.

`REFERENCE_OPTIONS`, where the FLOP counters do not see the whole of what runs, are the options of a formulation of equal answers and equal cost
that they do see, in matrix products. `STEPWISE = True`: that one takes the tokens one after another. It is too slow to count where n is large,
and is counted at small lengths, which fix the polynomial in n.

The module may have `token_weights(tokens)`, `(batch, seq_len, width)` -> `(heads, seq_len, seq_len)`: how much of token j reaches token i.
"""
