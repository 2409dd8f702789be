"""Ablations: one question per file.

The first line of a file's docstring is the question. Paragraphs beginning with `Prediction:`, `Source:` and `Cost:` follow.
The constant `ABLATION` (`bench.questions.Ablation`) holds the grids for a CPU, a GPU and a first look (--quick), written as flags
of the command line. It also holds the variants that each grid compares (`Arm`), and the predictions as data.
"""
