"""Negative log-likelihood of the logistic-normal: a Gaussian over the logits of a slightly smoothed label."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .._numbers import Number, check_choice, check_interval
from .._tensors import as_weights, check_floating, from_half, prepare, reduce
from ..errors import DubitoError
from ..heads import COVARIANCES


def logistic_normal_nll(
    mean: Tensor,
    root: Tensor | None,
    target: Tensor,
    *,
    lam: Number,
    temperature: Number = 1.0,
    smoothing: Number = 0.01,
    dummy: bool = True,
    covariance: str = "full",
    normalized: bool = False,
    dim: int = -1,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """Logistic-normal NLL: the label's logit is Gaussian around `mean`, with a covariance for each example.

        l = ( r' Sigma^-1 r + log det Sigma ) / 2,    r = y - mean,    Sigma^(1/2) = c c' + lam I,    c = root
        y = tau (log s_{1..D} - log s_n),    s = (1 - t) w + t/n,    n = D + 1

    w is the one-hot label (or a distribution), t the smoothing, tau the temperature. With a dummy class n = K + 1
    and y = tau C e_label, C = log(((1-t) n + t)/t). Without one n = K, and the last class is the reference, whose
    label has y = -tau C in every component. Rank-one identities give everything in O(D), without forming a matrix:

        r' Sigma^-1 r = | r - c (c.r)/(lam + c.c) |^2 / lam^2
        log det Sigma = 2 (D - 1) log lam + 2 log(lam + c.c)

    The other covariances have the root lam + c_k^2 per class (diagonal), lam + c^2 (isotropic) or 1 (identity).

    Shapes: mean ``(..., D)`` with D = K (dummy) or K - 1; root like mean, ``(..., 1)`` for isotropic, None or
    anything for identity; target ``(...)`` integers below K or ``(..., K)`` floats.

    Arguments:
        mean, root: parameters of the latent logits. root = 0 is a stationary point: never start there.
        target: class indices, or a distribution over the K classes.
        lam: lambda > 0; residuals above it are attenuated.
        temperature: tau > 0, the length of the target logits.
        smoothing: t, above 0 and below 1.
        dummy: whether the reference is an extra class, so that the K classes are treated alike.
        covariance: "full", "diagonal", "isotropic" or "identity".
        normalized: add the constants of the density on the simplex,
            (D/2) log 2 pi + sum_{k=1..n} log s_k - D log tau.
        dim, ignore_index, reduction: as in `nll`.

    Reference:
        englesson2023 eq. 1, eq. 2, eq. 3, eq. 4, eq. 5, eq. 6, eq. 7, eq. 8, eq. 9, eq. 10, eq. 11, eq. 12
        englesson2023 eq. 15, eq. 16, eq. 17, eq. 18, eq. 19, eq. 20, eq. 21, eq. 22, eq. 23, eq. 24, eq. 25, eq. 26

    Example:
        >>> mean, root = torch.tensor([[0.5, -0.2, 1.0]]), torch.tensor([[0.3, -0.6, 0.9]])
        >>> logistic_normal_nll(mean, root, torch.tensor([0]), lam=0.5, temperature=0.5)
        tensor(13.5705)
    """
    check_interval(lam, "lam", 0.0, closed="neither")
    check_interval(temperature, "temperature", 0.0, closed="neither")
    check_interval(smoothing, "smoothing", 0.0, 1.0, closed="neither")
    check_floating(mean, "mean")
    _check_root(mean, root, covariance, dim)
    mean = from_half(mean)  # the gradient grows as r^2 / lam^2: 1e8 for residuals of 1e4, beyond float16
    scores = mean if dummy else _with_reference(mean, dim)
    z, y, kept = prepare(scores, target, dim=dim, ignore_index=ignore_index, distribution=True)
    losses = _logistic_normal(
        z if dummy else z[..., :-1],
        None if root is None or covariance == "identity" else from_half(root).movedim(dim, -1),
        y,
        lam=lam,
        temperature=temperature,
        smoothing=smoothing,
        dummy=dummy,
        covariance=covariance,
        normalized=normalized,
    )
    return reduce(losses, kept, reduction)


def _logistic_normal(
    mean: Tensor,
    root: Tensor | None,
    target: Tensor,
    *,
    lam: Number,
    temperature: Number = 1.0,
    smoothing: Number = 0.01,
    dummy: bool = True,
    covariance: str = "full",
    normalized: bool = False,
) -> Tensor:
    size = mean.shape[-1]
    log_s, log_reference = _log_smoothed(target, size, smoothing, dummy, mean.dtype)
    residual = temperature * (log_s - log_reference) - mean
    quadratic, log_det = _gaussian(residual, root, lam, covariance)
    losses = (quadratic + log_det) / 2
    if normalized:
        jacobian = (log_s.sum(-1, keepdim=True) + log_reference).squeeze(-1)
        losses = losses + jacobian + size * (math.log(2 * math.pi) / 2 - _log(temperature))
    return losses


def _log_smoothed(
    target: Tensor, size: int, smoothing: Number, dummy: bool, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """log s for the first D outcomes and for the reference outcome (the dummy, or the last class)."""
    outcomes = size + 1
    weights = as_weights(target, size if dummy else outcomes, dtype)
    log_s = ((1 - smoothing) * weights + smoothing / outcomes).log()
    if dummy:
        return log_s, torch.zeros_like(log_s[..., :1]) + _log(smoothing / outcomes)
    return log_s[..., :-1], log_s[..., -1:]


def _gaussian(residual: Tensor, root: Tensor | None, lam: Number, covariance: str) -> tuple[Tensor, Tensor]:
    """(r' Sigma^-1 r, log det Sigma)."""
    if covariance == "identity" or root is None:
        return residual.square().sum(-1), torch.zeros_like(residual[..., 0])
    if covariance == "full":
        widened = lam + root.square().sum(-1, keepdim=True)
        along = (root * residual).sum(-1, keepdim=True) / widened
        log_det = 2 * (residual.shape[-1] - 1) * _log(lam) + 2 * widened.squeeze(-1).log()
        return ((residual - root * along) / lam).square().sum(-1), log_det
    scale = (lam + root.square()).expand_as(residual)
    return (residual / scale).square().sum(-1), 2 * scale.log().sum(-1)


def _with_reference(mean: Tensor, dim: int) -> Tensor:
    """One more column, so that `prepare` sees K classes; the value for the reference class is not used."""
    return torch.cat([mean, mean.narrow(dim, 0, 1)], dim)


def _log(value: Number) -> Number:
    return value.log() if isinstance(value, Tensor) else math.log(value)


def _check_root(mean: Tensor, root: Tensor | None, covariance: str, dim: int) -> None:
    check_choice(covariance, COVARIANCES, "covariance")
    if covariance == "identity" or not -mean.dim() <= dim < mean.dim():
        return
    expected = list(mean.shape)
    if covariance == "isotropic":
        expected[dim] = 1
    if root is None or not root.is_floating_point() or root.shape != torch.Size(expected):
        got = None if root is None else f"{root.dtype} of shape {tuple(root.shape)}"
        raise DubitoError(
            f"root does not match mean for covariance={covariance!r}", expected=tuple(expected), got=got
        )
