"""Compute matrix products by oneDNN on a CPU, where torch calls MKL.

`rewrite` replaces the products in a model's graph. Importing the package alone imports no torch.
"""
