"""One transition matrix for all labels: given, or learned with the classifier."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .._dense import check_sizes
from .._matrices import check_stochastic
from .._tensors import at_least_float32
from ..errors import DubitoError
from ._core import Channel, log_rows, start, through


class FixedTransition(Channel):
    """A given transition matrix: forward correction.

        log q_j = logsumexp_i(log p_i + log T_ij) = log (T' p)_j

    Zeros in T are exact: an entry that is zero drops out, whatever the logits. A label whose whole column is
    zero cannot be observed; its log-probability is `IMPOSSIBLE` (-87.3) with zero gradient.

    Shapes: log_p ``(..., K)`` -> ``(..., K)``.

    Arguments:
        T: ``(K, K)``, ``T[true, observed]``, rows sum to one. A part of the module's state, not a parameter.

    Reference:
        lukasik2020 eq. 5
        Patrini et al. 2017

    Example:
        >>> channel = FixedTransition(torch.tensor([[0.8, 0.2], [0.0, 1.0]]))
        >>> channel(torch.tensor([0.5, 0.5]).log()).exp()
        tensor([0.4000, 0.6000])
    """

    matrix: Tensor

    def __init__(self, T: Tensor) -> None:
        super().__init__()
        check_stochastic(T, "T")
        if T.dim() != 2:
            raise DubitoError("T must be one matrix", expected="(K, K)", got=tuple(T.shape))
        self.num_classes = len(T)
        self.register_buffer("matrix", at_least_float32(T.detach()).clone())

    def log_matrices(self) -> Tensor:
        """Log of T, -inf where T is zero."""
        return self.matrix.log()

    def matrices(self) -> Tensor:
        """T itself."""
        return self.matrix.clone()

    def forward(self, log_p: Tensor) -> Tensor:
        """Log-probabilities of the true class to those of the observed label."""
        log_p = self.accept(log_p)
        return through(log_p, self.log_matrices().to(log_p.dtype))


class LearnedTransition(Channel):
    """One learned transition matrix, shared by all labels.

        T = softplus(W) / row sums,   log q_j = logsumexp_i(log p_i + log T_ij)

    The likelihood alone cannot tell T from the classifier: add `penalties.trace`.

    Shapes: log_p ``(..., K)`` -> ``(..., K)``; W ``(K, K)``.

    Arguments:
        init: ``"diagonal"``, ``"paper"`` (6 I - 5) or a stochastic matrix to start from.
        diagonal: the starting diagonal of T for ``init="diagonal"``.

    Reference:
        tanno2019 listing 2
        Sukhbaatar et al. 2014

    Example:
        >>> LearnedTransition(100, diagonal=0.9).skills()
        tensor(0.9000, grad_fn=<MeanBackward1>)
    """

    def __init__(self, num_classes: int, *, init: str | Tensor = "diagonal", diagonal: float = 0.9) -> None:
        super().__init__()
        check_sizes(num_classes=num_classes)
        self.num_classes = num_classes
        self.init, self.diagonal = init.detach() if isinstance(init, Tensor) else init, diagonal
        self.weight = nn.Parameter(start(num_classes, init, diagonal).to(torch.get_default_dtype()))

    def log_matrices(self) -> Tensor:
        """Log of T, ``(K, K)``."""
        return log_rows(at_least_float32(self.weight))

    def forward(self, log_p: Tensor) -> Tensor:
        """Log-probabilities of the true class to those of the observed label."""
        log_p = self.accept(log_p)
        return through(log_p, self.log_matrices().to(log_p.dtype))
