"""Heads: features -> the parameters of a distribution over logits.

A head maps features ``(..., in_features)`` to a `Latent` whose class axis is last; links and losses read it.
Weights are drawn from a generator that is handed in (`generator=None` means a fresh one seeded with 0), never from
torch's global one, so two heads built alike start with the same mean layer. By default they are Glorot uniform with
zero biases, as in the papers' Keras code; ``init="torch"`` gives the start of `torch.nn.Linear`.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from ._dense import check_sizes, dense, noise_start, source_of
from ._tensors import at_least_float32, check_floating
from .errors import DubitoError, nearest

MIN_SCALE = 1e-3
COVARIANCES = ("full", "diagonal", "isotropic", "identity")


class Latent(NamedTuple):
    """The parameters of a distribution over the logits u of an example; absent parts are None.

    For Gaussian heads u = mean + factors e_R + scale * e_K with e standard normal, so the covariance is
    ``factors factors' + diag(scale^2)``. `root` is the c of the logistic-normal Sigma^(1/2) = c c' + lam I.

    Shapes: mean and scale ``(..., K)``, factors ``(..., K, R)``, root ``(..., K)``, ``(..., 1)`` or
    ``(..., 0)``.
    """

    mean: Tensor
    scale: Tensor | None = None
    factors: Tensor | None = None
    root: Tensor | None = None


class Head(nn.Module):
    """What heads share: sizes, the check of the input, and `noisy`, which says that the latent has a scale."""

    noisy = False

    def __init__(self, in_features: int, num_classes: int, init: str | None = None) -> None:
        super().__init__()
        check_sizes(in_features=in_features, num_classes=num_classes)
        self.in_features, self.num_classes, self.init = in_features, num_classes, init

    def check(self, features: Tensor) -> None:
        """Refuse features that are not floating or have a wrong last axis."""
        check_floating(features, "features")
        if features.shape[-1] != self.in_features:
            raise DubitoError("features do not fit", expected=self.in_features, got=features.shape[-1])


class Point(Head):
    """A linear layer: the logits themselves, without noise.

        mean = W h + b

    Shapes: features ``(..., in_features)`` -> mean ``(..., num_classes)``.

    Arguments:
        in_features, num_classes: widths of the layer.
        generator: source of the initial weights; None is a fresh generator seeded with 0.
        init: ``"glorot"`` (uniform, zero bias), ``"torch"`` (that of `torch.nn.Linear`) or ``"zeros"`` (the mean).

    Example:
        >>> Point(4, 3)(torch.zeros(2, 4)).mean.shape
        torch.Size([2, 3])
    """

    def __init__(
        self, in_features: int, num_classes: int, *, generator: Generator | None = None, init: str = "glorot"
    ) -> None:
        super().__init__(in_features, num_classes, init)
        self.mean = dense(in_features, num_classes, source_of(generator), init)

    def forward(self, features: Tensor) -> Latent:
        """Features ``(..., in_features)`` to a latent with a mean only."""
        self.check(features)
        return Latent(at_least_float32(self.mean(features)))


class Diagonal(Head):
    """Gaussian logits, independent across classes, with an input-dependent scale.

        u_k = mean_k(h) + scale_k(h) e_k,   scale = softplus(.) + 0.001,   e ~ N(0, I)

    The scale is a standard deviation. ``num_classes=1`` is the binary model with one latent.

    Shapes: features ``(..., in_features)`` -> mean, scale ``(..., num_classes)``.

    Arguments: as for `Point`.

    Reference:
        collier2020 eq. 2, eq. 4
        Kendall and Gal 2017

    Example:
        >>> latent = Diagonal(4, 3)(torch.zeros(2, 4))
        >>> bool((latent.scale > 0.001).all())
        True
    """

    noisy = True

    def __init__(
        self, in_features: int, num_classes: int, *, generator: Generator | None = None, init: str = "glorot"
    ) -> None:
        super().__init__(in_features, num_classes, init)
        source = source_of(generator)
        self.mean = dense(in_features, num_classes, source, init)
        self.scale = dense(in_features, num_classes, source, init)

    def forward(self, features: Tensor) -> Latent:
        """Features ``(..., in_features)`` to mean and scale."""
        self.check(features)
        return Latent(at_least_float32(self.mean(features)), _positive(self.scale(features)))


class LowRank(Head):
    """Gaussian logits with a low-rank plus diagonal covariance.

        u = mean(h) + V(h) e_R + scale(h) * e_K,   covariance V V' + diag(scale^2)
        parameter-efficient:  V(h) = v(h)[:, None] * V  with V shared by all inputs

    Shapes: features ``(..., in_features)`` -> mean, scale ``(..., K)``, factors ``(..., K, rank)``. The full
    factor layer is row-major: its output k * rank + r is factor r of class k.

    Arguments:
        rank: number of shared noise sources R.
        parameter_efficient: K + K * rank numbers instead of a layer of K * rank outputs.
        shared_bias: give the shared V a bias b, which moves the mean by v(h) * b. The papers' noise has zero
            mean (the default); some released code has the bias.
        The others as for `Point`.

    Reference:
        englesson2023 sec. 5
        Collier et al. 2021

    Example:
        >>> LowRank(4, 3, rank=2)(torch.zeros(5, 4)).factors.shape
        torch.Size([5, 3, 2])
    """

    noisy = True

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        rank: int = 1,
        parameter_efficient: bool = False,
        shared_bias: bool = False,
        generator: Generator | None = None,
        init: str = "glorot",
    ) -> None:
        super().__init__(in_features, num_classes, init)
        check_sizes(rank=rank)
        if shared_bias and not parameter_efficient:
            raise DubitoError("shared_bias belongs to the shared factors", remedy="set parameter_efficient")
        self.rank, self.parameter_efficient, self.shared_bias = rank, parameter_efficient, shared_bias
        source = source_of(generator)
        self.mean = dense(in_features, num_classes, source, init)
        self.scale = dense(in_features, num_classes, source, init)
        width = num_classes if parameter_efficient else num_classes * rank
        self.factors = dense(in_features, width, source, noise_start(init))
        self.shared = (
            dense(rank, num_classes, source, noise_start(init), bias=shared_bias)
            if parameter_efficient
            else None
        )

    def forward(self, features: Tensor) -> Latent:
        """Features ``(..., in_features)`` to mean, scale and factors."""
        self.check(features)
        mean = at_least_float32(self.mean(features))
        factors = at_least_float32(self.factors(features))
        if self.shared is None:
            factors = factors.reshape(*mean.shape, self.rank)
        else:
            if self.shared.bias is not None:
                mean = mean + factors * self.shared.bias
            factors = factors.unsqueeze(-1) * self.shared.weight
        return Latent(mean, _positive(self.scale(features)), factors)


class PreLogit(Head):
    """Gaussian noise on the features before the last layer (HET-XL): the noise costs no parameter per class.

        u = W (h + V(h) e_R + d(h) * e_D) + b,   d = softplus(.) + 0.001
        as a latent:  mean = W h + b,  factors = W [V(h), diag(d(h))],  scale = 0

    Shapes: features ``(..., D)`` -> mean, scale ``(..., K)``, factors ``(..., K, rank + D)``. The number of
    parameters of the noise does not depend on K; the factors of a batch do.

    Arguments: as for `LowRank`.

    Reference:
        Collier et al. 2023

    Example:
        >>> PreLogit(4, 3, rank=2)(torch.zeros(5, 4)).factors.shape
        torch.Size([5, 3, 6])
    """

    noisy = True

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        rank: int = 1,
        generator: Generator | None = None,
        init: str = "glorot",
    ) -> None:
        super().__init__(in_features, num_classes, init)
        check_sizes(rank=rank)
        self.rank = rank
        source = source_of(generator)
        self.mean = dense(in_features, num_classes, source, init)
        self.scale = dense(in_features, in_features, source, init)
        self.factors = dense(in_features, in_features * rank, source, noise_start(init))

    def forward(self, features: Tensor) -> Latent:
        """Features ``(..., in_features)`` to mean, zero scale and factors."""
        self.check(features)
        mean = at_least_float32(self.mean(features))
        shared = at_least_float32(self.factors(features)).reshape(*features.shape, self.rank)
        weight = self.mean.weight.to(mean.dtype)
        own = weight * _positive(self.scale(features)).unsqueeze(-2)
        return Latent(mean, torch.zeros_like(mean), torch.cat([weight @ shared, own], -1))


class LogisticNormal(Head):
    """Mean and covariance root of a logistic-normal likelihood.

        z = tau S_C^(-1)(target) ~ N(mean(h), Sigma(h)),   Sigma^(1/2) = c(h) c(h)' + lam I

    `root` is c for ``covariance="full"``; for "diagonal" and "isotropic" the loss takes lam + root^2 as
    scales; "identity" has no root (width 0). lam and tau belong to the loss. c = 0 is a stationary point,
    so the root layer always starts at random, never at zero.

    Shapes: features ``(..., in_features)`` -> mean ``(..., n)``, root ``(..., n)``, ``(..., 1)`` or
    ``(..., 0)``, with n = num_classes when there is a dummy class and num_classes - 1 without.

    Arguments:
        dummy: add a class that never occurs as reference of the centred softmax, so that all real classes
            are treated alike.
        covariance: "full", "diagonal", "isotropic" or "identity".
        The others as for `Point`.

    Reference:
        englesson2023 eq. 3, eq. 9, table 3

    Example:
        >>> LogisticNormal(4, 3)(torch.zeros(2, 4)).root.shape
        torch.Size([2, 3])
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        dummy: bool = True,
        covariance: str = "full",
        generator: Generator | None = None,
        init: str = "glorot",
    ) -> None:
        super().__init__(in_features, num_classes, init)
        if covariance not in COVARIANCES:
            raise DubitoError(
                "unknown covariance", got=repr(covariance), remedy=nearest(covariance, COVARIANCES)
            )
        self.dummy, self.covariance = dummy, covariance
        outputs = num_classes if dummy else num_classes - 1
        check_sizes(outputs=outputs)
        width = {"full": outputs, "diagonal": outputs, "isotropic": 1, "identity": 0}[covariance]
        source = source_of(generator)
        self.mean = dense(in_features, outputs, source, init)
        self.root = dense(in_features, width, source, noise_start(init)) if width else None

    def forward(self, features: Tensor) -> Latent:
        """Features ``(..., in_features)`` to mean and root."""
        self.check(features)
        mean = at_least_float32(self.mean(features))
        root = mean[..., :0] if self.root is None else at_least_float32(self.root(features))
        return Latent(mean, root=root)


def _positive(raw: Tensor) -> Tensor:
    # Above its threshold softplus returns its input: an error of 2e-9 at the default of 20, none in float64 at 50.
    return F.softplus(at_least_float32(raw), threshold=50.0) + MIN_SCALE
