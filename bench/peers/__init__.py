"""Other people's models: named in `--models`, or compared with our families.

`--models` accepts `timm:NAME`, `torchvision:NAME`, `python:package.module:factory` and `FILE.py:NAME`; Python also objects.

    own_code     the code of a user's file or object, in the run's folder
    own_import   imports a user's file, here or in a child
    names        parses these names; imports no library
    python, timm, torchvision
                 families of the prefixes, with the contract of a family in `models`: `Config`, `build`, `cost`, `uses_attention`; and `COUNTED`,
                 `spec_of`, which reads a model's sizes, and in the config `pool`, `unknown_sizes`, `counterpart` and what `counted.Outside` lists
    published    the config and spec of timm's and torchvision's published models
    counted      builds a model of any config and counts its cost, for lack of a closed form
    timm, torchvision, g_mlp_pytorch, vit_pytorch, torch_nn, transformers
                 one file per library: its models at the sizes of ours, built as shipped by a function named after the architecture
    counterpart  maps the parameters of a peer to those of our equal model, and copies weights

A module named after `python:` may hold, besides its factories, `READS = "images"` if its models accept only images, and `COUNTERPARTS`
(`bench.peers.counterpart`) by factory name. A counterpart with a class token says so in its option `pool`.
"""
