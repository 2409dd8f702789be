"""Model families, one per file, built from `models.mixers` and `models.layers`.

Nothing here imports `bench`. A family module defines:

- `Config`: a frozen dataclass with `shape`, `interface` and options. It raises ValueError for an `Interface` that the family does not
    support.
- `build(config)`: the model, with `forward(data, valid=None)`. Its modules are `embedding`, `blocks` and `head`, by which parameters are booked
    and dropout is set. Linear layers start as `models.layers.initialise` has them. A model that cannot distinguish padding from data sets
    `takes_padding` to False and raises ValueError if `valid` is given.
- `cost(config)`: the closed-form `Cost`.
- `uses_attention(config)`: True if the model calls `scaled_dot_product_attention`.
- `NOMINAL_FFN_RATIO`: the usual ffn_width, in multiples of `width`.
- `USES_HEADS`: True if `Shape.heads` matters.

Optional attributes:

- `REFERENCE_OPTIONS`: options of an equivalent formulation that FLOP counters see completely.
- `HALVES_FFN = True`: the model multiplies one half of ffn_width by the other, so each is to be a width that hardware likes.
- `VARIANTS`: published sizes by name: shape, interface, options.
- `SOURCE_AND_TARGET = True`: the family reads its tokens as a source and a target (`models.layers.halves`).
- `Config.causal`: True if no answer depends on a later token.
- `REFERENCE_KEEPS`: values of those options that FLOP counters see completely, and that cost something else. The reference keeps them
    (`models.layers.options.reference_config`).
- `is_stepwise(config)`: True if the reference takes one token after another.
"""
