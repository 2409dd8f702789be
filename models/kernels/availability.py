"""Flags for Triton: installed, and interpreted. Importing this module needs no Triton."""

from __future__ import annotations

import importlib.util
import os

HAS_TRITON = importlib.util.find_spec("triton") is not None
IS_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
"""Triton reads this variable at import.

If it is 1, kernels run slowly on CPU, for tests.
"""
