"""The average softmax of all classes: which way is taken, what is handed on, and how many points are enough."""

from __future__ import annotations

import pytest
import torch

from dubito import DubitoError
from dubito.integrals import expected, expected_log_softmax, expected_softmax_nll
from dubito.integrals.border import as_latent
from dubito.integrals.fixed import NODES, fixed_log_likelihood
from dubito.integrals.noise import bank_of, fresh_seed
from dubito.integrals.sampling import standard_error

MEAN = torch.tensor([[0.5, -1.0, 0.2], [2.0, 0.0, -0.5], [0.1, 0.3, 0.0], [1.0, 1.0, -2.0]])
SCALE = torch.tensor([[0.5, 1.0, 0.7], [1.0, 0.2, 2.0], [0.1, 0.3, 1.0], [1.5, 0.4, 0.6]])
FACTORS = torch.ones(4, 3, 1)


def test_who_goes_to_the_device_at_once(monkeypatch):
    """Ordinary latents in plain calls, up to the tolerance from which on points are cheaper."""
    taken = []
    monkeypatch.setattr(expected, "simple", lambda *given: True)
    monkeypatch.setattr(expected, "_on_device", lambda *given: taken.append(given) or MEAN)

    def goes(**given):
        before = len(taken)
        expected_log_softmax(MEAN, SCALE, samples=8, **given)
        return len(taken) > before

    assert goes()
    assert taken[0][2:] == (1.0, 1e-4, None)
    assert taken[0][0] is MEAN
    assert taken[0][1] is SCALE
    for given in ({"dim": 1}, {"method": "quadrature", "tol": 1.0}, {"tol": 2.9e-3}, {"floor": 0.0}):
        assert goes(**given)
        assert taken[-1][-1] is None
    for given in (
        {"dim": 0},
        {"dim": -2},
        {"tol": 3e-3},
        {"tol": 4e-3},
        {"floor": 0.5},
        {"report": [].append},
        {"method": "fixed"},
        {"method": "fixed", "tol": 1.0},
        {"method": "mc"},
        {"factors": FACTORS, "tol": 0.1},
        {"noise": "gumbel", "tol": 0.1},
        {"factors": FACTORS, "method": "qmc"},
        {"method": "qmc", "dim": 0},
        {"method": "qmc", "report": [].append},
    ):
        assert not goes(**given)
    monkeypatch.setattr(expected, "simple", lambda *given: False)
    assert not goes()
    assert not goes(method="qmc")


def test_quasi_random_points_for_the_device(monkeypatch):
    """The bank of the generator's seed goes along, for as many classes as the kernel takes."""
    taken = []
    monkeypatch.setattr(expected, "fits", lambda classes: classes <= 8)
    monkeypatch.setattr(expected, "simple", lambda *given: True)
    monkeypatch.setattr(expected, "_on_device", lambda *given: taken.append(given) or MEAN)
    for noise in ("normal", "gumbel"):
        source = torch.Generator().manual_seed(4)
        seed = fresh_seed(torch.Generator().manual_seed(4))
        expected_log_softmax(MEAN, SCALE, method="qmc", samples=50, generator=source, noise=noise)
        assert taken[-1][2] == 1.0
        assert torch.equal(taken[-1][4], bank_of(MEAN, 50, seed, noise))
    for tol in (0.0, -1.0, float("nan")):
        with pytest.raises(DubitoError, match="must be positive"):
            expected_log_softmax(MEAN, SCALE, tol=tol)
    with pytest.raises(DubitoError, match="too few samples"):
        expected_log_softmax(MEAN, SCALE, method="qmc", samples=0)
    wide = torch.zeros(2, 9)
    expected_log_softmax(wide, wide + 1, method="qmc", samples=4)
    assert len(taken) == 2
    expected_log_softmax(wide, wide + 1, method="quadrature")
    assert len(taken) == 3


class _Average:
    """In the place of the kernel: the average over a bank, written out."""

    @staticmethod
    def apply(mean, scale, tau, bank):
        assert mean.dim() == 2
        assert tau.shape == (1, 1)
        return torch.softmax((mean + scale * bank[:, None]) / tau, -1).mean(0).log()


def test_what_is_chosen_and_why():
    plain, factored = as_latent(MEAN, SCALE, None, 1.0), as_latent(MEAN, SCALE, FACTORS, 1.0)
    choose = expected.choose
    assert [choose(m, factored, "gumbel", 1e-9)[0] for m in ("mc", "qmc")] == ["mc", "qmc"]
    assert choose("fixed", plain, "normal", 1.0) == ("fixed", "as asked")
    assert choose("quadrature", plain, "normal", 1.0)[0] == "quadrature"
    assert choose("auto", plain, "normal", 2.9e-3)[0] == "quadrature"
    assert choose("auto", plain, "normal", 3e-3)[0] == "qmc"
    assert choose("auto", plain, "gumbel", 1e-4) == ("qmc", "gumbel noise has no one-dimensional form")
    assert "factors" in choose("auto", factored, "normal", 1e-4)[1]
    for method in ("quadrature", "fixed"):
        with pytest.raises(DubitoError, match="logistic noise"):
            choose(method, plain, "logistic", 1e-4)
    with pytest.raises(DubitoError, match="latent with factors"):
        choose("fixed", factored, "normal", 1e-4)
    assert choose("quadrature", factored, "normal", 1e-4)[0] == "factors x quadrature"


@pytest.mark.parametrize("shape", [(4, 3), (2, 2, 3), (3,)])
def test_the_short_way_keeps_the_shape(shape, monkeypatch):
    mean, scale = MEAN.flatten()[-torch.Size(shape).numel() :].reshape(shape), SCALE[-1].expand(shape)
    found = expected._on_device(mean, scale, 0.7, 1e-4, None)
    wanted = expected_log_softmax(mean.double(), scale.double(), temperature=0.7)
    assert found.shape == shape
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.exp().double(), wanted.exp(), rtol=0, atol=2e-4)
    half = expected._on_device(mean.bfloat16(), scale.bfloat16(), 0.7, 1e-4, None)
    assert half.dtype == torch.float32
    monkeypatch.setattr(expected, "QmcAllClasses", _Average)
    bank = bank_of(mean, 8, 0, "normal")
    drawn = expected._on_device(mean, scale, 0.7, 1e-4, bank)
    again = expected_log_softmax(mean, scale, temperature=0.7, method="qmc", samples=8)
    torch.testing.assert_close(drawn, again)


@pytest.mark.parametrize("lead", [(4,), (2, 2)])
def test_class_by_class(lead):
    """Each class in its turn, and the largest error of a probability in each row; a report of all nodes."""
    mean, scale = (x.double().reshape(*lead, 3) for x in (MEAN, SCALE))
    tau = torch.linspace(0.5, 2.0, 4, dtype=torch.float64).reshape(*lead, 1)
    reports = []
    found = expected_log_softmax(mean, scale, temperature=tau, method="fixed", report=reports.append)
    log_p, error = torch.empty(*lead, 3), torch.empty(*lead, 3)
    log_p, error = log_p.double(), error.double()
    for k in range(3):
        log_p[..., k], error[..., k] = fixed_log_likelihood(mean, scale, tau, torch.full(lead, k))
    torch.testing.assert_close(found, log_p)
    torch.testing.assert_close(reports[0].error, (error * log_p.exp()).amax(-1))
    assert reports[0].points == 2 * (NODES + 1)


def test_the_class_axis_goes_back_where_it_was():
    reports = []
    wanted = expected_log_softmax(MEAN, SCALE, report=reports.append)
    assert reports[0].points == 0  # quadrature does not say how many
    for dim in (0, -2):
        torch.testing.assert_close(expected_log_softmax(MEAN.t(), SCALE.t(), dim=dim), wanted.t())
    for dim in (1, -1):
        torch.testing.assert_close(expected_log_softmax(MEAN, SCALE, dim=dim), wanted)
    middle = expected_log_softmax(MEAN.t()[None], SCALE.t()[None], dim=1)
    torch.testing.assert_close(middle[0], wanted.t())


def test_a_floor_raises_what_lies_below_it():
    plain = expected_log_softmax(MEAN, SCALE)
    raised = expected_log_softmax(MEAN, SCALE, floor=0.3)
    torch.testing.assert_close(raised, plain.clamp(min=torch.tensor(0.3).log().item()))
    assert bool((raised > plain).any())


def test_points_until_the_worst_row_is_good_enough(monkeypatch):
    """256 points, doubled up to 8,192, until the estimate of every class and row is at most the tolerance."""
    latent, asked = as_latent(MEAN, SCALE, None, 1.0), []

    def error(method, given, samples, seed, noise):
        asked.append((method, given is latent, samples, seed, noise))
        return torch.tensor([[0.0, 0.1], [256.0 / samples, 0.0]])

    monkeypatch.setattr(expected, "standard_error", error)
    for tol, wanted in ((1.0, 256), (0.99, 512), (0.25, 1024), (0.125, 2048), (0.11, 4096), (0.01, 8192)):
        samples, reached = expected._enough(latent, tol, 5, "gumbel")
        assert samples == wanted
        assert reached.tolist() == pytest.approx([0.1, 256 / wanted])
    assert asked[:2] == [("qmc", True, 256, 5, "gumbel"), ("qmc", True, 256, 5, "gumbel")]
    monkeypatch.setattr(expected, "standard_error", lambda *given: torch.zeros(0, 3))
    samples, reached = expected._enough(latent, 1e-9, 5, "normal")
    assert (samples, reached.numel()) == (256, 0)


@pytest.mark.parametrize("method", ["mc", "qmc"])
def test_the_report_of_sampling(method):
    """As many points as asked for, and the largest standard error of a row, from the generator's seed."""
    reports = []
    given = {"method": method, "samples": 64, "report": reports.append}
    expected_log_softmax(MEAN, SCALE, **given)
    wanted = standard_error(method, as_latent(MEAN, SCALE, None, 1.0), 64, 0, "normal").amax(-1)
    torch.testing.assert_close(reports[0].error, wanted)
    assert reports[0].points == 64
    expected_log_softmax(MEAN, SCALE, noise="logistic", tol=0.3, samples=7, report=reports.append)
    assert reports[1].points == 256


@pytest.mark.parametrize("likelihood", [False, True])
def test_a_tolerance_that_was_given_and_is_missed_is_warned_of(likelihood, recwarn):
    g = torch.Generator().manual_seed(0)
    mean, factors = torch.randn(2, 10, generator=g), torch.randn(2, 10, 4, generator=g)
    target, reports = torch.tensor([0, 1]), []

    def call(**given):
        if likelihood:
            return expected_softmax_nll(mean, 1.0, target, factors=factors, temperature=0.1, **given)
        return expected_log_softmax(mean, 1.0, factors=factors, temperature=0.1, **given)

    call()
    call(tol=10.0)
    call(tol=1e-6, report=reports.append)
    assert not reports[0].reached
    assert not recwarn
    with pytest.warns(RuntimeWarning, match="less exact than asked for"):
        call(tol=1e-6)
