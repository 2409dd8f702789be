"""plotly.js, packed for a page that carries it: gzip in base64, a third of its size, which the browser itself unpacks."""

from __future__ import annotations

import base64
import gzip
from functools import cache

LEVEL = 9


@cache
def packed_plotly() -> str:
    """The same text for the same plotly: no time is stored."""
    # not at the top: only a page with charts pays for it
    from plotly.offline import get_plotlyjs

    return base64.b64encode(gzip.compress(get_plotlyjs().encode(), LEVEL, mtime=0)).decode("ascii")
