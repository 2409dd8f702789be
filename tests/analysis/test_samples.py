from __future__ import annotations

import numpy as np
import pandas
import pytest

from bench.analysis.series import complete_rounds, without_twins
from tests.analysis.planted import frame

SAMPLES = frame(np.array([[1.0, 2.0, 4.0], [3.0, 5.0, 9.0]]), (17, 256, 257))


def test_rounds_that_lack_a_length_are_dropped_and_counted() -> None:
    whole = complete_rounds(SAMPLES)
    assert (whole.lengths, whole.num_rounds, whole.num_dropped) == ((17, 256, 257), 2, 0)
    partial = complete_rounds(SAMPLES.iloc[:-1])
    assert (partial.values.tolist(), partial.num_dropped) == ([[1.0, 2.0, 4.0]], 1)


def test_a_round_is_complete_without_the_lengths_that_do_not_enter() -> None:
    assert complete_rounds(SAMPLES.drop(index=1), lengths=(17, 257)).values.tolist() == [[1.0, 4.0], [3.0, 9.0]]


def test_the_order_of_the_rows_does_not_matter() -> None:
    assert complete_rounds(SAMPLES.iloc[::-1]).values.tolist() == complete_rounds(SAMPLES).values.tolist()


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_a_value_that_is_no_cost_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="positive and finite"):
        complete_rounds(SAMPLES.assign(value=value))


def test_two_values_of_one_length_and_round_are_refused() -> None:
    with pytest.raises(ValueError, match="is it one series"):
        complete_rounds(pandas.concat([SAMPLES, SAMPLES.iloc[:1]]))


def test_exact_samples_have_one_round() -> None:
    assert complete_rounds(SAMPLES[SAMPLES["round"] == 0], exact=True).num_rounds == 1
    with pytest.raises(ValueError, match="one round, not 2"):
        complete_rounds(SAMPLES, exact=True)


def test_of_twins_the_larger_stays() -> None:
    assert without_twins((257, 17, 256, 16, 1025)) == (16, 17, 257, 1025)
    assert without_twins((100, 104, 105)) == (100, 105)
