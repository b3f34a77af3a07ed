"""Links: a latent -> log-probabilities of the true class.

Class axis last (`dim` moves it for images), log-probabilities out, float32 at least. A temperature always
divides logits. Every link is found here: the softmaxes below, the expected softmax of a Gaussian latent
(`dubito.integrals`) and the heavy-tailed softmax of the bi-tempered loss (`dubito.losses.bi_tempered`).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from ._tensors import (
    at_least_float32,
    check_axis,
    check_broadcast,
    check_classes,
    check_floating,
    checks_values,
)
from .errors import DubitoError
from .integrals import (
    BoundedTemperature,
    expected_log_sigmoid,
    expected_log_softmax,
    expected_sigmoid,
    expected_softmax_nll,
    predictive_variance,
    sampled_log_softmax,
)
from .integrals.sampled import hard_log_softmax
from .losses.bi_tempered import tempered_log_softmax, tempered_softmax

__all__ = [
    "BoundedTemperature",
    "centred_log_softmax",
    "centred_logits",
    "expected_log_sigmoid",
    "expected_log_softmax",
    "expected_sigmoid",
    "expected_softmax_nll",
    "log_softmax",
    "logistic_normal_log_softmax",
    "predictive_variance",
    "sampled_log_softmax",
    "tempered_log_softmax",
    "tempered_softmax",
]


def log_softmax(logits: Tensor, temperature: float | Tensor = 1.0, *, dim: int = -1) -> Tensor:
    """Log-probabilities of a softmax at a temperature.

        log p_k = z_k / tau - log sum_j exp(z_j / tau)
        tau = 0:  p_k = 1 / (number of maxima) where z_k is maximal, else 0, with zero gradient

    Shapes: logits ``(..., K)`` -> ``(..., K)``.

    Arguments:
        temperature: at least 0; a tensor (learned, or one per example as ``(..., 1)``) must be positive.
        dim: the class axis.

    Reference:
        collier2020 eq. 6

    Example:
        >>> log_softmax(torch.tensor([1.0, 0.0, 1.0]), 0.0).exp()
        tensor([0.5000, 0.0000, 0.5000])
    """
    check_floating(logits, "logits")
    check_temperature(temperature)
    check_axis(logits, dim, "logits")
    check_classes(logits.movedim(dim, -1), "logits")
    check_broadcast(logits=logits.movedim(dim, -1), temperature=temperature)
    return _log_softmax(at_least_float32(logits).movedim(dim, -1), temperature).movedim(-1, dim)


def centred_log_softmax(z: Tensor, temperature: float | Tensor = 1.0) -> Tensor:
    """Log of the centred softmax S_C: the last of n + 1 classes has logit 0.

        S_C(z) = softmax([z_1 / tau, ..., z_n / tau, 0])

    Shapes: z ``(..., n)`` -> ``(..., n + 1)``. Arguments: as for `log_softmax`.

    Reference:
        englesson2023 eq. 3, eq. 10

    Example:
        >>> centred_log_softmax(torch.zeros(2)).exp()
        tensor([0.3333, 0.3333, 0.3333])
    """
    check_floating(z, "z")
    check_temperature(temperature)
    padded = F.pad(at_least_float32(z), (0, 1))
    check_broadcast(z=padded, temperature=temperature)
    return _log_softmax(padded, temperature)


def centred_logits(log_p: Tensor, temperature: float | Tensor = 1.0) -> Tensor:
    """Inverse of the centred softmax: probabilities back to logits relative to the last class.

        S_C^(-1)(p)_k = tau log(p_k / p_{n+1}),   k = 1 ... n

    Shapes: log_p ``(..., n + 1)`` -> ``(..., n)``. Arguments: as for `log_softmax`.

    Reference:
        englesson2023 eq. 11

    Example:
        >>> centred_logits(centred_log_softmax(torch.tensor([1.0, -2.0]), 0.5), 0.5)
        tensor([ 1., -2.])
    """
    check_floating(log_p, "log_p")
    check_temperature(temperature)
    log_p = at_least_float32(log_p)
    logits = log_p[..., :-1] - log_p[..., -1:]
    check_broadcast(logits=logits, temperature=temperature)
    return temperature * logits


def logistic_normal_log_softmax(
    mean: Tensor, temperature: float | Tensor = 1.0, *, dummy: bool = True
) -> Tensor:
    """The prediction of a logistic-normal model: the softmax of its mean, over the K real classes.

        with a dummy class:  S_C(mean / tau) without its last entry, renormalised = softmax(mean / tau)
        without:             S_C(mean / tau)

    Shapes: mean ``(..., K)`` with a dummy class, ``(..., K - 1)`` without -> ``(..., K)``.

    Arguments:
        dummy: as given to the head and the loss.

    Reference:
        englesson2023 eq. 3, eq. 10

    Example:
        >>> logistic_normal_log_softmax(torch.zeros(3), dummy=False).shape
        torch.Size([4])
    """
    return log_softmax(mean, temperature) if dummy else centred_log_softmax(mean, temperature)


def check_temperature(temperature: float | Tensor) -> None:
    """Refuse negative temperatures, and zero or negative ones in a tensor."""
    if isinstance(temperature, Tensor):
        if temperature.is_complex():
            raise DubitoError("a temperature must be real", got=str(temperature.dtype))
        if checks_values(temperature) and not bool((temperature > 0).all()):
            raise DubitoError("a temperature tensor must be positive", got=float(temperature.min()))
    elif not 0 <= temperature < float("inf"):
        raise DubitoError("temperature must be finite and at least 0", got=temperature)


def _log_softmax(z: Tensor, temperature: float | Tensor) -> Tensor:
    if not isinstance(temperature, Tensor) and temperature == 0:
        return _log_argmax(z)
    if not isinstance(temperature, Tensor) and temperature == 1:
        return z.log_softmax(-1)
    # Centred first: z / tau may overflow although only differences of z matter.
    return ((z - z.detach().amax(-1, keepdim=True)) / temperature).log_softmax(-1)


def _log_argmax(z: Tensor) -> Tensor:
    # Tied to z with zero gradient, so that a model at temperature 0 can still be differentiated.
    return torch.where(torch.zeros_like(z, dtype=torch.bool), z, hard_log_softmax(z))
