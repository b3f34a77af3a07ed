"""Negative log-likelihood, linear in the target, which may come from smoothing, smearing or correction."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from .._tensors import checks_values, expect, prepare, reduce


def nll(
    logits: Tensor, target: Tensor, *, dim: int = -1, ignore_index: int = -100, reduction: str = "mean"
) -> Tensor:
    """Negative log-likelihood of class indices, or of any real weights over the classes.

        l = - sum_k w_k log p_k,    p = softmax(logits)

    The weights need not be a distribution: smeared targets (`dubito.targets.smear`) may be negative, and the
    loss is then unbounded below. With indices or a distribution this is `torch.nn.functional.cross_entropy`.

    Shapes: logits ``(..., C)``, target ``(...)`` integers or ``(..., C)`` floats; the classes lie on axis `dim`.

    Arguments:
        logits: real scores.
        target: class indices, or float weights over the classes.
        dim: the axis of the classes; 1 for images.
        ignore_index: integer targets with this value do not count.
        reduction: "mean" over what is kept (0 over nothing), "sum" or "none".

    Reference:
        lukasik2020 eq. 1, eq. 4, sec. 3.1

    Example:
        >>> import torch
        >>> logits = torch.tensor([[2.0, -1.0, 0.5], [0.1, 0.3, -0.2]])
        >>> nll(logits, torch.tensor([0, 2]), reduction="none")
        tensor([0.2413, 1.3859])
    """
    z, y, kept = prepare(logits, target, dim=dim, ignore_index=ignore_index)
    return reduce(_nll(z.log_softmax(-1), y), kept, reduction)


def _nll(log_p: Tensor, target: Tensor) -> Tensor:
    if target.dtype == torch.int64 and log_p.dim() == 2 and checks_values(log_p):
        # The same numbers as below in half the time, which matters for small networks on the CPU.
        return F.nll_loss(log_p, target, reduction="none")
    return -expect(log_p, target)
