"""Shapes, reductions, precisions, and bad input, for the likelihood and for all classes."""

from __future__ import annotations

import pytest
import torch

from dubito import DubitoError
from dubito.integrals import Report, expected_log_softmax, expected_softmax_nll, predictive_variance

F64 = torch.float64


def make(*shape, seed=0):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=g, dtype=F64), torch.rand(*shape, generator=g, dtype=F64) + 0.1


@pytest.mark.rel
@pytest.mark.parametrize("method", ["quadrature", "qmc", "mc"])
def test_any_leading_shape(method):
    """Scorecard 11: the same numbers as a loop, size 0 and 1 included; the mean over nothing is 0."""
    mean, scale = make(2, 3, 4)
    y = torch.arange(6).reshape(2, 3) % 4
    bank = {"method": method, "samples": 16}
    whole = expected_softmax_nll(mean, scale, y, reduction="none", **bank)
    assert whole.shape == (2, 3)
    if method != "mc":  # draws belong to a place in the batch
        single = torch.stack(
            [
                expected_softmax_nll(m, s, t, **bank)
                for m, s, t in zip(mean.flatten(0, 1), scale.flatten(0, 1), y.flatten())
            ]
        )
        torch.testing.assert_close(whole.flatten(), single, rtol=1e-9, atol=1e-9)
    assert expected_log_softmax(mean, scale, **bank).shape == (2, 3, 4)
    empty = torch.zeros(0, 4, requires_grad=True)
    loss = expected_softmax_nll(empty, torch.ones(0, 4), torch.zeros(0, dtype=torch.int64), **bank)
    loss.backward()
    assert float(loss.detach()) == 0.0
    assert expected_log_softmax(torch.zeros(0, 4), torch.ones(0, 4), **bank).shape == (0, 4)


def test_reductions_and_ignored_labels_follow_cross_entropy():
    """With scale 0 it is cross-entropy, images and ignored pixels included."""
    mean, _ = make(2, 5, 3, 3)
    y = torch.randint(5, (2, 3, 3), generator=torch.Generator().manual_seed(1))
    y[0, 0] = -100
    for reduction in ("mean", "sum", "none"):
        a, b = mean.clone().requires_grad_(), mean.clone().requires_grad_()
        ours = expected_softmax_nll(a, torch.zeros_like(mean), y, dim=1, reduction=reduction)
        theirs = torch.nn.functional.cross_entropy(b, y, reduction=reduction)
        torch.testing.assert_close(ours, theirs, rtol=1e-7, atol=1e-7)
        grads = (torch.autograd.grad(x.sum(), i)[0] for x, i in ((ours, a), (theirs, b)))
        torch.testing.assert_close(*grads, rtol=1e-6, atol=1e-7)
    nothing = expected_softmax_nll(
        mean.requires_grad_(), torch.ones_like(mean), torch.full_like(y, -100), dim=1
    )
    assert float(nothing.detach()) == 0.0


@pytest.mark.rel
def test_float_targets_are_sums_of_classes():
    """Scorecard 7: linear in the target; integer = one-hot."""
    mean, scale = make(4, 3)
    y, g = torch.tensor([0, 1, 2, 0]), torch.Generator().manual_seed(5)
    hot = torch.nn.functional.one_hot(y, 3).double()
    other = torch.rand(4, 3, generator=g, dtype=F64)
    value = lambda t: expected_softmax_nll(mean, scale, t)  # noqa: E731
    torch.testing.assert_close(value(hot), value(y))
    torch.testing.assert_close(value(0.3 * hot + 2 * other), 0.3 * value(hot) + 2 * value(other))
    with_factors = expected_softmax_nll(mean, scale, hot, factors=torch.ones(4, 3, 1, dtype=F64), tol=1e-2)
    assert bool(torch.isfinite(with_factors))


@pytest.mark.rel
def test_permuted_classes_and_independent_examples():
    """Scorecard 7: permuting classes permutes the answer; one row does not touch another."""
    mean, scale = make(50, 6)
    y = torch.randint(6, (50,), generator=torch.Generator().manual_seed(2))
    order = torch.randperm(6, generator=torch.Generator().manual_seed(3))
    base = expected_softmax_nll(mean, scale, y, temperature=0.4, reduction="none")
    moved = expected_softmax_nll(
        mean[:, order], scale[:, order], order.argsort()[y], temperature=0.4, reduction="none"
    )
    torch.testing.assert_close(base, moved, rtol=0, atol=1e-8)
    half = expected_softmax_nll(mean[:25], scale[:25], y[:25], temperature=0.4, reduction="none")
    torch.testing.assert_close(base[:25], half, rtol=0, atol=1e-8)


@pytest.mark.rel
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_extreme_inputs_are_finite(dtype):
    """Scorecard 4 and 5: logits of +-1e4, ties, huge and tiny scales; half precision close to float64."""
    big = torch.tensor(
        [[0.0, 1e4, -1e4, 1e4], [1e4, 1e4, 1e4, 1e4], [-1e4, 0.0, 1.0, 2.0], [3.0, -3.0, 0.5, 0.0]]
    )
    for tau in (0.01, 1.0, 100.0):
        for width in (0.0, 1e-3, 1.0, 50.0):
            mean = big.to(dtype).requires_grad_()
            scale = torch.full((4, 4), width).to(dtype).requires_grad_()
            t = torch.tensor(tau, requires_grad=True)
            loss = expected_softmax_nll(mean, scale, torch.tensor([0, 1, 2, 3]), temperature=t)
            loss.backward()
            assert loss.dtype == (F64 if dtype == F64 else torch.float32)
            for x in (loss, mean.grad, scale.grad, t.grad):
                assert bool(torch.isfinite(x).all()), (dtype, tau, width)
    exact = expected_softmax_nll(big[3:].double(), torch.ones(1, 4), torch.tensor([0]))
    got = expected_softmax_nll(big[3:].to(dtype), torch.ones(1, 4), torch.tensor([0]))
    assert abs(float(exact) - float(got)) < 1e-4


def test_inputs_are_not_changed():
    mean, scale = make(3, 4)
    copies = mean.clone(), scale.clone()
    for method in ("quadrature", "qmc", "mc"):
        expected_softmax_nll(mean, scale, torch.tensor([0, 1, 2]), method=method)
        expected_log_softmax(mean, scale, method=method)
    assert torch.equal(mean, copies[0])
    assert torch.equal(scale, copies[1])


def test_report_says_which_rows_needed_more():
    mean = torch.tensor([[0.0, 1.0, 0.3], [0.0, 1.0, 0.3]], dtype=F64)
    scale = torch.tensor([[1.0, 1.0, 1.0], [50.0, 0.001, 1.0]], dtype=F64)
    reports: list[Report] = []
    expected_softmax_nll(mean, scale, torch.tensor([0, 0]), temperature=0.01, report=reports.append)
    report = reports[0]
    assert report.method == "quadrature"
    assert report.reached
    assert report.error.shape == (2,)
    assert "1 rows by the thorough rule" in str(report)
    expected_softmax_nll(mean, scale, torch.tensor([0, 0]), method="qmc", samples=64, report=reports.append)
    assert reports[1].points == 64
    assert float(reports[1].error.max()) > 0


@pytest.mark.rel
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mean": torch.zeros(2, 3, dtype=torch.int64)}, "mean must be a floating tensor"),
        ({"mean": torch.full((2, 3), float("nan"))}, r"mean is not finite at mean\[0, 0\]"),
        ({"scale": torch.full((2, 3), -1.0)}, r"negative scale at scale\[0, 0\]"),
        ({"scale": torch.ones(2, 4)}, "do not go together"),
        ({"temperature": -1.0}, "negative temperature at temperature: expected temperature >= 0"),
        ({"temperature": torch.ones(2, 3)}, "do not go together"),
        ({"temperature": float("inf")}, "temperature is not finite"),
        ({"factors": torch.ones(2, 4, 1)}, "factors do not match mean"),
        ({"target": torch.tensor([0, 3])}, r"label out of range at target\[1\]"),
        ({"target": torch.tensor([0])}, "target does not match"),
        ({"target": torch.ones(2, 4)}, "one weight per class"),
        ({"method": "quadratur"}, "did you mean 'quadrature'"),
        ({"noise": "cauchy"}, "unknown noise"),
        ({"noise": "gumbel", "method": "quadrature"}, "quadrature is for normal noise"),
        ({"reduction": "median"}, "unknown reduction"),
        ({"dim": 3}, "no such class axis"),
    ],
)
def test_bad_input(change, message):
    """Scorecard 13: refused before any work, in one sentence."""
    given = {"mean": torch.zeros(2, 3), "scale": torch.ones(2, 3), "target": torch.tensor([0, 1]), **change}
    with pytest.raises(DubitoError, match=message):
        expected_softmax_nll(given.pop("mean"), given.pop("scale"), given.pop("target"), **given)


def test_bad_sampling():
    for call in (
        lambda: expected_log_softmax(torch.zeros(2), torch.ones(2), method="mc", samples=0),
        lambda: predictive_variance(torch.zeros(2), torch.ones(2), method="sobol"),
        lambda: expected_log_softmax(torch.zeros(2), torch.ones(2), method="exact"),
    ):
        with pytest.raises(DubitoError):
            call()


def test_what_classes_share_costs_no_digits():
    """A shift of all means, and one of all factors, changes neither likelihood nor probabilities in float32."""
    g = torch.Generator().manual_seed(2)
    mean = (torch.randn(4, 3, generator=g) * 256).round() / 256  # exact beside 8,192
    factors = (torch.randn(4, 3, 1, generator=g) * 256).round() / 256
    scale, target = 0.1 + 0.3 * torch.rand(4, 3, generator=g), torch.tensor([0, 1, 2, 0])
    found = []
    for shift in (0.0, 8192.0):
        given = {"factors": factors + shift / 8, "temperature": 0.05}
        nll = expected_softmax_nll(mean + shift, scale, target, reduction="none", **given)
        found.append((nll, expected_log_softmax(mean + shift, scale, **given).exp()))
    for plain, shifted in zip(*found):
        torch.testing.assert_close(plain, shifted, rtol=0, atol=2e-5)
