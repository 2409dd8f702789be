"""One question per file: the docstring's first line is the question, then `Prediction:` with its reasons, `Source:` and `Cost:`; `ABLATION` (a
`bench.spec.Ablation`) holds the grids in the words of the command line, with the arms that each compares, and the predictions as data: what answers
the question on a CPU, on a GPU, and in a first look."""
