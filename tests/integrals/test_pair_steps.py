"""Single steps of two classes: ties, the stated error, gradients of the larger class, factors that are taken in."""

from __future__ import annotations

import math

import pytest
import torch

from dubito.integrals import binary, expected, expected_softmax_nll
from dubito.integrals.border import Gaussian
from dubito.integrals.two_classes import (
    ERROR,
    POINTS,
    TwoClasses,
    _error,
    joined,
    two_classes,
    two_log_likelihood,
    weights,
)

F64 = torch.float64


def row(*values: float) -> torch.Tensor:
    return torch.tensor([values], dtype=F64)


@pytest.mark.parametrize("means", [(0.3, 0.3), (0.2, 0.9), (0.9, 0.2), (0.0, 4.0)])
@pytest.mark.parametrize("target", [0, 1])
def test_gradients_of_either_class_by_differences(means, target):
    """At equal means too, where either class is the smaller one."""
    given = [row(*means), row(0.4, 0.7), row(0.25)]
    y = torch.tensor([target])
    found = two_log_likelihood(*given, y)
    assert found.settled.tolist() == [True]
    for place, slopes in enumerate((found.d_mean, found.d_scale, found.d_temperature)):
        for k in range(slopes.shape[-1]):
            step = torch.zeros_like(given[place])
            step[0, k] = 1e-5
            ends = [
                two_log_likelihood(
                    *(x + sign * step if i == place else x for i, x in enumerate(given)), y
                ).log_p
                for sign in (1, -1)
            ]
            assert float(slopes[0, k]) == pytest.approx(float(ends[0] - ends[1]) / 2e-5, rel=1e-6, abs=1e-9)


def test_both_classes_at_equal_means_have_opposite_gradients():
    mean = row(0.3, 0.3).requires_grad_()
    log_p = TwoClasses.apply(mean, row(0.4, 0.7), row(0.25))
    torch.testing.assert_close(log_p.detach().exp(), row(0.5, 0.5))
    (first,) = torch.autograd.grad(log_p[0, 0], mean, retain_graph=True)
    (second,) = torch.autograd.grad(log_p[0, 1], mean)
    torch.testing.assert_close(first, -second)
    assert first[0, 0] > 0


def test_the_stated_error_is_rounding_and_a_little():
    log_p = torch.tensor([-10.0, 0.0], dtype=F64)
    half = torch.finfo(torch.float32).eps / 2
    assert _error(log_p, torch.float32).tolist() == pytest.approx([10 * half + ERROR, ERROR], rel=1e-12)
    assert _error(log_p, F64).tolist() == pytest.approx([11 * ERROR, ERROR], rel=1e-12)


def test_the_error_of_the_probabilities_is_that_of_the_larger():
    log_p, error = two_classes(row(0.0, 3.0), row(0.5, 0.5), row(0.5))
    p = log_p.exp()[0]
    assert float(p[1]) > 0.9
    assert float(error[0]) == pytest.approx(float((p * _error(log_p[0], F64)).max()), rel=1e-12)
    assert float(error[0]) > 2 * float(p[0] * _error(log_p[0], F64)[0])


def test_the_error_within_factors_is_that_of_the_worst_class_or_of_the_sum():
    g = torch.Generator().manual_seed(3)
    mean, scale = torch.randn(2, 3, generator=g, dtype=F64), torch.rand(2, 3, generator=g, dtype=F64)
    factors = torch.randn(2, 3, 2, generator=g, dtype=F64)
    latent = Gaussian(mean, scale, factors, torch.full((2, 1), 0.5, dtype=F64))
    tol = 1e-4
    log_p, error, _ = expected._within_factors(latent, tol, 0)
    rows, target = expected.every_class(expected.levelled(latent))
    each, off, _ = expected.factor_log_likelihood(rows, target, tol, 0, least=math.log(tol / 100))
    torch.testing.assert_close(log_p, each, rtol=0, atol=0)
    for row_error, p, stated in zip(error, each.exp(), off):
        worst = max(float(a * b) for a, b in zip(p, stated))
        assert float(row_error) == pytest.approx(max(worst, abs(float(p.sum()) - 1)), rel=1e-12)


def test_twenty_terms_on_either_side_and_the_first():
    assert POINTS == 41


@pytest.mark.parametrize("dims", [(0, 0), (1, None), (1, 0)])
def test_one_class_against_another_is_mapped_along_any_axis(dims):
    g = torch.Generator().manual_seed(1)
    mean, scale = (
        torch.randn(3, dtype=F64, generator=g) if d is None else torch.randn(3, 3, dtype=F64, generator=g)
        for d in dims
    )
    mean.requires_grad_()

    def log_p(m, s):
        return binary.expected_log_sigmoid(m, s.abs(), temperature=0.4)

    found = torch.vmap(log_p, dims)(mean, scale)
    rows = [
        log_p(*(x if d is None else x.select(d, i) for x, d in zip((mean, scale), dims))) for i in range(3)
    ]
    torch.testing.assert_close(found, torch.stack(rows))
    slopes = [torch.autograd.grad(x.sum(), mean, retain_graph=True)[0] for x in (found, torch.stack(rows))]
    torch.testing.assert_close(*slopes)


def test_derivatives_have_no_derivatives():
    given = [row(0.3).requires_grad_(), row(0.5).requires_grad_(), row(0.2)]
    log_p, *slopes = binary._LogExpected.apply(*given)
    assert log_p.requires_grad
    assert [x.requires_grad for x in slopes] == [False] * 3


def test_factors_of_two_classes_are_taken_in_and_those_of_three_are_not():
    g = torch.Generator().manual_seed(0)
    for classes in (2, 3):
        latent = Gaussian(
            torch.zeros(1, classes),
            torch.ones(1, classes),
            torch.randn(1, classes, 4, generator=g),
            torch.ones(1, 1),
        )
        assert (joined(latent).factors is None) == (classes == 2)


@pytest.mark.parametrize("classes", [2, 3])
def test_an_infinite_gradient_of_a_row_that_has_lost_is_none(classes):
    mean = torch.zeros(2, classes)
    mean[0, 0] = 5.0
    mean.requires_grad_()
    scale = torch.ones(2, classes)
    scale[0] = 0.0
    y = torch.tensor([1, 1])
    loss = expected_softmax_nll(mean, scale, y, temperature=torch.tensor([[0.0], [1.0]]), reduction="none")
    assert loss[0] == torch.inf
    loss.backward(torch.tensor([torch.inf, 1.0]))
    assert mean.grad[0].tolist() == [0.0] * classes
    assert float(mean.grad[1].abs().sum()) > 0.1


def test_weights_sum_alternating_series_of_moments():
    """1 - 1/2 + 1/3 - ... = log 2, and 1 - 1/3 + 1/5 - ... = pi / 4."""
    w = weights()
    assert sum(x / (k + 1) for k, x in enumerate(w)) == pytest.approx(math.log(2), rel=1e-14)
    assert sum(x / (2 * k + 1) for k, x in enumerate(w)) == pytest.approx(math.pi / 4, rel=1e-14)
    assert len(w) == 20
