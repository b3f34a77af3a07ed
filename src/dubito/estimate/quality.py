"""How likely it is that a label is right."""

from __future__ import annotations

import torch
from torch import Tensor

from .._tensors import at_least_float32, check_floating, check_indices
from ..errors import DubitoError


def label_log_quality(log_p: Tensor, labels: Tensor, T: Tensor | None = None) -> Tensor:
    """Log-probability that an observed label is the true class.

        q = p_y                                     without a transition matrix
        q = p_y T_yy / sum_i p_i T_iy               with one: Bayes' rule, given that y was observed

    Shapes: log_p ``(..., K)``, labels ``(...)`` -> ``(...)``.

    Arguments:
        log_p: clean log-probabilities, from a model that did not see the labels (`out_of_fold`).
        labels: observed class indices; -1 for none gives NaN.
        T: ``(K, K)``, ``T[true, observed]``. A label that T rules out altogether gives log q = -inf.

    Example:
        >>> log_p = torch.tensor([[0.5, 0.5]]).log()
        >>> label_log_quality(log_p, torch.tensor([0]), torch.tensor([[1.0, 0.0], [0.25, 0.75]])).exp()
        tensor([0.8000])
    """
    check_floating(log_p, "log_p")
    check_indices(labels, log_p, -1)
    log_p, y = at_least_float32(log_p), labels.clamp(min=0).unsqueeze(-1)
    if T is not None:
        if T.shape != (log_p.shape[-1],) * 2:
            raise DubitoError("T does not fit", expected=(log_p.shape[-1],) * 2, got=tuple(T.shape))
        joint = log_p + T.to(log_p).log().T[labels.clamp(min=0)]
        total = joint.logsumexp(-1, keepdim=True)
        log_p = torch.where(total.isinf(), joint, joint - total)
    found = log_p.gather(-1, y).squeeze(-1)
    return torch.where(labels >= 0, found, torch.nan)
