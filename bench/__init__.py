"""gmlp-bench: what token mixing costs and buys at matched size, as sequences grow."""

__version__ = "0.1.0"
