"""A temperature that can be learned and cannot leave its range."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..errors import DubitoError


class BoundedTemperature(nn.Module):
    """tau = lo + (hi - lo) sigmoid(w), with w a learned number that starts at 0.

    Call it to get tau as a 0-dimensional tensor and pass that as `temperature`.

    Arguments:
        lo, hi: the open interval tau lives in.

    Reference:
        Collier et al. 2021 (their released layers)

    Example:
        >>> float(BoundedTemperature()().detach())
        1.65...
    """

    def __init__(self, lo: float = 0.3, hi: float = 3.0) -> None:
        super().__init__()
        if not 0 < lo < hi:
            raise DubitoError(
                "no such range of temperatures", expected="0 < lo < hi", got=f"lo={lo}, hi={hi}"
            )
        self.lo, self.hi = lo, hi
        self.weight = nn.Parameter(torch.zeros(()))

    def forward(self) -> Tensor:
        """The present temperature."""
        return self.lo + (self.hi - self.lo) * torch.sigmoid(self.weight)

    def extra_repr(self) -> str:
        """The range, for printing."""
        return f"lo={self.lo}, hi={self.hi}"
