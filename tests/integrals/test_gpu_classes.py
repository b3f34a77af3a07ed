"""All classes by the fused kernels against panels in float64. Needs a CUDA device and Triton."""

from __future__ import annotations

import pytest
import softmax_rows as families
import torch

from dubito.integrals import expected_log_softmax
from dubito.integrals.all_classes import AllClasses

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]

KINDS = [
    *[("ordinary", tau, classes) for tau in (0.05, 1.0, 5.0) for classes in (2, 11, 21, 40)],
    ("lognormal", 0.02, 10),
    ("lognormal", 0.3, 10),
    ("extreme", 0.01, 10),
    ("extreme", 1.0, 10),
    ("far", 1.0, 21),
    ("shifted", 0.5, 21),
]


@pytest.mark.parametrize(("kind", "tau", "classes"), KINDS)
def test_probabilities_and_gradients(kind, tau, classes):
    """Probabilities within the tolerance, whichever rule a row took; gradients of a random weighting of log p."""
    mean, scale, temperature, _ = families.rows(kind, tau, classes, 96)
    weight = torch.rand(mean.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    inputs = [x.float().cuda().requires_grad_() for x in (mean, scale, temperature)]
    reports = []
    log_p = expected_log_softmax(*inputs[:2], temperature=inputs[2], report=reports.append)
    exact = [x.detach().double().cpu().requires_grad_() for x in inputs]
    right, _ = AllClasses.apply(*exact, 1e-8)
    right = right - right.logsumexp(-1, keepdim=True)
    off = (log_p.detach().cpu().double().exp() - right.detach().exp()).abs().amax(-1)
    said = reports[0].error.cpu()
    assert bool((off <= 1e-4).all()) or bool((off <= said + 1e-6).all())
    assert reports[0].reached
    # p log p: what a loss over all classes feels, tiny probabilities little
    grads = torch.autograd.grad((log_p.exp() * weight.float().cuda()).sum(), inputs)
    wanted = torch.autograd.grad((right.exp() * weight).sum(), exact)
    for got, true in zip(grads[:2], wanted[:2]):
        size = true.abs().amax(-1) + 1e-3
        assert float(((got.cpu().double() - true).abs().amax(-1) / size).max()) < 2e-2


def test_one_number_and_leading_shapes():
    """The short way for plain inputs gives what the long one gives."""
    mean, scale, temperature, _ = (x.float().cuda() for x in families.rows("ordinary", 0.7, 11, 60))
    long = expected_log_softmax(mean, scale, temperature=temperature)
    short = expected_log_softmax(mean, scale, temperature=0.7)
    torch.testing.assert_close(short, long)
    shaped = expected_log_softmax(mean.reshape(3, 20, 11), scale.reshape(3, 20, 11), temperature=0.7)
    torch.testing.assert_close(shaped.reshape(60, 11), short)
    first = expected_log_softmax(mean.T, scale.T, temperature=0.7, dim=0)
    torch.testing.assert_close(first.T, short)


@pytest.mark.parametrize("classes", [5, 40])
def test_a_row_that_is_not_a_number_is_not_called_good(classes):
    """By either kernel, few classes or many; the row beside it is untouched."""
    from dubito.integrals import triton_all, triton_quadrature

    mean, scale, _, target = (x[:2].cuda() for x in families.rows("ordinary", 1.0, classes, 8))
    mean[0, 3] = torch.nan
    tau = torch.ones(1, 1, device="cuda")
    inputs = mean.float(), scale.float(), tau
    for error in (triton_all.forward(*inputs, 1e-4)[1], triton_quadrature.nll(*inputs, target)[1]):
        assert not bool(error[0] <= 1.0)
        assert bool(error[1] <= 1e-4)
