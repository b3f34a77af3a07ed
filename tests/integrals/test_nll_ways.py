"""Which way a likelihood is taken, with what settings, and what is reported; with stand-ins for the ways."""

from __future__ import annotations

import math

import pytest
import torch

from dubito import DubitoError
from dubito.integrals import expected_softmax_nll, nll
from dubito.integrals.border import as_latent
from dubito.integrals.report import Report

F64 = torch.float64
MEAN = torch.tensor([[0.5, -1.0, 0.2], [2.0, 0.0, -0.5], [0.1, 0.3, 0.0], [1.0, 1.0, -2.0]])
SCALE = torch.tensor([[0.5, 1.0, 0.7], [1.0, 0.2, 2.0], [0.1, 0.3, 1.0], [1.5, 0.4, 0.6]])
TARGET = torch.tensor([0, 2, 1, 0])
TAKEN = torch.tensor(-5.0)


def other_way(latent, target, options):
    return torch.zeros(target.shape), Report("none", "none", 1, None, 1.0)


@pytest.mark.parametrize("fits", [True, False])
@pytest.mark.parametrize("method", ["auto", "quadrature", "qmc"])
def test_kernels_have_their_own_way(monkeypatch, method, fits):
    """For quasi-random points only where the classes fit, with the points of the seed; else without any."""
    seen = []
    monkeypatch.setattr(nll.fused_mean, "plain", lambda *_: True)
    monkeypatch.setattr(nll, "fits", lambda classes: seen.append(classes) or fits)
    monkeypatch.setattr(nll.fused_mean, "mean_loss", lambda *given: seen.append(given) or TAKEN)
    monkeypatch.setattr(nll, "_dispatch", other_way)
    found = expected_softmax_nll(
        MEAN, SCALE, TARGET, temperature=0.7, method=method, samples=50, ignore_index=7
    )
    assert (found is TAKEN) is (fits or method != "qmc")
    if method == "qmc":
        assert seen[0] == 3
    if found is TAKEN:
        mean, _, _, temperature, ignore, tol, bank = seen[-1]
        assert (mean is MEAN, temperature, ignore, tol) == (True, 0.7, 7, None)
        assert (bank is None) is (method != "qmc")
        assert bank is None or bank.shape == (64, 3)


def captured(monkeypatch):
    seen = []

    def dispatch(latent, target, options):
        seen.append((latent, target, options))
        return torch.arange(1.0, target.numel() + 1).reshape(target.shape), Report("none", "", 1, None, 1.0)

    monkeypatch.setattr(nll, "_dispatch", dispatch)
    return seen


def test_ignored_rows(monkeypatch):
    """Left out where values may be looked at; else they stand as class 0 and are masked afterwards."""
    seen = captured(monkeypatch)
    target = torch.tensor([0, -1, 1, -1], dtype=torch.int32)
    given = {"ignore_index": -1, "reduction": "none"}
    found = expected_softmax_nll(MEAN, SCALE, target, method="mc", **given)
    latent, kept, _ = seen[-1]
    assert torch.equal(latent.mean, MEAN[[0, 2]])
    assert (kept.tolist(), kept.dtype) == ([0, 1], torch.int64)
    assert found.tolist() == [-1.0, 0.0, -2.0, 0.0]
    expected_softmax_nll(MEAN.bfloat16(), SCALE, target, **given)
    assert (seen[-1][0].mean.dtype, seen[-1][1].tolist()) == (torch.float32, [0, 1])
    found = expected_softmax_nll(MEAN, SCALE, target, method="fixed", **given)
    latent, whole, _ = seen[-1]
    assert (latent.mean.shape, whole.tolist(), whole.dtype) == ((4, 3), [0, 0, 1, 0], torch.int64)
    assert found.tolist() == [-1.0, 0.0, -3.0, 0.0]
    monkeypatch.setattr(nll, "ready", lambda *_: True)
    assert expected_softmax_nll(MEAN, SCALE, target, method="auto", **given).tolist() == [
        -1.0,
        0.0,
        -3.0,
        0.0,
    ]
    assert seen[-1][1].tolist() == [0, 0, 1, 0]
    expected_softmax_nll(MEAN, SCALE, TARGET, method="mc", reduction="none")
    assert torch.equal(seen[-1][0].mean, MEAN)


@pytest.mark.parametrize("method", ["auto", "fixed", "mc"])
def test_weights_of_all_classes(monkeypatch, method):
    """One row per class: the class axis may be anywhere, and factors are repeated with it."""
    seen = captured(monkeypatch)
    weights = torch.rand(2, 3, 5, generator=torch.Generator().manual_seed(0))
    mean = torch.arange(30.0).reshape(2, 3, 5)
    factors = torch.randn(2, 5, 3, 2) if method != "fixed" else None
    found = expected_softmax_nll(mean, 1.0, weights, factors=factors, dim=1, method=method, reduction="none")
    latent, target, options = seen[-1]
    assert target.shape == (2, 5, 3)
    assert target[1, 4].tolist() == [0, 1, 2]
    for c in range(3):
        assert torch.equal(latent.mean[:, :, c], mean.movedim(1, -1))
        assert factors is None or torch.equal(latent.factors[:, :, c], factors)
    assert latent.temperature.shape == (2, 5, 3, 1)
    assert not options.estimate
    log_p = torch.arange(1.0, 31).reshape(2, 5, 3)
    torch.testing.assert_close(found, -(log_p * weights.movedim(1, -1)).sum(-1))


def test_settings_are_handed_on(monkeypatch):
    seen, reports = captured(monkeypatch), []
    source = torch.Generator().manual_seed(3)
    given = {"method": "qmc", "samples": 17, "generator": source, "tol": 0.5, "noise": "logistic"}
    expected_softmax_nll(MEAN, SCALE, TARGET, report=reports.append, **given)
    options = seen[-1][2]
    assert options[:2] == ("qmc", 17)
    assert options[3:] == (0.5, "logistic", True)
    assert len(reports) == 1
    for tol in (0.0, -1.0, math.nan):
        with pytest.raises(DubitoError, match="tolerance"):
            expected_softmax_nll(MEAN, SCALE, TARGET, tol=tol)


def latent_of(rank=0, dtype=F64, rows=4):
    factors = (
        torch.randn(rows, 3, rank, dtype=dtype, generator=torch.Generator().manual_seed(0)) if rank else None
    )
    return as_latent(MEAN[:rows].to(dtype), SCALE[:rows].to(dtype), factors, 0.5)


def options_of(method="auto", tol=None, samples=1000, noise="normal", estimate=False):
    return nll._Options(method, samples, 11, tol, noise, estimate)


@pytest.mark.parametrize("shape", [(4,), (2, 2)])
@pytest.mark.parametrize("hard", [None, [True, False, True, False]])
def test_quadrature_is_reported(monkeypatch, shape, hard):
    seen = []
    solve = nll.solve_any

    def counted(*given):
        seen.append(([tuple(x.shape) for x in given[:4]], given[4]))
        return solve(*given)[0], None if hard is None else torch.tensor(hard)

    monkeypatch.setattr(nll, "solve_any", counted)
    latent = as_latent(MEAN.double().reshape(*shape, 3), SCALE.double().reshape(*shape, 3), None, 0.5)
    log_p, report = nll._dispatch(latent, TARGET.reshape(shape), options_of())
    assert seen == [([(4, 3), (4, 3), (4, 1), (4,)], 1e-7)]
    assert log_p.shape == report.error.shape == shape
    assert (report.method, report.tol) == ("quadrature", 1e-7)
    assert report.points == (33 if hard is None else 1028)
    assert ("2 rows by the thorough rule" in report.reason) is (hard is not None)
    _, report = nll._dispatch(latent, TARGET.reshape(shape), options_of(tol=0.25))
    assert (seen[-1][1], report.tol) == (0.25, 0.25)
    _, report = nll._dispatch(latent, TARGET.reshape(shape), options_of("fixed"))
    assert (report.points, report.tol) == (82, 1e-7)
    _, report = nll._dispatch(latent, TARGET.reshape(shape), options_of("fixed", tol=0.25))
    assert report.tol == 0.25


@pytest.mark.parametrize(
    ("rank", "given", "most"),
    [
        (3, {}, 125.0),
        (2, {}, math.inf),
        (3, {"tol": 0.1}, math.inf),
        (3, {"method": "quadrature"}, math.inf),
    ],
)
def test_cost_of_a_rule_over_factors(monkeypatch, rank, given, most):
    """About what the draws would cost, eight of them a point; without a bound where exactness was asked for."""
    seen = {}

    def rule(latent, target, goal, seed, most):
        seen.update(goal=goal, seed=seed, most=most)
        return torch.zeros(4), torch.zeros(4), 77

    monkeypatch.setattr(nll, "factor_log_likelihood", rule)
    _, report = nll._dispatch(latent_of(rank), TARGET, options_of(**given))
    assert seen == {"goal": given.get("tol", 1e-3), "seed": 11, "most": most}
    assert (report.method, report.points, report.tol) == ("factors x quadrature", 77, given.get("tol", 1e-3))


def test_sampling_is_reported(monkeypatch):
    """Random draws or points as asked; the error is that of their log p, and only estimated when asked for."""
    log_p = torch.tensor([[-1.0, -2.0, -3.0]] * 4)
    for name in ("by_mc", "by_qmc"):
        value = log_p if name == "by_mc" else 2 * log_p
        monkeypatch.setattr(nll, name, lambda latent, samples, seed, noise, value=value: value)
    monkeypatch.setattr(nll, "likelihood_error", lambda log_p, *_: 0.1 / log_p.exp())
    for method, factor in (("mc", 1), ("qmc", 2)):
        found, report = nll._dispatch(latent_of(), TARGET, options_of(method, samples=30, estimate=True))
        wanted = factor * log_p.gather(1, TARGET.unsqueeze(-1)).squeeze(-1)
        assert torch.equal(found, wanted)
        torch.testing.assert_close(report.error, 0.1 / wanted.exp())
        assert (report.method, report.points, report.tol) == (method, 30, 1e-3)
        assert nll._dispatch(latent_of(), TARGET, options_of(method))[1].error is None


@pytest.mark.parametrize(("goal", "samples"), [(0.25, 64), (0.2, 128), (0.04, 512), (1e-9, 32768)])
def test_points_until_the_tolerance(monkeypatch, goal, samples):
    """A power of two, doubled until the relative error of the worst row is at most the goal, or 2^15."""
    log_p = torch.tensor([[1.0], [0.5]], dtype=F64).log()
    monkeypatch.setattr(nll, "by_qmc", lambda latent, *_: log_p[: len(latent.mean)])
    monkeypatch.setattr(
        nll, "likelihood_error", lambda log_p, target, way, latent, count, *rest: 8 / count / log_p.exp()
    )
    latent, target = latent_of(rows=2), torch.zeros(2, dtype=torch.int64)
    options = options_of(samples=50)
    assert nll._enough(latent, target, options, goal) == samples
    assert nll._enough(latent, target[:0], options, goal) == 64
    assert nll._enough(latent_of(rows=1), target[:1], options, 1e-9) == 32768
    sums = []
    monkeypatch.setattr(nll, "_enough", lambda *given: sums.append(given[3]) or 256)
    for method, tol, asked in (("auto", goal, [goal]), ("auto", None, []), ("qmc", goal, [])):
        sums.clear()
        _, report = nll._dispatch(latent, target, options_of(method, tol, samples=50, noise="gumbel"))
        assert sums == asked
        assert report.points == (256 if asked else 50)


@pytest.mark.parametrize("shape", [(4,), (2, 2)])
def test_points_of_the_kernels(monkeypatch, shape):
    """Only for independent classes that fit; rows flat, the result as the target."""
    seen = []

    class Stand:
        @staticmethod
        def apply(*given):
            seen.append([tuple(x.shape) for x in given])
            return torch.arange(4.0)

    monkeypatch.setattr(nll, "QmcLikelihood", Stand)
    monkeypatch.setattr(nll, "ready", lambda *_: True)
    monkeypatch.setattr(nll, "fits", lambda classes: classes == 3)
    latent = as_latent(MEAN.reshape(*shape, 3), SCALE.reshape(*shape, 3), None, 0.5)
    found, _ = nll._dispatch(latent, TARGET.reshape(shape), options_of("qmc", samples=50))
    assert torch.equal(found, torch.arange(4.0).reshape(shape))
    assert seen == [[(4, 3), (4, 3), (4, 1), (4,), (64, 3)]]
    nll._dispatch(latent_of(2, torch.float32), TARGET, options_of("qmc", samples=4))
    nll._dispatch(latent, TARGET.reshape(shape), options_of("mc", samples=4))
    assert len(seen) == 1


def test_choice():
    plain, three, four = (latent_of(rank) for rank in (0, 3, 4))
    for method, latent, noise, wanted in [
        ("auto", plain, "normal", "quadrature"),
        ("quadrature", plain, "normal", "quadrature"),
        ("auto", plain, "gumbel", "qmc"),
        ("fixed", plain, "normal", "fixed"),
        ("mc", plain, "logistic", "mc"),
        ("qmc", three, "normal", "qmc"),
        ("auto", three, "normal", "factors x quadrature"),
        ("auto", four, "normal", "qmc"),
        ("quadrature", four, "normal", "factors x quadrature"),
    ]:
        assert nll.choose(method, latent, noise)[0] == wanted
    refused = (("fixed", plain, "gumbel"), ("quadrature", plain, "gumbel"), ("fixed", three, "normal"))
    for method, latent, noise in refused:
        with pytest.raises(DubitoError):
            nll.choose(method, latent, noise)


def test_an_infinite_weight_makes_no_nan_of_a_lost_row():
    """At temperature 0 a point below another has log p = -inf and no gradient, whatever comes back."""
    mean = torch.tensor([[0.0, 1.0], [1.0, 0.5]], dtype=F64, requires_grad=True)
    scale = torch.zeros(2, 2, dtype=F64, requires_grad=True)
    latent = as_latent(mean, scale, None, 0.0)
    log_p, _, hard = nll.log_likelihood(latent, torch.tensor([0, 0]), 1e-7)
    assert (float(log_p[0].detach()), hard) == (-math.inf, 0)
    for grad in torch.autograd.grad(log_p, (mean, scale), torch.tensor([math.inf, 1.0], dtype=F64)):
        assert not bool(grad[0].any())
        assert bool(grad.isfinite().all())
