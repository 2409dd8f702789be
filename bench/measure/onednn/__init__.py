"""Matrix products by oneDNN on a CPU, where torch would call MKL, and the rewriting of a model's graph onto them. Imports no torch by itself."""
