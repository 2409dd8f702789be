"""Flags for Triton: installed, and interpreted. Importing this module needs no Triton."""

from __future__ import annotations

import importlib.util
import os

HAS_TRITON = importlib.util.find_spec("triton") is not None
IS_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
"""Whether kernels run on the CPU, slowly, for tests.

Triton reads the environment variable at import.
"""
