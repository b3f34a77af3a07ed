"""The links of captured steps: kernels of the library that a graph can hold, for they ask the device nothing."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from dubito.integrals.noise import sobol_bank
from dubito.integrals.quick import QuickClasses

TOLERANCE = {"log_probs": 1e-4, "full": 2e-5}  # those of the library: of a probability, of a log-likelihood
BANKS = 64
MORE = ((256, 8), (1024, 32))  # nodes of the further rules, and which share of all rows they take


def fixed_link(mean: Tensor, scale: Tensor, tau: Tensor, nodes: int) -> tuple[Tensor, Tensor]:
    """`expected_log_softmax` of rows ``(B, K)`` without a branch on values, and how many it leaves unfinished."""
    log_p, error = by_kernels(mean, scale, tau) if mean.is_cuda else worst_again(mean, scale, tau, nodes)
    missed = (~(error <= TOLERANCE["log_probs"])).sum()
    log_p = torch.where(error.isfinite().unsqueeze(-1), log_p, -math.log(log_p.shape[-1]))
    return log_p - torch.logsumexp(log_p, -1, keepdim=True), missed


def by_kernels(mean: Tensor, scale: Tensor, tau: Tensor) -> tuple[Tensor, Tensor]:
    """The kernels, which go on by themselves with rows that are not good enough."""
    from dubito.integrals.fused_all import _Classes

    return _Classes.apply(mean, scale, tau, TOLERANCE["log_probs"])  # type: ignore[no-any-return, no-untyped-call]


def worst_again(
    mean: Tensor, scale: Tensor, tau: Tensor, nodes: int, rule: Any = QuickClasses
) -> tuple[Tensor, Tensor]:
    """All rows by a few nodes, then the worst of them by more."""
    log_p, error = rule.apply(mean, scale, tau, nodes)
    for more, share in MORE:
        worst = error.topk(max(1, len(error) // share)).indices
        picked = (x.index_select(0, worst) for x in (mean, scale, tau))
        better, closer = rule.apply(*picked, more)
        log_p, error = log_p.index_copy(0, worst, better), error.index_copy(0, worst, closer)
    return log_p, error


def likelihood(mean: Tensor, scale: Tensor, tau: Tensor, target: Tensor) -> tuple[Tensor, ...]:
    """log p of the observed class of each row, its error, and the gradients in mean and scale, by the kernel."""
    from dubito.integrals import triton_quadrature

    return triton_quadrature.nll(mean, scale, tau, target, TOLERANCE["full"], ignore=-100)[:4]


class Full(torch.autograd.Function):
    """log p of the observed class at every pixel of the full size, by kernels alone; and the rows that they missed.

    Exact, or the average over a bank of quasi-random points ``(S, K)``, of which none can be missed.
    """

    @staticmethod
    def forward(
        ctx: Any, mean: Tensor, scale: Tensor, tau: Tensor, target: Tensor, bank: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        rows = mean.contiguous(), scale.contiguous()
        if bank is None:
            log_p, error, d_mean, d_scale = likelihood(*rows, tau, target)
            missed = (~(error <= TOLERANCE["full"] + 3e-7 * log_p.abs())).sum()
        else:
            from dubito.integrals import triton_qmc

            log_p, d_mean, d_scale = triton_qmc.nll(*rows, tau, target, bank, ignore=-100)[:3]
            missed = (~log_p.isfinite()).sum()
        ctx.save_for_backward(d_mean.nan_to_num(0.0, 0.0, 0.0), d_scale.nan_to_num(0.0, 0.0, 0.0))
        ctx.mark_non_differentiable(missed)
        return log_p.nan_to_num(0.0, 0.0, -100.0), missed

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        d_mean, d_scale = ctx.saved_tensors
        return grad.unsqueeze(-1) * d_mean, grad.unsqueeze(-1) * d_scale, None, None, None


def banks_of(points: int | None, classes: int, device: torch.device) -> Tensor | None:
    """Banks of quasi-random points, one of which each step takes."""
    if points is None:
        return None
    drawn = [sobol_bank(points, classes, 0, i, "normal", device, torch.float32)[0] for i in range(BANKS)]
    return torch.stack(drawn)
