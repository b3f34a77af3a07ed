"""What the channels share: the matrix product in logs, and stochastic matrices from free parameters."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from .._matrices import check_stochastic
from .._numbers import check_choice
from .._tensors import at_least_float32, check_floating
from ..errors import DubitoError

# Log-probability of a label that cannot be observed, in every precision: log of float32's smallest normal.
IMPOSSIBLE = math.log(torch.finfo(torch.float32).tiny)
BLOCK = 1 << 24
# Below this, log softplus(w) = w to 5e-14; above it, softplus is far enough from 0 to take its logarithm.
FAR_BELOW = -30.0
_SMALLEST_START = 1e-6
INITS = ("diagonal", "paper")


def through(log_p: Tensor, log_T: Tensor) -> Tensor:
    """Rows of probabilities times a matrix, in logs.

        log q_j = logsumexp_i(log p_i + log T_ij)

    Zeros (log = -inf) on either side drop out exactly. If all terms are zero, label j cannot be observed: its
    log-probability is `IMPOSSIBLE` (-87.3) with zero gradient, so that one bad label costs a large finite loss
    instead of the run. Large products are computed in blocks of observed classes and recomputed in the backward
    pass, so memory stays O(rows x classes).

    Shapes: log_p ``(..., I)``, log_T ``(..., I, J)``, leading axes broadcast -> ``(..., J)``.
    """
    *_, inputs, outputs = log_T.shape
    leading = torch.broadcast_shapes(log_p.shape[:-1], log_T.shape[:-2])
    width = max(1, BLOCK // max(math.prod(leading) * inputs, 1))
    # A compiled graph fuses the sum into the product and stores nothing large.
    if width >= outputs or torch.compiler.is_compiling():
        return _through(log_p, log_T)
    blocks = [
        checkpoint(_through, log_p, block, use_reentrant=False, preserve_rng_state=False)
        for block in torch.split(log_T, width, -1)
    ]
    return torch.cat(blocks, -1)


def _through(log_p: Tensor, log_T: Tensor) -> Tensor:
    terms = log_p.unsqueeze(-1) + log_T
    top = terms.detach().amax(-2, keepdim=True)
    top = torch.where(top == -torch.inf, 0.0, top)
    total = (terms - top).exp().sum(-2)
    nothing = total == 0
    log_q = torch.where(nothing, 1.0, total).log() + top.squeeze(-2)
    return torch.where(nothing, IMPOSSIBLE, log_q)


def log_softplus(weight: Tensor) -> Tensor:
    """Log of softplus(weight), exact for very negative weights too."""
    near = F.softplus(weight.clamp(min=FAR_BELOW), threshold=50.0).log()
    return torch.where(weight < FAR_BELOW, weight, near)


def log_rows(weight: Tensor) -> Tensor:
    """Log of softplus(weight) divided by its row sums."""
    logs = log_softplus(weight)
    # log_softmax would take 2.5 times as long over a short last axis.
    return logs - logs.logsumexp(-1, keepdim=True)


def start(num_classes: int, init: str | Tensor, diagonal: float) -> Tensor:
    """Free parameters ``(..., K, K)`` whose matrix is the wanted start.

    ``"paper"`` is 6 I - 5. ``"diagonal"`` has 1 on the diagonal and w off it with softplus(w) =
    softplus(1) (1 - d) / (d (K - 1)), so that the diagonal of the matrix is d for any number of classes. A
    tensor of stochastic matrices is taken as it is, its entries at least 1e-6.
    """
    eye = torch.eye(num_classes, dtype=torch.float64)
    one = math.log1p(math.e)
    if isinstance(init, Tensor):
        check_stochastic(init, "init")
        *_, classes = init.shape
        if classes != num_classes:
            raise DubitoError("init has a wrong number of classes", expected=num_classes, got=classes)
        return _inverse_softplus(init.detach().double().clamp(min=_SMALLEST_START) * one)
    if init == "paper":
        return 6 * eye - 5
    check_choice(init, INITS, "init")
    check_diagonal(diagonal)
    off = torch.tensor(one * (1 - diagonal) / (diagonal * max(num_classes - 1, 1)), dtype=torch.float64)
    return eye + (1 - eye) * _inverse_softplus(off)


def _inverse_softplus(y: Tensor) -> Tensor:
    return y + (-torch.expm1(-y)).log()


def check_diagonal(diagonal: float) -> None:
    """Refuse a starting diagonal outside (0, 1)."""
    if not 0 < diagonal < 1:
        raise DubitoError("the starting diagonal must lie strictly between 0 and 1", got=diagonal)


class Channel(nn.Module, ABC):
    """A stochastic map from true classes to observed labels; subclasses give `log_matrices` and `forward`."""

    per_annotator = False
    num_classes: int

    @abstractmethod
    def log_matrices(self) -> Tensor:
        """Log of the stochastic matrices, ``(K, K)`` or ``(R, K, K)``."""

    def matrices(self) -> Tensor:
        """The stochastic matrices ``T[true, observed]``, ``(K, K)`` or ``(R, K, K)``."""
        return self.log_matrices().exp()

    def diagonals(self) -> Tensor:
        """P(observed = c | true = c), ``(K,)`` or ``(R, K)``."""
        return self.matrices().diagonal(dim1=-2, dim2=-1)

    def skills(self) -> Tensor:
        """Mean of the diagonal: one number, or one per annotator ``(R,)``."""
        return self.diagonals().mean(-1)

    def accept(self, log_p: Tensor) -> Tensor:
        """Check the class axis and bring half precision to float32."""
        check_floating(log_p, "log_p")
        if log_p.shape[-1] != self.num_classes:
            raise DubitoError(
                "log_p does not fit the channel", expected=f"{self.num_classes} classes", got=log_p.shape[-1]
            )
        return at_least_float32(log_p)
