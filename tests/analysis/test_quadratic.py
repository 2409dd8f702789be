from __future__ import annotations

import numpy as np
import pytest

from bench.analysis.claims import REFUTED, SUPPORTED, UNDECIDED
from bench.analysis.scaling import QuadraticAnswer, answer_quadratic, decompose
from tests.analysis.planted import LENGTHS, curve, frame, noisy


def answered(c: float, noise: float = 0.01) -> QuadraticAnswer:
    return answer_quadratic(decompose(frame(noisy(np.random.default_rng(14), curve(100.0, 1.0, c), noise=noise))))


@pytest.mark.parametrize(("share", "answer"), [(0.5, SUPPORTED), (0.03, REFUTED), (0.0, REFUTED), (0.098, UNDECIDED)])
def test_the_answer_follows_the_share_at_the_longest_length(share: float, answer: str) -> None:
    longest = LENGTHS[-1]
    found = answered(share / (1 - share) * (100.0 + longest) / longest**2)
    assert (found.answer, found.longest) == (answer, longest)
    assert found.share is not None
    assert found.share.low <= share <= found.share.high


def test_noise_that_hides_the_term_is_undecided() -> None:
    found = answered(0.2 / 4097, noise=0.3)
    assert found.answer == UNDECIDED
    assert "does not differ significantly from zero" in found.reason


def test_without_a_fit_it_is_undecided_for_the_reason_of_the_fit() -> None:
    short = decompose(frame(curve(1.0, 1.0, 1.0, (17, 65, 257))[None, :], (17, 65, 257)), exact=True)
    found = answer_quadratic(short)
    assert (found.answer, found.reason, found.share) == (UNDECIDED, short.refused, None)


def test_exact_costs_need_no_interval() -> None:
    assert answer_quadratic(decompose(frame(curve(1.0, 1.0, 1.0)[None, :]), exact=True)).answer == SUPPORTED
    assert answer_quadratic(decompose(frame(curve(1.0, 1.0, 0.0)[None, :]), exact=True)).answer == REFUTED
