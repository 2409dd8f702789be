"""What repeated processes tell that one process cannot: spreads, widths and how often a thing must be repeated. Pure functions; no torch.

All widths are on the log scale: a half-width of 0.01 is an interval of about plus and minus 1 %.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from bench.intervals import LEVEL, round_mean

MAX_PROCESSES = 10_000


def half_width(values: Sequence[float], level: float = LEVEL) -> float:
    """Half the width of the t-interval of the mean of logs. Raises ValueError for fewer than two values."""
    return _t_quantile(level, len(values) - 1) * spread(values) / math.sqrt(len(values))


def spread(values: Sequence[float]) -> float:
    """Standard deviation of the logs, with n - 1. Raises ValueError for fewer than two values, or one that is not positive."""
    if len(values) < 2:
        raise ValueError(f"a spread needs two values or more, not {len(values)}")
    return statistics.stdev(math.log(v) for v in values)


def spread_over_rounds(logs: Sequence[float]) -> float:
    """What bench's interval over rounds takes for the standard deviation of one round: its standard error times the root of their number."""
    found = round_mean(logs)
    if found is None:
        raise ValueError(f"a spread needs two values or more, not {len(logs)}")
    return found.error * math.sqrt(found.num)


def pooled(spreads: Sequence[float]) -> float:
    """Root mean square, for spreads of equally many values each."""
    return math.sqrt(statistics.fmean(s * s for s in spreads))


def spread_interval(found: float, degrees_of_freedom: int, level: float = LEVEL) -> tuple[float, float]:
    """Chi-square interval of a standard deviation of normal values."""
    from scipy import stats

    low, high = (float(stats.chi2.ppf(share, degrees_of_freedom)) for share in (0.5 - level / 2, 0.5 + level / 2))
    return found * math.sqrt(degrees_of_freedom / high), found * math.sqrt(degrees_of_freedom / low)


def processes_needed(found: float, wanted: float, level: float = LEVEL) -> int | None:
    """The fewest processes k >= 2 with t(k - 1) s / sqrt(k) <= `wanted` (but for rounding), s between processes; None above `MAX_PROCESSES`."""
    import numpy as np
    from scipy import stats

    numbers = np.arange(2, MAX_PROCESSES + 1)
    enough = stats.t.ppf(0.5 + level / 2, numbers - 1) * found / np.sqrt(numbers) <= wanted * (1 + 1e-9)
    return int(numbers[enough.argmax()]) if enough.any() else None


def single_process_s(start_s: float, timed_s: float, own: float, wanted: float) -> float:
    """How long one process would have to run if what it says of itself (half-width `own` after `timed_s`) were all there is, narrowing by the
    root of the time. It is not: this is the naive figure."""
    return start_s + timed_s * (own / wanted) ** 2


def relative_width(half: float) -> float:
    """High over low, less one."""
    return math.expm1(2 * half)


def expected_to_hold(num: int, share: float, level: float = LEVEL) -> tuple[int, int]:
    """Of `num` intervals that each hold the truth with probability `share`, how many may be expected to: the central binomial band."""
    from scipy import stats

    low, high = stats.binom.interval(level, num, share)
    return int(low), int(high)


def _t_quantile(level: float, degrees_of_freedom: int) -> float:
    from scipy import stats

    return float(stats.t.ppf(0.5 + level / 2, degrees_of_freedom))
