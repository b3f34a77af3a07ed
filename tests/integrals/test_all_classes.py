"""All classes at once: normalised, within the tolerance asked for, consistent with the likelihood."""

from __future__ import annotations

import pytest
import softmax_rows as families
import torch

from dubito import DubitoError
from dubito.integrals import expected_log_softmax, expected_softmax_nll

F64 = torch.float64


def every_likelihood(mean, scale, tau, **options):
    """log p of each class in turn, (rows, classes)."""
    options = {"temperature": tau, "reduction": "none", **options}
    columns = [
        -expected_softmax_nll(mean, scale, torch.full(mean.shape[:-1], k), **options)
        for k in range(mean.shape[-1])
    ]
    return torch.stack(columns, -1)


@pytest.mark.rel
@pytest.mark.paper("collier2020 eq. 6")
@pytest.mark.parametrize("tol", [1e-4, 1e-8])
@pytest.mark.parametrize(
    ("kind", "tau"),
    [
        ("ordinary", 0.0),
        ("ordinary", 0.05),
        ("ordinary", 5.0),
        ("lognormal", 0.02),
        ("lognormal", 0.3),
        ("extreme", 0.05),
    ],
)
def test_within_the_tolerance(kind, tau, tol, scorecard):
    """Scorecard 9: every class is within the requested absolute tolerance, and the report says so."""
    mean, scale, temperature, _ = families.rows(kind, tau, 6, 12)
    reports = []
    got = expected_log_softmax(mean, scale, temperature=temperature, tol=tol, report=reports.append)
    assert reports[0].method == "quadrature"
    assert reports[0].reached
    off = (got.exp() - every_likelihood(mean, scale, temperature, tol=1e-11).exp()).abs().amax(-1)
    scorecard(9, error_over_tolerance=float(off.max()) / tol)
    assert float(off.max()) < tol
    assert float(off.max()) <= float(reports[0].error.max()) + 1e-10
    torch.testing.assert_close(got.exp().sum(-1), torch.ones(12, dtype=F64), rtol=0, atol=1e-12)


@pytest.mark.rel
def test_sums_to_one_in_float32(scorecard):
    """Scorecard 6: links sum to one."""
    mean, scale, tau, _ = families.rows("lognormal", 0.3, 20, 30)
    got = expected_log_softmax(mean.float(), scale.float(), temperature=tau.float())
    deviation = float((got.exp().sum(-1) - 1).abs().max())
    scorecard(6, deviation=deviation)
    assert deviation < 1e-5


def test_small_probabilities_keep_their_size():
    """The promise is absolute, but logarithms down to -50 are still about right."""
    mean, scale, tau, _ = families.rows("far", 1.0, 5, 30)
    got, wanted = expected_log_softmax(mean, scale, temperature=tau), every_likelihood(mean, scale, tau)
    small = (wanted > -50) & (wanted < -10)
    assert int(small.sum()) > 20
    assert float((got - wanted)[small].abs().max()) < 0.05


@pytest.mark.rel
def test_gradcheck():
    """Scorecard 2: the hand-written backward pass."""
    mean, scale, tau, _ = families.rows("ordinary", 0.4, 4, 3)
    inputs = tuple(x.requires_grad_() for x in (mean, scale, tau))
    check = lambda m, s, t: expected_log_softmax(m, s, temperature=t, tol=1e-9)  # noqa: E731
    assert torch.autograd.gradcheck(check, inputs, atol=1e-6, rtol=1e-5)


def test_gradient_equals_that_of_the_likelihood():
    mean, scale, tau, target = families.rows("lognormal", 0.3, 8, 10)
    inputs = [x.requires_grad_() for x in (mean, scale, tau)]
    rows = torch.arange(10)
    both = [
        expected_log_softmax(mean, scale, temperature=tau, tol=1e-8)[rows, target].sum(),
        -expected_softmax_nll(mean, scale, target, temperature=tau, reduction="sum"),
    ]
    for a, b in zip(*(torch.autograd.grad(value, inputs) for value in both)):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_points_and_ties_at_temperature_zero():
    mean = torch.tensor([[1.0, 1.0, 0.0, 0.5]], dtype=F64, requires_grad=True)
    scale = torch.tensor([[0.0, 0.0, 1.0, 0.0]], dtype=F64)
    p = expected_log_softmax(mean, scale, temperature=0.0).exp()
    high = 0.5 * torch.erfc(torch.tensor(-1.0 / 2**0.5, dtype=F64))
    torch.testing.assert_close(p[0, :3], torch.stack([high / 2, high / 2, 1 - high]), rtol=0, atol=1e-7)
    assert float(p[0, 3].detach()) == 0.0
    p[0, 0].backward()
    assert bool(torch.isfinite(mean.grad).all())


def test_auto_says_what_it_took():
    mean, scale = torch.zeros(4, 3), torch.ones(4, 3)
    reports = []
    take = {"report": reports.append}
    expected_log_softmax(mean, scale, tol=1e-2, **take)
    expected_log_softmax(mean, scale, noise="gumbel", tol=1e-2, **take)
    expected_log_softmax(mean, scale, factors=torch.ones(4, 3, 1), tol=5e-3, **take)
    expected_log_softmax(mean, scale, method="mc", samples=64, **take)
    assert [r.method for r in reports] == ["qmc", "qmc", "qmc", "mc"]
    assert "cheaper" in reports[0].reason
    assert "gumbel" in reports[1].reason
    assert "factors" in str(reports[2])
    assert not reports[3].reached  # 64 draws do not give 1e-4, and the estimate admits it
    assert reports[2].reached
    with pytest.raises(DubitoError, match="no quadrature for all classes with a latent with factors"):
        expected_log_softmax(mean, scale, factors=torch.ones(4, 3, 1), method="fixed")
    with pytest.raises(DubitoError, match="no quadrature for all classes with gumbel noise"):
        expected_log_softmax(mean, scale, noise="gumbel", method="quadrature")


def test_estimated_errors_are_honest():
    """Standard errors of mc and qmc cover the true error about as often as they should."""
    mean, scale, tau, _ = families.rows("ordinary", 1.0, 5, 60)
    truth = expected_log_softmax(mean, scale, temperature=tau, tol=1e-8).exp()
    for method, samples in (("mc", 512), ("qmc", 256)):
        reports = []
        got = expected_log_softmax(
            mean, scale, temperature=tau, method=method, samples=samples, report=reports.append
        ).exp()
        off = (got - truth).abs().amax(-1)
        assert float((off <= 3 * reports[0].error).double().mean()) > 0.9
        assert float(reports[0].error.median() / off.median()) < 8
