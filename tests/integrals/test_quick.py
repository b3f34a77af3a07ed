"""Equal steps for all classes: value, gradients and error against panels in float64; on a GPU the kernel too."""

from __future__ import annotations

import pytest
import softmax_rows as families
import torch

from dubito.integrals import expected_log_softmax
from dubito.integrals.all_classes import AllClasses
from dubito.integrals.quick import NODES, QuickClasses, quick

KINDS = [
    ("ordinary", 0.05),
    ("ordinary", 1.0),
    ("ordinary", 10.0),
    ("lognormal", 0.3),
    ("shifted", 0.5),
    ("far", 1.0),
]


def reference(mean, scale, tau):
    log_p, _ = AllClasses.apply(mean.double(), scale.double(), tau.double(), 1e-9)
    return log_p - log_p.logsumexp(-1, keepdim=True)


def compare(kind, tau, device):
    """Probabilities to 2e-5 where the rule says so, log p of what is not tiny and its gradients to 2e-2."""
    mean, scale, temperature, _ = (x.to(device) for x in families.rows(kind, tau, 7, 48))
    fast = [x.float().requires_grad_() for x in (mean, scale, temperature)]
    slow = [x.detach().double().cpu().requires_grad_() for x in fast]
    log_p, error, hard = quick(*fast, 1e-4)
    wanted = reference(*slow)
    fine = (error <= 1e-4).cpu()
    assert (hard is None) == bool(fine.all())
    assert bool(fine.float().mean() > 0.7)
    off = (log_p.detach().double().cpu().exp() - wanted.detach().exp()).abs()
    assert float(off[fine].max()) < 2e-5
    likely = (wanted.detach() > -20) & fine.unsqueeze(-1)
    assert float((log_p.detach().double().cpu() - wanted.detach()).abs()[likely].max()) < 2e-2
    weights = torch.where(
        likely,
        torch.randn(wanted.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1)),
        0.0,
    )
    found = torch.autograd.grad((log_p * weights.to(log_p)).sum(), fast)
    exact = torch.autograd.grad((wanted * weights).sum(), slow)
    for a, b in zip(found, exact):
        assert float((a.double().cpu() - b)[fine].abs().max()) < 0.02 * float(b[fine].abs().max()) + 1e-4


@pytest.mark.paper("collier2020 eq. 6")
@pytest.mark.parametrize(("kind", "tau"), KINDS)
def test_against_panels(kind, tau):
    compare(kind, tau, "cpu")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize(("kind", "tau"), KINDS)
def test_kernel_against_panels(kind, tau):
    compare(kind, tau, "cuda")


def test_rows_that_miss_are_found():
    """Widths of 0.001 beside 50: few steps cannot resolve them, and the error says so."""
    mean, scale, temperature, _ = families.rows("extreme", 0.01, 7, 40)
    mean, scale, temperature = mean.float(), scale.float().clamp(min=1e-3), temperature.float()
    log_p, error = QuickClasses.apply(mean, scale, temperature, NODES[0])
    wanted = reference(mean, scale, temperature).exp()
    off = (log_p.double().exp() - wanted).abs().amax(-1)
    assert bool((error > 1e-4).any())
    assert float(off[error <= 1e-4].max()) < 1e-4


def test_all_rows_within_the_tolerance_in_the_end():
    """What equal steps miss goes to the panels: every row, and gradients that no lost row spoils."""
    mean, scale, temperature, _ = families.rows("extreme", 0.01, 7, 24)
    inputs = [x.float().requires_grad_() for x in (mean, scale.clamp(min=1e-3))]
    log_p = expected_log_softmax(*inputs, temperature=0.01)
    wanted = reference(inputs[0].detach(), inputs[1].detach(), temperature.float())
    assert float((log_p.detach().double().exp() - wanted.exp()).abs().max()) < 1e-4
    grads = torch.autograd.grad(log_p.exp().square().sum(), inputs)
    assert all(bool(g.isfinite().all()) for g in grads)
