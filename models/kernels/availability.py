"""What of Triton there is here. Importing this module needs none."""

from __future__ import annotations

import importlib.util
import os

HAS_TRITON = importlib.util.find_spec("triton") is not None
IS_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
"""Triton reads this when it is imported, and then runs kernels on CPU, slowly: for tests."""
