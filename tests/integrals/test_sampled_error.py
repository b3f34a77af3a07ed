"""What is said of the error of a sampled likelihood where the draws miss what matters."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from dubito.links import expected_softmax_nll


def exact(gap: float, tau: float) -> float:
    """log E[ sigmoid((sqrt 2 e - gap) / tau) ] by the trapezoid rule."""
    e = np.arange(-40, 40, 0.002)
    x = (math.sqrt(2) * e - gap) / tau
    terms = -0.5 * e**2 - np.logaddexp(0, -x)
    return float(np.logaddexp.reduce(terms) + math.log(0.002 / math.sqrt(2 * math.pi)))


def latent(gap: float, rank: int, g: torch.Generator):
    """Three classes, the last out of reach, and factors that move all alike: they change no probability."""
    factors = torch.randn(1, rank, generator=g).expand(3, rank)
    return torch.tensor([0.0, gap, -200.0]), torch.ones(3), factors


@pytest.mark.parametrize("rank", [4, 15])
@pytest.mark.parametrize("gap", [5.0, 8.0, 12.0])
@pytest.mark.parametrize("options", [{"tol": 1e-2}, {"method": "qmc"}, {"method": "mc"}])
def test_a_sampled_likelihood_knows_when_it_knows_nothing(rank, gap, options):
    """At temperature 0.05 the draws of p = e^-8 are few, those of e^-19 none: no error may be small there."""
    for seed in range(2):
        g, reports = torch.Generator().manual_seed(seed), []
        mean, scale, factors = latent(gap, rank, g)
        settings = {"factors": factors, "temperature": 0.05, "generator": g, "report": reports.append}
        log_p = -float(expected_softmax_nll(mean, scale, torch.tensor(0), **settings, **options))
        off = abs(log_p - exact(gap, 0.05))
        assert off < 5 * float(reports[0].error) + 1e-4
        assert not (reports[0].reached and off > 0.1)


def test_a_tolerance_that_draws_cannot_reach_is_warned_of():
    g = torch.Generator().manual_seed(1)
    mean, scale, factors = latent(8.0, 4, g)
    with pytest.warns(RuntimeWarning, match="less exact"):
        expected_softmax_nll(
            mean, scale, torch.tensor(0), factors=factors, temperature=0.05, generator=g, tol=1e-2
        )
