"""Token mixers, one per file.

In these modules, n is the sequence length, `seq_len`.

A mixer module defines:

- `Config`: a frozen dataclass with `seq_len`, `width` and other fields, which need defaults.
- `build(config)`: a module with `forward(tokens, valid=None)`, `(batch, seq_len, width)` -> `(batch, seq_len, output width)`. Its linear layers
    start as `models.layers.initialise` has them.
- `cost(config)`: the closed-form `Cost`. A mixer that calls `scaled_dot_product_attention` gives its scores as `recompute_macs`. One that is, or
    can be, causal gives its `state` (tests/models/test_state.py decodes it token by token).

`valid` is `(batch, seq_len)` bool, True where a token is data. The output at a valid token must not depend on padded tokens, even if they
hold NaN (`models.layers.padding`). None means that all tokens are valid and adds no work.

Optional attributes of the module or of `Config`:

- `REACH`: the `Config` field with the number of tokens that each token reads, if that number is fixed.
- `Config.causal`: True if no token reads a later one.
- `KEEPS_WIDTH = False`: the output width differs from the input width.
- `REFERENCE_OPTIONS`: options of an equivalent formulation in matrix products, for mixers with operators that FLOP counters miss. It has
    the same answers and the same cost.
- `REFERENCE_KEEPS`: values of those options that FLOP counters see completely, and that cost something else. The reference keeps them.
- `STEPWISE = True`: that reference takes one token after another. It is too slow to count at large n, so it is counted at small n, which
    determines the polynomial.
- `token_weights(tokens)`, a method of the built module: `(batch, seq_len, width)` -> `(heads, seq_len, seq_len)`, how much of token j
    reaches token i. `TOKEN_ORDER`: what it sorts the tokens by, if it does.
- `NOT_DECAYED`, of any class inside: the names of its parameters of two or more axes that weight decay leaves alone.

`models.metaformer` builds a family from every mixer that keeps the width. The fields of `Config` (strings, integers and booleans) become
options of the mixer, except `seq_len`, `width`, `heads` and `out_width`, which the block sets.
"""
