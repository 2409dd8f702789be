"""One question per file: the docstring's first line is the question, the rest prediction and source; `ABLATION` (a `bench.spec.Ablation`) holds
the cost and the grids, in the words of the command line: what answers it on a CPU, on a GPU, and in a first look."""
