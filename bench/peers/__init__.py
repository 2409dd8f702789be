"""Other people's models: what `--models timm:NAME`, `torchvision:NAME` and `python:package.module:factory` name, and the peers of our families.

    names        what is asked for, from its text; imports no library
    families/    one file per prefix, as the families in `models`: `Config`, `build`, `cost`, `uses_attention`, and `spec_of` for their sizes
    counted      a cost that is counted, since a model without a closed form has no other
    timm, torchvision, g_mlp_pytorch, vit_pytorch, torch_nn
                 one file per library: its model of the same sizes as ours, built as shipped, by the name of the family that it is a peer of
    counterpart  which of our models computes the same, and how weights go over

A module named after `python:` may hold, beside its factories: `READS = "images"` where the models take images and nothing else, and `COUNTERPARTS`
(`bench.peers.counterpart`) by the names of the factories. A counterpart with a class token says so in its option `pool`.
"""
