"""The error that the panels state, on rows where errors of single classes cancel in their sum."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dubito.integrals import all_classes as module
from dubito.integrals import panels as pieces
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
@pytest.mark.parametrize(("classes", "seed"), [(7, 3)])
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


def test_a_panel_is_not_too_long_for_a_class_in_it():
    """One that spans more than ten widths of a class is halved, unless G is below -18 at its right end."""
    rows = module._as_rows(*hostile(5, 60, 5))
    seen = set()
    for row in range(60):
        mean, width = rows.mean[row], rows.width[row]
        top = float((mean + width).max())
        for left, length in ((top - 9.0, 8.0), (top - 1.0, 2.0), (top - 0.02, 0.03), (top - 40.0, 30.0)):
            one = pieces.Panels(torch.tensor([row]), mean.new_tensor([left]), mean.new_tensor([length]))
            spans = (mean + 3 * width > left) & (mean - 3 * width < left + length) & (length > 10 * width)
            x = ((left + length - mean) / width).unsqueeze(-1)
            m, _, _ = pieces.rough(
                rows.table, x, rows.cell[row].unsqueeze(-1), rows.offset[row].unsqueeze(-1)
            )
            deep = float(m.exp().sum()) >= 18
            assert bool(pieces.hiding(rows, one)) == (bool(spans.any()) and not deep)
            seen.add((bool(spans.any()), deep))
    assert len(seen) == 4
    found, _ = pieces.refine(rows, 1e-2)
    assert not bool(pieces.hiding(rows, found).any())


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_gradients_of_a_class_that_hides(dtype):
    """A class of width 0.013 beside one of 50: its probability is within the tolerance at any step."""
    mean = torch.tensor([[0.0, 3.0, 1.0]], dtype=dtype)
    scale = torch.tensor([[50.0, 1e-3, 0.5]], dtype=dtype)
    found = []
    for tol in (1e-2 if dtype == F64 else 1e-3, 1e-9):
        inputs = [x.clone().requires_grad_() for x in (mean, scale)]
        p = module.all_classes(*inputs, torch.full((1, 1), 0.01, dtype=dtype), tol)[0].exp()
        found.append(torch.autograd.grad(p[0, 1], inputs))
    for coarse, fine in zip(*found):
        torch.testing.assert_close(coarse, fine, rtol=0, atol=2e-3 * float(fine.abs().max()))


def test_coefficients_of_an_expansion():
    """Of the integrand on a panel, in Legendre polynomials of norm 1, by the rule's own nodes."""
    nodes, weights = np.polynomial.legendre.leggauss(8)
    values = np.exp(nodes) / (2 + nodes)
    found = torch.from_numpy(values * weights / 2) @ pieces.last_coefficients(8, torch.zeros(0, dtype=F64))
    wanted = [np.polynomial.legendre.legfit(nodes, values, 7)[k] / np.sqrt(2 * k + 1) for k in (0, 6, 7)]
    np.testing.assert_allclose(np.abs(found.numpy()), np.abs(wanted), rtol=1e-9)


def test_two_classes_whose_errors_cancel():
    """A step of one class under a density of another: the sum over both misses little, each of them much."""
    mean, tau = torch.tensor([[0.0, 0.0]], dtype=F64), torch.tensor([[0.01]], dtype=F64)
    rows = module._as_rows(mean, torch.tensor([[0.02, 5.0]], dtype=F64), tau)
    found = []
    for left in torch.linspace(-0.5, -0.02, 200, dtype=F64):
        panel = pieces.Panels(torch.tensor([0]), left[None], torch.tensor([0.6], dtype=F64))
        values = pieces.evaluate(rows, panel)
        sums = (values.log_rate + (values.total + values.log_weight).unsqueeze(1)).exp().sum(-1)
        missed = (sums.sum(1) - pieces._mass(rows, panel)).abs()
        found.append(torch.cat([missed, pieces._misses(rows, panel)]))
    missed, said = torch.stack(found).unbind(-1)
    assert float(missed.min()) < 1e-3
    assert float(said.min()) > 20 * float(missed.min())
    assert bool((said >= missed).all())
