"""The distance between confusion matrices in both normalisations."""

from __future__ import annotations

import math

import pytest
import torch

from dubito import metrics, noise
from dubito.errors import DubitoError


def drawn(seed):
    return torch.rand(3, 4, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).softmax(-1)


@pytest.mark.rel
@pytest.mark.paper("tanno2019 sec. 3.2")
def test_confusion_error_equals_its_sums():
    """Scorecard 1."""
    A, B = drawn(0), drawn(1)
    squares = sum(float(A[r, i, j] - B[r, i, j]) ** 2 for r in range(3) for i in range(4) for j in range(4))
    assert metrics.confusion_error(A, B) == pytest.approx(squares / (3 * 4), rel=1e-12)
    assert metrics.confusion_error(A, B, per="entry") == pytest.approx(squares / (3 * 16), rel=1e-12)
    assert metrics.confusion_error(A.numpy(), B.float()) == pytest.approx(squares / 12, rel=1e-5)
    assert metrics.confusion_error(A[0], B[0]) == metrics.confusion_error(A[:1], B[:1])
    assert metrics.confusion_error(A, A) == 0.0


def test_the_largest_error_is_two():
    assert metrics.confusion_error(torch.eye(3), torch.eye(3).roll(1, 1)) == pytest.approx(2.0)


@pytest.mark.paper("tanno2019 table 1")
def test_the_printed_levels_fit_the_mean_over_entries_only():
    """Identity for annotators who are right 45 % of the time costs at least 0.30 per row, 0.03 per entry."""
    A = noise.cifar10_annotators()
    identity = torch.eye(10).expand(4, 10, 10)
    assert metrics.confusion_error(A, identity) > 0.55**2
    assert 0.03 < metrics.confusion_error(A, identity, per="entry") < 0.1


@pytest.mark.rel
@pytest.mark.parametrize(
    ("true", "estimated", "per", "word"),
    [
        (torch.eye(3), torch.eye(4), "row", "shape"),
        (torch.ones(3, 4), torch.ones(3, 4), "row", "square"),
        (torch.ones(3), torch.ones(3), "row", "square"),
        (torch.empty(0, 3, 3), torch.empty(0, 3, 3), "row", "square"),
        (torch.eye(3), torch.eye(3) * math.nan, "row", "finite"),
        (torch.eye(3), torch.eye(3), "all", "per"),
    ],
)
def test_bad_input_is_refused(true, estimated, per, word):
    """Scorecard 15."""
    with pytest.raises(DubitoError, match=word):
        metrics.confusion_error(true, estimated, per=per)
