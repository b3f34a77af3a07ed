"""Losses that limit the effect of a wrong label: GCE, its truncated form, bootstrapping."""

from __future__ import annotations

import torch
from torch import Tensor

from .._numbers import Number, check_choice, check_interval
from .._tensors import expect, prepare, reduce
from ._deformed import deformed_log

# Reed et al. use one weight for the target per kind.
DEFAULT_BETA = {"soft": 0.95, "hard": 0.8}


def gce(
    logits: Tensor,
    target: Tensor,
    *,
    q: Number = 0.7,
    dim: int = -1,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """Generalised cross-entropy, between log loss (q -> 0) and the unhinged loss 1 - p_y (q = 1).

        l = (1 - p_y^q)/q,    over a distribution: sum_k w_k (1 - p_k^q)/q

    Computed as -expm1(q log p)/q: the gradient p_y^q (p - e_y) is finite for every p_y, without a clip.

    Shapes: logits ``(..., C)``, target ``(...)`` integers or ``(..., C)`` floats; the classes lie on axis `dim`.

    Arguments:
        logits: real scores.
        target: class indices, or float weights over the classes.
        q: from 0 (log loss) to 1.
        dim, ignore_index, reduction: as in `nll`.

    Reference:
        Zhang and Sabuncu 2018, L_q

    Example:
        >>> logits = torch.tensor([[2.0, -1.0, 0.5], [0.1, 0.3, -0.2]])
        >>> gce(logits, torch.tensor([0, 2]), q=0.7, reduction="none")
        tensor([0.2220, 0.8871])
    """
    check_interval(q, "q", 0.0, 1.0)
    z, y, kept = prepare(logits, target, dim=dim, ignore_index=ignore_index)
    return reduce(_gce(z.log_softmax(-1), y, q=q), kept, reduction)


def _gce(log_p: Tensor, target: Tensor, *, q: Number = 0.7) -> Tensor:
    return -expect(deformed_log(log_p, q), target)


def truncated_gce(
    logits: Tensor,
    target: Tensor,
    *,
    q: Number = 0.7,
    k: Number = 0.5,
    dim: int = -1,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """Generalised cross-entropy that ignores examples whose label looks improbable.

        l = L_q(max(p_y, k)),    L_q(p) = (1 - p^q)/q

    Below k the loss is the constant L_q(k) and its gradient zero; k = 0 is `gce`.

    Shapes: logits ``(..., C)``, target ``(...)`` integers or ``(..., C)`` floats; the classes lie on axis `dim`.

    Arguments:
        logits: real scores.
        target: class indices, or float weights over the classes.
        q: from 0 to 1, as in `gce`.
        k: the probability below which an example is cut off, from 0 (never) to below 1.
        dim, ignore_index, reduction: as in `nll`.

    Reference:
        Zhang and Sabuncu 2018, truncated L_q

    Example:
        >>> logits = torch.tensor([[2.0, -1.0, 0.5], [0.1, 0.3, -0.2]])
        >>> truncated_gce(logits, torch.tensor([0, 2]), reduction="none")
        tensor([0.2220, 0.5492])
    """
    check_interval(q, "q", 0.0, 1.0)
    check_interval(k, "k", 0.0, 1.0, closed="left")
    z, y, kept = prepare(logits, target, dim=dim, ignore_index=ignore_index)
    return reduce(_truncated_gce(z.log_softmax(-1), y, q=q, k=k), kept, reduction)


def _truncated_gce(log_p: Tensor, target: Tensor, *, q: Number = 0.7, k: Number = 0.5) -> Tensor:
    floor = k if isinstance(k, Tensor) else torch.full((), k, dtype=log_p.dtype, device=log_p.device)
    return _gce(torch.where(log_p > floor.log(), log_p, floor.log()), target, q=q)


def bootstrap(
    logits: Tensor,
    target: Tensor,
    *,
    beta: Number | None = None,
    kind: str = "soft",
    detach: bool = False,
    dim: int = -1,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """Bootstrapping: the target is mixed with the model's own prediction.

        soft: l = - sum_k (beta w_k + (1 - beta) p_k) log p_k
        hard: l = - sum_k (beta w_k + (1 - beta) 1[k = argmax p]) log p_k

    Soft bootstrapping is beta CE + (1 - beta) H(p), and by default the gradient flows through the p in the
    target (minimum-entropy term). Ties of the argmax are shared.

    Shapes: logits ``(..., C)``, target ``(...)`` integers or ``(..., C)`` floats; the classes lie on axis `dim`.

    Arguments:
        logits: real scores.
        target: class indices, or float weights over the classes.
        beta: trust in the target, from 0 to 1; by default .95 for soft and .8 for hard.
        kind: "soft" or "hard".
        detach: treat the prediction in the target as a constant: same value, different gradient (soft only).
        dim, ignore_index, reduction: as in `nll`.

    Reference:
        Reed et al. 2014

    Example:
        >>> logits = torch.tensor([[2.0, -1.0, 0.5], [0.1, 0.3, -0.2]])
        >>> bootstrap(logits, torch.tensor([0, 2]), kind="hard", reduction="none")
        tensor([0.2413, 1.2859])
    """
    check_choice(kind, DEFAULT_BETA, "kind of bootstrap")
    if beta is not None:
        check_interval(beta, "beta", 0.0, 1.0)
    z, y, kept = prepare(logits, target, dim=dim, ignore_index=ignore_index)
    return reduce(_bootstrap(z.log_softmax(-1), y, beta=beta, kind=kind, detach=detach), kept, reduction)


def _bootstrap(
    log_p: Tensor, target: Tensor, *, beta: Number | None = None, kind: str = "soft", detach: bool = False
) -> Tensor:
    trust = DEFAULT_BETA[kind] if beta is None else beta
    if kind == "hard":
        own = log_p.amax(-1)
    else:
        p = log_p.exp()
        own = expect(log_p, p.detach() if detach else p)
    return -trust * expect(log_p, target) - (1 - trust) * own
