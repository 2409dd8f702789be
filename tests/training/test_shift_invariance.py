"""How shift-invariant a matrix is: exact matrices, noise, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from bench.training.weight_maps import Grid, noise_share, shift_invariance

SQUARE, RECTANGLE = (4, 4), (2, 8)
NUM_TOKENS = 16


def drawn(*shape: int, seed: int = 0) -> NDArray[np.float64]:
    return np.random.default_rng(seed).normal(size=shape)


def toeplitz(num_tokens: int) -> NDArray[np.float64]:
    token = np.arange(num_tokens)
    matrix: NDArray[np.float64] = drawn(2 * num_tokens - 1)[token[:, None] - token + num_tokens - 1]
    return matrix


def convolution(grid: Grid) -> NDArray[np.float64]:
    """A matrix whose entries depend only on the step (down, across) between tokens of a grid."""
    rows, columns = grid
    row, column = np.divmod(np.arange(rows * columns), columns)
    down, across = row[:, None] - row + rows - 1, column[:, None] - column + columns - 1
    matrix: NDArray[np.float64] = drawn(2 * rows - 1, 2 * columns - 1)[down, across]
    return matrix


def test_a_toeplitz_matrix_is_shift_invariant_whatever_its_mean_and_scale() -> None:
    matrix = toeplitz(NUM_TOKENS)
    assert shift_invariance(matrix) == pytest.approx(1.0)
    assert shift_invariance(1e-6 * matrix + 3e-6) == pytest.approx(1.0)
    matrix[3, 5] += 1.0
    assert (shift_invariance(matrix) or 1.0) < 0.999  # one changed entry is seen


@pytest.mark.parametrize("grid", [SQUARE, RECTANGLE])
def test_a_two_dimensional_convolution_is_one_on_its_grid_and_less_along_the_line(grid: Grid) -> None:
    matrix = convolution(grid)
    along_the_line = shift_invariance(matrix)
    assert shift_invariance(matrix, grid=grid) == pytest.approx(1.0)
    assert along_the_line is not None
    assert along_the_line < 0.9


def test_a_small_matrix_worked_out_by_hand() -> None:
    """[[1, 2], [0, 3]]: mean 1.5; centred -0.5, 0.5, -1.5, 1.5, norm 5; the diagonal's mean is 0.5, so 2 x 0.25 + 0.25 + 2.25 = 3 stay."""
    assert shift_invariance(np.array([[1.0, 2.0], [0.0, 3.0]])) == pytest.approx(3.0 / 5.0)


@pytest.mark.parametrize(("grid", "stated"), [(None, 2 / 17), (SQUARE, 16 / 85), (RECTANGLE, 44 / 255)])
@pytest.mark.parametrize("draw", ["normal", "exponential"])
def test_noise_has_the_stated_share(draw: str, grid: Grid | None, stated: float) -> None:
    """The mean of 400 draws, within four of its standard errors. On two rows of eight there are 3 x 15 offsets."""
    generator = np.random.default_rng(1)
    matrices = getattr(generator, draw)(size=(400, NUM_TOKENS, NUM_TOKENS))
    shares = np.array([shift_invariance(matrix, grid=grid) for matrix in matrices])
    error = shares.std(ddof=1) / np.sqrt(len(shares))
    assert abs(shares.mean() - noise_share(NUM_TOKENS, grid=grid)) < 4 * error
    assert 4 * error < 0.02
    assert noise_share(NUM_TOKENS, grid=grid) == pytest.approx(stated)


@pytest.mark.parametrize("value", [0.0, 1 / 3])
def test_a_constant_matrix_has_no_answer(value: float) -> None:
    assert shift_invariance(np.full((5, 5), value)) is None


def test_what_is_no_square_matrix_or_fills_no_grid_is_refused() -> None:
    with pytest.raises(ValueError, match=r"a square matrix, not one of shape \(3, 4\)"):
        shift_invariance(drawn(3, 4))
    with pytest.raises(ValueError, match="9 tokens do not fill a grid of 4 x 4"):
        shift_invariance(drawn(9, 9), grid=SQUARE)
    with pytest.raises(ValueError, match="at least 2 tokens, not 1"):
        noise_share(1)
