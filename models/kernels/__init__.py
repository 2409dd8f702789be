"""Device-specific operators that must equal formulations in plain torch.

Importing this package needs no compiler.
"""
