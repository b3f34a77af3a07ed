"""Projection of free matrices to stochastic ones, against a quadratic programme and the definition."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from dubito.channels import project_rows
from dubito.errors import DubitoError


def nearest_by_search(w: np.ndarray) -> np.ndarray:
    """The closest distribution, by a general solver."""
    start = np.full(len(w), 1 / len(w))
    sums = {"type": "eq", "fun": lambda p: p.sum() - 1}
    done = minimize(
        lambda p: ((p - w) ** 2).sum(), start, bounds=[(0, 1)] * len(w), constraints=sums, tol=1e-14
    )
    return done.x


@pytest.mark.parametrize("classes", [1, 2, 3, 7])
def test_euclidean_is_the_nearest_distribution(classes):
    w = torch.randn(6, classes, generator=torch.Generator().manual_seed(classes), dtype=torch.float64)
    found = project_rows(w)
    expected = np.stack([nearest_by_search(row) for row in w.numpy()])
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-6)
    torch.testing.assert_close(found.sum(-1), torch.ones(6, dtype=torch.float64))


def test_the_two_ways_differ_and_leave_distributions_alone():
    w = torch.tensor([[0.9, 0.4, -0.2]], dtype=torch.float64)
    torch.testing.assert_close(project_rows(w), torch.tensor([[0.75, 0.25, 0.0]], dtype=torch.float64))
    clipped = torch.tensor([[9 / 13, 4 / 13, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(project_rows(w, how="clip"), clipped)
    p = torch.tensor([[0.2, 0.5, 0.3], [1.0, 0.0, 0.0]], dtype=torch.float64)
    for how in ("euclidean", "clip"):
        torch.testing.assert_close(project_rows(p, how=how), p)


def test_columns_ties_and_rows_without_a_positive_entry():
    w = torch.tensor([[3.0, -1.0], [3.0, -2.0]], dtype=torch.float64)
    torch.testing.assert_close(project_rows(w, dim=-2), project_rows(w.T).T)
    torch.testing.assert_close(project_rows(w, dim=0)[:, 0], torch.full((2,), 0.5, dtype=torch.float64))
    nothing = torch.tensor([[-1.0, -2.0]])
    torch.testing.assert_close(project_rows(nothing, how="clip"), torch.full((1, 2), 0.5))
    torch.testing.assert_close(project_rows(nothing), torch.tensor([[1.0, 0.0]]))


def test_a_large_shift_loses_no_digits():
    w = torch.tensor([[0.5, 0.25, -1.0]])
    torch.testing.assert_close(project_rows(w + 1024.0), project_rows(w))
    far = torch.tensor([[0.5, 0.25, -1e8]])
    torch.testing.assert_close(project_rows(far), torch.tensor([[0.625, 0.375, 0.0]]))


def test_what_is_refused():
    with pytest.raises(DubitoError, match="unknown projection"):
        project_rows(torch.eye(2), how="clipp")
    with pytest.raises(DubitoError, match="not finite"):
        project_rows(torch.tensor([[float("nan"), 1.0]]))
    with pytest.raises(DubitoError, match="no such axis"):
        project_rows(torch.eye(2), dim=2)
