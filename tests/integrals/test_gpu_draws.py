"""Fused averages over given draws against the eager path in float64. Needs a CUDA device and Triton."""

from __future__ import annotations

import pytest
import torch

from dubito.integrals import sampled_log_softmax

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


def inputs(rows, classes, rank, draws, *runs):
    source = torch.Generator().manual_seed(classes + 10 * rank)
    made = {
        "mean": torch.randn(*runs, rows, classes, generator=source),
        "scale": 2 * torch.rand(*runs, rows, classes, generator=source),
        "noise": torch.randn(*runs, draws, 1, classes, generator=source),
    }
    if rank:
        made["factors"] = torch.randn(*runs, rows, classes, rank, generator=source)
        made["factor_noise"] = torch.randn(*runs, draws, 1, rank, generator=source)
    return made


def value_and_gradients(given, temperature, runs):
    def one(values, tau):
        return sampled_log_softmax(**values, temperature=tau)

    learned = [given[k].requires_grad_() for k in ("mean", "scale", "factors") if k in given]
    tau = torch.as_tensor(temperature).to(learned[0]).requires_grad_()
    found = torch.vmap(one)(given, tau) if runs else one(given, tau)
    weights = torch.linspace(-1, 1, found.numel(), dtype=torch.float64).reshape(found.shape)
    return [found, *torch.autograd.grad((found * weights.to(found)).sum(), [*learned, tau])]


@pytest.mark.parametrize(("classes", "rank"), [(2, 0), (10, 0), (10, 10), (21, 3), (100, 0), (100, 15)])
@pytest.mark.parametrize("temperature", [0.1, 1.0])
def test_equals_the_eager_path(classes, rank, temperature):
    given = inputs(33, classes, rank, 250)
    fast = {k: v.float().cuda() for k, v in given.items()}
    slow = {k: v.double() for k, v in given.items()}
    for a, b in zip(value_and_gradients(fast, temperature, 0), value_and_gradients(slow, temperature, 0)):
        assert float((a.double().cpu() - b).abs().max()) < 1e-4 * (1 + float(b.abs().max()))


@pytest.mark.parametrize("rank", [0, 10])
def test_mapped_runs_keep_their_own_draws_and_temperature(rank):
    given, temperature = inputs(17, 10, rank, 100, 3), [0.2, 1.0, 4.0]
    fast = {k: v.float().cuda() for k, v in given.items()}
    slow = {k: v.double() for k, v in given.items()}
    for a, b in zip(value_and_gradients(fast, temperature, 3), value_and_gradients(slow, temperature, 3)):
        assert float((a.double().cpu() - b).abs().max()) < 1e-4 * (1 + float(b.abs().max()))
