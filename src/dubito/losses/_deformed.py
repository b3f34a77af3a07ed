"""The deformed logarithm and exponential, computed from and to logarithms, continuous at the ordinary ones.

    log_t x = (x^s - 1)/s          exp_t x = [1 + s x]_+^(1/s)          s = 1 - t

Written with expm1 and log1p they lose no digits as s -> 0, where they become log and exp. GCE is -log_t p with
t = 1 - q; the tempered softmax is made of exp_t.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .._numbers import Number


def deformed_log(log_x: Tensor, s: Number) -> Tensor:
    """log_t x given log x: expm1(s log x)/s."""
    if not isinstance(s, Tensor):
        return log_x if s == 0 else torch.expm1(s * log_x) / s
    plain, safe = _apart(s)
    return torch.where(plain, log_x, torch.expm1(safe * log_x) / safe)


def log_deformed_exp(x: Tensor, s: Tensor) -> Tensor:
    """log exp_t(x) = log1p(s x)/s; minus infinity, with zero gradient, outside the support 1 + s x > 0."""
    plain, safe = _apart(s)
    shifted = safe * x
    inside = shifted > -1
    return torch.where(plain, x, _where_inside(inside, torch.log1p(_inside(inside, shifted)) / safe))


def times_log(factor: Number, log_x: Tensor) -> Tensor:
    """factor * log x with 0 * log 0 = log 0: powers of what is outside the support stay zero."""
    inside = log_x > -torch.inf
    return _where_inside(inside, factor * _inside(inside, log_x))


def _apart(s: Tensor) -> tuple[Tensor, Tensor]:
    """Where s is 0, and s with 1 in place of 0, to divide by."""
    plain = s == 0
    return plain, torch.where(plain, 1.0, s)


def _inside(inside: Tensor, x: Tensor) -> Tensor:
    """x inside the support, 0 outside: a masked placeholder that keeps NaN out of values and gradients."""
    return torch.where(inside, x, 0.0)


def _where_inside(inside: Tensor, logs: Tensor) -> Tensor:
    return torch.where(inside, logs, -torch.inf)
