"""The error that the panels state, on rows where errors of single classes cancel in their sum."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dubito.integrals import all_classes as module
from dubito.integrals.quadrature import solve

F64 = torch.float64


def hostile(seed: int, rows: int, classes: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Scales from 0 to 50 in one row, temperatures from 0.01 to 100."""
    g = torch.Generator().manual_seed(seed)
    spread = torch.tensor([0.3, 1.0, 4.0], dtype=F64)[torch.randint(3, (rows, 1), generator=g)]
    mean = 2 * spread * torch.randn(rows, classes, generator=g, dtype=F64)
    some = torch.tensor([0.0, 1e-3, 0.01, 0.1, 0.3, 1.0, 3.0, 10.0, 50.0], dtype=F64)
    steps = some[torch.randint(9, (rows, classes), generator=g)]
    smooth = (1.7 * torch.randn(rows, classes, generator=g, dtype=F64) - 0.5).exp().clamp(max=50)
    scale = torch.where(torch.rand(rows, 1, generator=g) < 0.5, steps, smooth)
    taus = torch.tensor([0.01, 0.03, 0.1, 0.5, 1.0, 5.0, 100.0], dtype=F64)
    return mean, scale, taus[torch.randint(7, (rows, 1), generator=g)]


@pytest.mark.rel
@pytest.mark.parametrize("tol", [1e-4, 1e-6])
@pytest.mark.parametrize(("classes", "seed"), [(4, 0), (7, 3)])
def test_no_class_is_off_by_more_than_is_said(classes, seed, tol):
    """Scorecard 9: against the likelihood of each class by its own integral; with the sum alone some rows lie."""
    inputs = hostile(seed, 150, classes)
    truth = torch.stack(
        [solve(*inputs, torch.full((150,), k), 1e-9)[0].log_p.exp() for k in range(classes)], -1
    )
    log_p, said = module._ranked(*inputs, tol, module._by_panels)
    off = (log_p.exp() - truth).abs().amax(-1)
    assert bool((off <= said + 3e-9).all())
    assert bool((said <= tol).all())


def test_coefficients_of_an_expansion():
    """Of the integrand on a panel, in Legendre polynomials of norm 1, by the rule's own nodes."""
    nodes, weights = np.polynomial.legendre.leggauss(8)
    values = np.exp(nodes) / (2 + nodes)
    found = torch.from_numpy(values * weights / 2) @ module._last_coefficients(8, torch.zeros(0, dtype=F64))
    wanted = [np.polynomial.legendre.legfit(nodes, values, 7)[k] / np.sqrt(2 * k + 1) for k in (0, 6, 7)]
    np.testing.assert_allclose(np.abs(found.numpy()), np.abs(wanted), rtol=1e-9)


def test_two_classes_whose_errors_cancel():
    """A step of one class under a density of another: the sum over both misses little, each of them much."""
    mean, tau = torch.tensor([[0.0, 0.0]], dtype=F64), torch.tensor([[0.01]], dtype=F64)
    rows = module._as_rows(mean, torch.tensor([[0.02, 5.0]], dtype=F64), tau)
    found = []
    for left in torch.linspace(-0.5, -0.02, 200, dtype=F64):
        panel = module.Panels(torch.tensor([0]), left[None], torch.tensor([0.6], dtype=F64))
        values = module._evaluate(rows, panel)
        sums = (values.log_rate + (values.total + values.log_weight).unsqueeze(1)).exp().sum(-1)
        missed = (sums.sum(1) - module._mass(rows, panel)).abs()
        found.append(torch.cat([missed, module._misses(rows, panel)]))
    missed, said = torch.stack(found).unbind(-1)
    assert float(missed.min()) < 1e-3
    assert float(said.min()) > 20 * float(missed.min())
    assert bool((said >= missed).all())
