"""Targets: functions from labels to weights over the classes ``(..., C)``, which the loss then reads.

The negative log-likelihood is linear in these weights, so smoothing, smearing by any matrix, backward correction
and stochastic label noise are all one tensor handed to `dubito.nll`. Weights are made in float64 where the
device has it, unless `dtype` says otherwise; a loss rounds them once, to the precision of its logits.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ._matrices import check_invertible, check_square, check_stochastic
from ._numbers import Number, check_interval
from ._tensors import as_weights, check_tensor, checks_values, expect, full_precision, refuse_first
from .errors import DubitoError


def smooth(target: Tensor, num_classes: int, alpha: Number, *, dtype: torch.dtype | None = None) -> Tensor:
    """Label smoothing: part of the weight is spread evenly over all classes, the label's own included.

        w~_k = (1 - alpha) w_k + (alpha/L) sum_j w_j

    Shapes: target ``(...)`` integers or ``(..., L)`` floats to ``(..., L)``.

    Arguments:
        target: class indices, or weights over the classes.
        num_classes: L.
        alpha: from 0 (nothing) to 1 (uniform).
        dtype: of the result.

    Reference:
        lukasik2020 eq. 1, eq. 6, eq. 7, eq. 8, theorem 1, sec. 3.1, sec. 4.2

    Example:
        >>> smooth(torch.tensor([0]), 4, 0.2)
        tensor([[0.8500, 0.0500, 0.0500, 0.0500]], dtype=torch.float64)
    """
    check_interval(alpha, "alpha", 0.0, 1.0)
    return _smooth(_weights(target, num_classes, dtype), alpha=alpha)


def _smooth(weights: Tensor, *, alpha: Number) -> Tensor:
    return (1 - alpha) * weights + alpha / weights.shape[-1] * weights.sum(-1, keepdim=True)


@full_precision
def smear(target: Tensor, matrix: Tensor) -> Tensor:
    """Label smearing: the loss of label y becomes sum_j M[y, j] l_j for any real matrix M.

        w~ = w M    (for a class index y: row y of M)

    M = (1-alpha) I + (alpha/L) J is label smoothing, M = T^-1 backward correction (`backward_matrix`).

    Shapes: target ``(...)`` integers or ``(..., L)`` floats, matrix ``(L, L)``, to ``(..., L)``.

    Arguments:
        target: class indices, or weights over the classes.
        matrix: M; entries may be negative.

    Reference:
        lukasik2020 sec. 3.1, sec. 3.3, eq. 4

    Example:
        >>> smear(torch.tensor([1]), torch.tensor([[1.0, 0.0], [0.25, 0.75]]))
        tensor([[0.2500, 0.7500]])
    """
    check_square(matrix, "matrix")
    check_tensor(target, "target")
    if matrix.dim() != 2:
        raise DubitoError("matrix must have two axes", expected="(L, L)", got=tuple(matrix.shape))
    size = len(matrix)
    if target.is_floating_point():
        dtype = torch.promote_types(target.dtype, matrix.dtype)
        return _weights(target, size, dtype) @ matrix.to(dtype)
    _check_labels(target, size)
    return matrix[target.long()]


def backward_matrix(T: Tensor) -> Tensor:
    """The inverse of a transition matrix in float64, for `smear`: backward correction.

        sum_j T[i, j] (T^-1 l)_j = l_i:    the corrected loss is unbiased for the clean one

    Shapes: T ``(..., L, L)``, ``T[true, observed]``, to ``(..., L, L)``.

    Arguments:
        T: row-stochastic; refused if singular, with its condition number.

    Reference:
        lukasik2020 eq. 2, eq. 3, eq. 4, eq. 6
        Patrini et al. 2017

    Example:
        >>> backward_matrix(torch.tensor([[0.9, 0.1], [0.2, 0.8]], dtype=torch.float64))
        tensor([[ 1.1429, -0.1429],
                [-0.2857,  1.2857]], dtype=torch.float64)
    """
    check_stochastic(T)
    check_invertible(T)
    inverse: Tensor = torch.linalg.inv(T.double())
    return inverse


def label_noise(
    target: Tensor,
    num_classes: int,
    sigma: Number,
    generator: torch.Generator,
    *,
    centred: bool = False,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Stochastic label noise: Gaussian noise on every entry of the one-hot target, fresh at each call.

        w~ = w + sigma eps,                        eps ~ N(0, I_L)
        w~ = w + sigma (eps - (1/L) sum_k eps_k)   centred: the weights keep their sum

    The weights are not renormalised: they may be negative, the loss is unbounded below, and its expectation is the
    loss without noise. Its gradient in the logits is (sum_k w~_k) p - w~, so the noise of the sum multiplies the
    prediction: on a class predicted with certainty the variance is L - 1 times that on the others. Centred noise
    gives p - w~. TensorFlow's cross-entropy has this gradient for weights of any sum, so networks trained with it
    saw, up to a common shift of the logits, centred noise.

    Shapes: target ``(...)`` integers or ``(..., L)`` floats to ``(..., L)``.

    Arguments:
        target: class indices, or weights over the classes.
        num_classes: L.
        sigma: standard deviation, 0 or more.
        generator: source of the noise; it is drawn on the generator's device.
        centred: subtract the mean of each row's noise.
        dtype: of the result.

    Reference:
        Chen et al. 2021 (SLN), called NAN by englesson2023, whose released code is TensorFlow's

    Example:
        >>> label_noise(torch.tensor([0]), 3, 0.0, torch.Generator().manual_seed(0))
        tensor([[1., 0., 0.]], dtype=torch.float64)
    """
    check_interval(sigma, "sigma", 0.0)
    weights = _weights(target, num_classes, dtype)
    noise = torch.randn(weights.shape, generator=generator, device=generator.device, dtype=weights.dtype)
    return _label_noise(weights, noise.to(weights.device), sigma=sigma, centred=centred)


def _label_noise(weights: Tensor, noise: Tensor, *, sigma: Number, centred: bool = False) -> Tensor:
    return weights + sigma * (noise - noise.mean(-1, keepdim=True) if centred else noise)


@full_precision
def corrected(target: Tensor, log_p: Tensor, losses: Tensor | None = None) -> Tensor:
    """Label correction: labels with a high loss stay, those with a low one are replaced by the prediction.

        w~_n = c_n w_n + (1 - c_n) onehot(argmax_k p_nk),    c_n = (l_n - min l) / (max l - min l)

    Used once per epoch on the whole training set, late in training with stochastic label noise. If all losses are
    equal, all labels stay. No gradient flows.

    Shapes: target ``(N,)`` integers or ``(N, L)`` floats, log_p ``(N, L)``, losses ``(N,)``, to ``(N, L)``.

    Arguments:
        target: the labels as given, or weights over the classes.
        log_p: log-probabilities of the model; the original takes one with averaged weights.
        losses: the loss of each label; by default its cross-entropy.

    Reference:
        Chen et al. 2021 (SLN), label correction

    Example:
        >>> log_p = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.7, 0.3]]).log()
        >>> corrected(torch.tensor([0, 1, 0]), log_p, torch.tensor([0.0, 4.0, 1.0]))
        tensor([[1., 0.],
                [0., 1.],
                [1., 0.]])
    """
    if not log_p.is_floating_point() or log_p.dim() != 2 or 0 in log_p.shape:
        raise DubitoError("log_p must be a table", expected="(N, L)", got=tuple(log_p.shape))
    weights = _weights(target, log_p.shape[-1], log_p.dtype)
    if weights.shape != log_p.shape:
        raise DubitoError(
            "target does not match log_p", expected=tuple(log_p.shape), got=tuple(weights.shape)
        )
    labels = target if target.is_floating_point() else target.long()
    cost = -expect(log_p, labels) if losses is None else losses.to(log_p.dtype)
    if cost.shape != log_p.shape[:1]:
        raise DubitoError(
            "one loss per label is needed", expected=tuple(log_p.shape[:1]), got=tuple(cost.shape)
        )
    return _corrected(weights.detach(), log_p.detach(), cost.detach())


def _corrected(weights: Tensor, log_p: Tensor, losses: Tensor) -> Tensor:
    low, high = losses.amin(), losses.amax()
    trust = torch.where(losses == high, 1.0, (losses - low) / (high - low)).unsqueeze(-1)
    own = as_weights(log_p.argmax(-1), log_p.shape[-1], log_p.dtype)
    return trust * weights + (1 - trust) * own


def _weights(target: Tensor, num_classes: int, dtype: torch.dtype | None) -> Tensor:
    if num_classes < 1:
        raise DubitoError("num_classes must be at least 1", got=num_classes)
    check_tensor(target, "target")
    if target.is_floating_point():
        if target.dim() == 0 or target.shape[-1] != num_classes:
            raise DubitoError(
                "a float target must give one weight per class",
                expected=f"(..., {num_classes})",
                got=tuple(target.shape),
                remedy="pass class indices as integers (target.long())",
            )
        return target if dtype is None else target.to(dtype)
    _check_labels(target, num_classes)
    if dtype is None:
        dtype = torch.float32 if target.device.type == "mps" else torch.float64
    return as_weights(target, num_classes, dtype)


def _check_labels(target: Tensor, num_classes: int) -> None:
    """As the losses check labels, but with none to ignore: weights have no way to leave an example out."""
    if target.dtype == torch.bool or target.is_complex():
        raise DubitoError("class indices must be integers", got=str(target.dtype), remedy="use target.long()")
    if not checks_values(target):
        return
    bad = (target < 0) | (target >= num_classes)
    remedy = "leave out what is to be ignored before making weights"
    refuse_first(bad, target, "target", "label out of range", f"0 to {num_classes - 1}", remedy)
