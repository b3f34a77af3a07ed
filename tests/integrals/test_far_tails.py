"""Where the target lies hundreds of widths behind: the search by the table is off there, the integrand tells."""

from __future__ import annotations

import itertools

import pytest
import torch

from dubito.integrals import standalone
from dubito.integrals.gumbel_normal import far
from dubito.integrals.likelihood import height
from dubito.integrals.quadrature import solve
from dubito.integrals.rows import make_rows
from dubito.integrals.search import Support, _fallen, find_support, mend
from dubito.integrals.two_classes import two_log_likelihood

F64 = torch.float64


def pairs() -> list[torch.Tensor]:
    """Two classes from 3 to 10,000 apart with scales from 0.001 to 50: log p from -1 to -5e12."""
    made = list(
        itertools.product(
            (0.0, 0.01, 0.3), (1e-3, 1.0, 10.0), (1e-3, 0.1, 1.0, 50.0), (3.0, 100.0, 300.0, 1e4)
        )
    )
    tau, first, second, gap = torch.tensor(made, dtype=F64).unbind(-1)
    return [torch.stack([-gap, 0 * gap], -1), torch.stack([first, second], -1), tau.unsqueeze(-1)]


@pytest.mark.rel
def test_never_silently_wrong():
    """Scorecard 9: the general rule against the exact form of two classes; the error is what it says."""
    inputs = pairs()
    target = torch.zeros(len(inputs[0]), dtype=torch.int64)
    found, _ = solve(*inputs, target, 1e-8)
    truth = two_log_likelihood(*inputs, target)
    assert float(truth.log_p.min()) < -1e10
    off = (found.log_p - truth.log_p).abs()
    assert bool((off <= found.error + truth.error + 1e-9).all())
    assert bool((found.error <= 1e-7 + 4e-9 * truth.log_p.abs()).all())
    some = truth.log_p > -1e7  # beyond, a place t has no digits left for the width of the integrand
    for name in ("d_mean", "d_scale"):
        a, b = getattr(found, name)[some], getattr(truth, name)[some]
        assert float(((a - b).abs().amax(-1) / b.abs().amax(-1)).max()) < 1e-4


def test_tail_beside_the_end_of_the_gumbel_density():
    """The Gaussian in g reaches over hundreds and is cut at 0: against a million equal steps."""
    sigma, tau = torch.tensor([1.0, 10.0], dtype=F64), torch.tensor([0.01, 0.3], dtype=F64)
    for t in (torch.tensor([100.0, 300.0], dtype=F64), torch.tensor([97.0, 340.0], dtype=F64)):
        value, d_t, *_ = far(t, sigma, tau)
        for i in range(2):
            g = torch.linspace(-8, 1200, 1_000_001, dtype=F64)
            z = (tau[i] * g - t[i]) / sigma[i]
            terms = torch.special.log_ndtr(z) - g - (-g).exp()
            wanted = torch.logsumexp(terms, 0) + (g[1] - g[0]).log()
            weight = (terms + (g[1] - g[0]).log() - wanted).exp()
            slope = (-0.5 * z * z - 0.9189385332046727 - torch.special.log_ndtr(z)).exp() / sigma[i]
            torch.testing.assert_close(value[i], wanted, rtol=0, atol=1e-9)
            torch.testing.assert_close(d_t[i], -(weight * slope).sum(), rtol=1e-8, atol=0)


def test_only_supports_that_miss_are_mended():
    """An end where the integrand has not dropped by 0.7 of what it should: mode and ends are found again."""
    mean = torch.tensor([[0.0, 1.0, -1.0]] * 4, dtype=F64)
    rows = make_rows(
        mean, torch.ones(4, 3, dtype=F64), torch.full((4, 1), 0.5, dtype=F64), torch.zeros(4).long()
    )
    right, shoulder = find_support(rows, 30.0, 2.0)
    assert shoulder is not None
    same, also = mend(rows, right, shoulder, 30.0, height)
    assert same is right
    assert also is shoulder
    shift = torch.tensor([[0.0], [6.0], [0.0], [0.0]], dtype=F64)
    short = torch.tensor([[1.0, 1.0], [1.0, 1.0], [0.5, 1.0], [1.0, 0.5]], dtype=F64)
    wrong = right._replace(mode=right.mode + shift, reach=right.reach * short)
    found, near = mend(rows, Support(*wrong), shoulder, 30.0, height)
    torch.testing.assert_close(found.mode[0], right.mode[0], rtol=0, atol=0)
    torch.testing.assert_close(found.reach[0], right.reach[0], rtol=0, atol=0)
    top = height(rows, found.mode)
    for side, sign in enumerate((-1, 1)):
        for reach, nats in ((found.reach, 30.0), (near, 2.0)):
            drop = top - height(rows, found.mode + sign * reach[:, side : side + 1])
            assert bool((drop[1:] >= nats).all())
            assert bool((drop[1:] <= 1.25 * nats).all())
    h = 1e-3
    slope = height(rows, found.mode + h) - height(rows, found.mode - h)
    assert float(slope[1:].abs().max()) < 1e-6


def test_the_file_to_copy_holds_there_too():
    mean, scale, tau = (x[30:][::5] for x in pairs())
    near = mean[:, 0] > -1e3
    inputs, target = [x[near] for x in (mean, scale, tau)], torch.zeros(int(near.sum()), dtype=torch.int64)
    truth = two_log_likelihood(*inputs, target)
    nll, error = standalone.expected_softmax_nll(*inputs[:2], target, inputs[2])
    assert float(truth.log_p.min()) < -1e4
    assert bool(((nll + truth.log_p).abs() <= error + 1e-9 * (1 + truth.log_p.abs())).all())


def test_what_never_falls_ends_the_search():
    rows = make_rows(*(torch.ones(1, n, dtype=F64) for n in (2, 2, 1)), torch.zeros(1).long())
    found = _fallen(
        rows, torch.zeros(1, 1, dtype=F64), torch.zeros(1, 1, dtype=F64), 2.0, lambda rows, t: 0 * t
    )
    assert bool(torch.isfinite(found).all())
    assert float(found.min()) > 1e15
