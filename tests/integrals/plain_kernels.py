"""The fused kernels written out in plain torch, as modules that can stand in for them."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from dubito.integrals import quadrature, quick


def by_autograd(work: Any, inputs: tuple[Any, ...], grad: Tensor | None = None) -> tuple[Tensor, list[Any]]:
    """A value and its gradients in the inputs that are tensors of floats."""
    with torch.enable_grad():
        given = [x.detach().clone().requires_grad_() if isinstance(x, Tensor) else x for x in inputs]
        value = work(*given)
        wanted = [x for x in given if isinstance(x, Tensor)]
        found = iter(torch.autograd.grad((value * (1 if grad is None else grad)).sum(), wanted))
    return value.detach(), [next(found) if isinstance(x, Tensor) else None for x in given]


def over_bank(mean: Tensor, scale: Tensor, tau: Tensor, bank: Tensor) -> Tensor:
    """log of the softmax averaged over a bank (S, K) shared by the rows."""
    u = mean + scale * bank.unsqueeze(1).to(mean)
    return (u / tau).softmax(-1).mean(0).log()


def draws() -> ModuleType:
    made: Any = ModuleType("dubito.integrals.triton_draws")
    made.MOST_CLASSES, made.MOST_FACTORS = 8, 4

    def average(mean, scale, factors, tau, noise, shared):
        u = mean.unsqueeze(1) + scale.unsqueeze(1) * noise.unsqueeze(2)
        if factors is not None:
            u = u + torch.einsum("gbkr,gsr->gsbk", factors, shared)
        return (u / tau.unsqueeze(1).unsqueeze(-1)).softmax(-1).mean(1).log()

    def backward(mean, scale, factors, tau, noise, shared, log_p, grad):
        body = lambda m, s, f, t: average(m, s, f, t, noise, shared)  # noqa: E731
        return by_autograd(body, (mean, scale, factors, tau), grad)[1]

    made.forward, made.backward = average, backward
    return made


def qmc() -> ModuleType:
    made: Any = ModuleType("dubito.integrals.triton_qmc")
    made.MOST_CLASSES = 8

    def of_target(mean, scale, tau, target, bank):
        body = lambda m, s, t: over_bank(m, s, t, bank).gather(-1, target.unsqueeze(-1)).squeeze(-1)  # noqa: E731
        log_p, gradients = by_autograd(body, (mean, scale, tau.expand(len(mean), 1)))
        return log_p, *gradients

    def backward(mean, scale, tau, bank, log_p, grad):
        return by_autograd(lambda m, s, t: over_bank(m, s, t, bank), (mean, scale, tau), grad)[1]

    made.nll, made.forward, made.backward = of_target, over_bank, backward
    return made


def all_classes(hard: Tensor | None = None) -> ModuleType:
    """The rule of 64 nodes, which may say of some rows that it has failed."""
    made: Any = ModuleType("dubito.integrals.triton_all")

    def forward(mean, scale, tau, tol):
        log_p, error, low, step = quick._forward(64, mean, scale, tau.expand(len(mean), 1))
        norm = log_p.logsumexp(-1)
        if hard is not None:
            log_p[hard], error[hard] = 7.0, torch.inf
        return log_p - norm.unsqueeze(-1), error, torch.stack([low, step, norm, torch.full_like(low, 64)])

    def backward(mean, scale, tau, log_p, places, grad, heat):
        low, step, norm, _ = places
        inner = grad - log_p.exp() * grad.sum(-1, keepdim=True)
        given = (mean, scale, tau.expand(len(mean), 1), log_p + norm.unsqueeze(-1), low, step, inner)
        idle = (grad == 0).all(-1, keepdim=True)
        return tuple(torch.where(idle, 0.0, d) for d in quick._backward(64, *given))

    made.forward, made.backward = forward, backward
    return made


def means() -> ModuleType:
    made: Any = ModuleType("dubito.integrals.triton_mean")

    def mean_of(log_p, target, ignore, error=None, tol=0.0, allowed=0.0):
        number = (target != ignore).sum().clamp(min=1)
        missed = 0 if error is None else int((~(error <= tol + allowed * log_p.abs())).sum())
        return -log_p.sum() / number, torch.stack([-1 / number, torch.tensor(float(missed))])

    made.mean_of = mean_of
    made.count_missed = lambda error, tol: int((~(error <= tol)).sum())
    made.scaled = lambda d_mean, d_scale, grad, facts: tuple(d * grad * facts[0] for d in (d_mean, d_scale))
    return made


def exact(hard: Tensor) -> ModuleType:
    """The quadrature, which says of some rows that it has failed."""
    made: Any = ModuleType("dubito.integrals.triton_quadrature")
    made.ALLOWED = 3e-7

    def of_target(mean, scale, tau, target, tol, ignore=-1, heat=True):
        found, _ = quadrature.solve(
            mean.double(), scale.double(), tau.double().expand(len(mean), 1), target, 1e-9
        )
        parts = [
            x.float() for x in (found.log_p, found.error, found.d_mean, found.d_scale, found.d_temperature)
        ]
        for i, part in enumerate(parts):
            part[hard] = torch.inf if i == 1 else 7.0
        return tuple(parts)

    made.nll = of_target
    return made
