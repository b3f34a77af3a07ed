"""The likelihood by quadrature: right against independent code and mpmath, at its limits, with its gradients."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
import softmax_reference as reference
import softmax_rows as families
import torch
from scipy.special import log_ndtr

from dubito.integrals import expected_softmax_nll
from dubito.integrals.quadrature import solve

F64 = torch.float64


def likelihood(mean, scale, target, **options):
    return -expected_softmax_nll(
        torch.as_tensor(mean, dtype=F64), torch.as_tensor(scale, dtype=F64), torch.as_tensor(target),
        reduction="none", **options,
    )  # fmt: skip


CASES = [
    *[("ordinary", tau, 10) for tau in (0.01, 0.05, 0.5, 5.0, 100.0)],
    *[("lognormal", tau, 10) for tau in (0.02, 0.3)],
    *[("extreme", tau, 6) for tau in (0.05, 0.3, 1.0)],
    ("far", 1.0, 6),
    ("shifted", 0.5, 5),
    ("ordinary", 1.0, 2),
    ("ordinary", 0.0, 8),
]


@pytest.mark.rel
@pytest.mark.parametrize(("kind", "tau", "classes"), CASES)
def test_against_brute_force(kind, tau, classes):
    """Scorecard 9: quadrature reaches its stated error; 1e-6 in float64, 1e-4 in float32."""
    mean, scale, temperature, target = families.rows(kind, tau, classes, 4)
    truth = np.array(
        [reference.log_p(m, s, tau, int(y)) for m, s, y in zip(mean.numpy(), scale.numpy(), target)]
    )
    usable = truth > -90  # deeper rows are beyond the reference's range
    answer, _ = solve(mean, scale, temperature, target, 1e-7)
    off = np.abs(answer.log_p.numpy() - truth)[usable]
    assert usable.any()
    assert off.max() < 1e-6
    assert (off <= answer.error.numpy()[usable] + 1e-9).all()
    centred = mean - mean.mean(-1, keepdim=True) if kind != "shifted" else mean
    single, _ = solve(centred.float(), scale.float(), temperature.float(), target, 2e-5)
    exact, _ = solve(centred.float().double(), scale.float().double(), temperature, target, 1e-7)
    assert float((single.log_p - exact.log_p).abs()[torch.from_numpy(usable)].max()) < 1e-4


@pytest.mark.parametrize(
    ("gap", "first", "second", "tau"),
    [
        (-16.0, 1.0, 1.0, 0.05),
        (-4.0, 0.02, 4.0, 0.3),
        (1.0, 0.001, 0.5, 0.01),
        (-30.0, 2.0, 0.0, 1.0),
        (2.0, 9.0, 50.0, 100.0),
    ],
)
def test_two_classes_against_mpmath(gap, first, second, tau):
    """With two classes it is the mean of a sigmoid of one Gaussian; the first of these is 1e-29."""
    mpmath.mp.dps = 30
    spread = mpmath.sqrt(mpmath.mpf(first) ** 2 + mpmath.mpf(second) ** 2)

    def integrand(e):
        return mpmath.npdf(e) / (1 + mpmath.exp(-(gap + spread * e) / tau))

    # the sigmoid's step, the mode of each tail, and something in between
    points = sorted(
        {mpmath.mpf(p) for p in (-gap / spread, -gap / spread + 8 * tau / spread, 0, spread / tau)}
    )
    points = [p for p in points if abs(p) < 40]
    inner = [p + d for p in points for d in (-6, -2, -0.5, -0.1, 0, 0.1, 0.5, 2, 6)]
    truth = mpmath.log(mpmath.quad(integrand, sorted({-45, 45, *inner})))
    got = float(likelihood((gap, 0.0), (first, second), 0, temperature=tau))
    assert got == pytest.approx(float(truth), abs=2e-8, rel=3e-9)


def test_three_classes_against_mpmath():
    """20 digits, the trapezoid rule inside and outside."""
    mpmath.mp.dps = 20
    mean, scale, tau, target = (1.0, 0.0, -0.5), (0.7, 1.2, 2.0), mpmath.mpf("0.6"), 2
    steps = [mpmath.mpf(i) / 4 for i in range(-20, 180)]
    gumbel = [(g, mpmath.exp(-g - mpmath.exp(-g)) / 4) for g in steps]

    def integrand(t):
        value = (
            sum(w * mpmath.npdf((t - mean[target] - tau * g) / scale[target]) for g, w in gumbel)
            / scale[target]
        )
        for k in (0, 1):
            value *= sum(w * mpmath.ncdf((t - mean[k] - tau * g) / scale[k]) for g, w in gumbel)
        return value

    truth = mpmath.log(sum(integrand(mpmath.mpf(i) / 3) for i in range(-24, 75)) / 3)
    assert float(likelihood(mean, scale, target, temperature=float(tau))) == pytest.approx(
        float(truth), abs=2e-9
    )


@pytest.mark.paper("collier2020 eq. 3", "collier2020 eq. 4", "collier2020 eq. 5", "collier2020 eq. 6")
def test_published_values():
    """Known values at temperatures 1 and 5 and in the limit 0, the multinomial probit; softmax differs from it."""
    mean, scale = (1.0, 0.0, -0.5), (0.5, 1.0, 2.0)
    for tau, wanted in (
        (1.0, (0.523869, 0.239389, 0.236742)),
        (5.0, (0.386496, 0.318326, 0.295178)),
        (0.0, (0.633535, 0.149162, 0.217303)),
    ):
        got = [float(likelihood(mean, scale, k, temperature=tau).exp()) for k in range(3)]
        assert got == pytest.approx(wanted, abs=1e-6)
        assert sum(got) == pytest.approx(1.0, abs=1e-8)


@pytest.mark.rel
def test_scale_zero_is_the_softmax():
    """Scorecard 3: sigma = 0 gives softmax(mean / tau), at any temperature."""
    mean, _, _, target = families.rows("ordinary", 1.0, 7, 20)
    for tau in (0.01, 0.3, 1.0, 30.0):
        wanted = torch.log_softmax(mean / tau, -1).gather(-1, target.unsqueeze(-1)).squeeze(-1)
        got = likelihood(mean, torch.zeros_like(mean), target, temperature=tau)
        torch.testing.assert_close(got, wanted, rtol=1e-8, atol=1e-8)


@pytest.mark.rel
@pytest.mark.paper("collier2020 eq. 3")
def test_two_classes_at_temperature_zero():
    """Scorecard 3: tau -> 0 with two classes is Phi(difference / root of summed variances), to 1e-30 and beyond."""
    for gap, first, second in (
        (1.0, 0.5, 2.0),
        (-11.0, 1.0, 0.5),
        (-40.0, 1.0, 1.0),
        (3.0, 0.0, 2.0),
        (-2.0, 1.0, 0.0),
    ):
        wanted = log_ndtr(gap / math.hypot(first, second))
        got = float(likelihood((gap, 0.0), (first, second), 0, temperature=0.0))
        assert got == pytest.approx(wanted, abs=2e-7, rel=1e-8)
        if first and second:  # continuous at 0
            near = float(likelihood((gap, 0.0), (first, second), 0, temperature=1e-6))
            assert near == pytest.approx(wanted, abs=1e-4)


@pytest.mark.paper("collier2020 eq. 3")
def test_gumbel_noise_is_the_softmax():
    """Equation 3: with Gumbel utilities the argmax is a softmax; here scale 0 and temperature 1."""
    got = likelihood((1.0, 0.0, -0.5), (0.0, 0.0, 0.0), 1)
    assert float(got) == pytest.approx(
        float(torch.log_softmax(torch.tensor([1.0, 0.0, -0.5], dtype=F64), 0)[1]), abs=1e-9
    )


def test_shift_and_unit_do_not_matter():
    mean, scale, tau, target = families.rows("lognormal", 0.3, 8, 10)
    base = likelihood(mean, scale, target, temperature=tau)
    torch.testing.assert_close(
        likelihood(mean + 1e4, scale, target, temperature=tau), base, rtol=0, atol=1e-7
    )
    torch.testing.assert_close(
        likelihood(mean * 64, scale * 64, target, temperature=tau * 64), base, rtol=0, atol=2e-7
    )


@pytest.mark.rel
def test_gradcheck():
    """Scorecard 2: gradients in mean, scale and temperature, one temperature or one per row."""
    mean, scale, tau, target = families.rows("ordinary", 0.6, 4, 4)
    inputs = tuple(x.requires_grad_() for x in (mean, scale, tau))
    check = lambda m, s, t: expected_softmax_nll(m, s, target, temperature=t, tol=1e-10, reduction="none")  # noqa: E731
    assert torch.autograd.gradcheck(check, inputs, atol=1e-6, rtol=1e-5)
    one = torch.tensor(0.6, dtype=F64, requires_grad=True)
    assert torch.autograd.gradcheck(check, (*inputs[:2], one), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(
    ("kind", "tau"), [("ordinary", 0.05), ("lognormal", 0.3), ("extreme", 0.3), ("far", 1.0)]
)
def test_gradients_against_differences(kind, tau):
    """1e-4 relative, by central differences of the float64 value; float32 gradients agree with them too."""
    mean, scale, temperature, target = families.rows(kind, tau, 5, 6, seed=3)
    answer, _ = solve(mean, scale, temperature, target, 1e-9)

    def value(m, s, t):
        return solve(m, s, t, target, 1e-10)[0].log_p

    for given, gradient in (
        (mean, answer.d_mean),
        (scale, answer.d_scale),
        (temperature, answer.d_temperature),
    ):
        numeric = torch.zeros_like(gradient)
        for k in range(given.shape[1]):
            step = 1e-4 * (scale**2 + temperature**2).sqrt()[:, k : k + 1]
            step = torch.minimum(step, given[:, k : k + 1] / 4) if given is not mean else step
            moved = [given.clone(), given.clone()]
            moved[0][:, k : k + 1] += step
            moved[1][:, k : k + 1] -= step
            up, down = (value(*(v if x is given else x for x in (mean, scale, temperature))) for v in moved)
            numeric[:, k] = torch.where(step[:, 0] > 0, (up - down) / (2 * step[:, 0]).clamp(min=1e-30), 0.0)
        size = gradient.abs().amax(-1, keepdim=True) + 1e-3
        assert float(((numeric - gradient).abs() / size).max()) < 2e-4
    single, _ = solve(mean.float(), scale.float(), temperature.float(), target, 2e-5)
    for a, b in ((single.d_mean, answer.d_mean), (single.d_scale, answer.d_scale)):
        assert float(((a - b).abs().amax(-1) / (b.abs().amax(-1) + 1e-3)).max()) < 1e-3


def test_thousands_of_classes():
    mean, scale, tau, target = families.rows("ordinary", 0.5, 10_000, 2)
    answer, _ = solve(mean, scale, tau, target, 1e-7)
    thorough, _ = solve(mean, scale, tau, target, 1e-13)  # too much for the quick rule
    torch.testing.assert_close(answer.log_p, thorough.log_p, rtol=0, atol=1e-6)
    torch.testing.assert_close(answer.d_mean, thorough.d_mean, rtol=1e-4, atol=1e-9)


def test_classes_without_spread_at_temperature_zero():
    """A point beats or loses to another exactly; against spread-out classes its place decides."""
    phi = lambda z: 0.5 * math.erfc(-z / math.sqrt(2))  # noqa: E731
    for mean, scale, wanted in (
        ((1.0, 1.0, 0.0), (0.0, 0.0, 0.0), 0.5),
        ((1.0, 1.0, 0.0), (0.0, 0.0, 1.0), 0.5 * phi(1.0)),
        ((1.0, 0.0, 0.0), (0.0, 1.0, 2.0), phi(1.0) * phi(0.5)),
        ((0.0, 1.0), (2.0, 0.0), phi(-0.5)),
        ((0.0, 1.0, 0.0), (0.0, 0.0, 2.0), 0.0),
    ):
        m = torch.tensor(mean, dtype=F64, requires_grad=True)
        log_p = likelihood(m, scale, 0, temperature=0.0)
        assert float(log_p.detach().exp()) == pytest.approx(wanted, abs=1e-8)
        log_p.backward()
        assert bool(torch.isfinite(m.grad).all())
