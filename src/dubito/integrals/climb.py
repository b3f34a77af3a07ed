"""The objective log p(z) - |z|^2 / 2 over the factors z of a low-rank latent: concave, but possibly very steep."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from .quadrature import solve

_STEP = 0.05  # of differences
_STEEP = 0.25  # standard deviations of a factor: a step this short may fall between the points of a rule
_HALVINGS = 24
_LINES = 4  # searches along a line, for more than one factor
_DOUBLINGS = 12


class Climb(NamedTuple):
    """Rows of a latent with factors: mean, scale (B, K), factors (B, K, R), temperature (B, 1), target (B,)."""

    mean: Tensor
    scale: Tensor
    factors: Tensor
    temperature: Tensor
    target: Tensor

    def slope(self, z: Tensor) -> Tensor:
        """Gradient (B, R) at z (B, R)."""
        return self._at(z)[1]

    def value(self, z: Tensor) -> Tensor:
        """Objective (B,)."""
        return self._at(z)[0] - z.square().sum(-1) / 2

    def _at(self, z: Tensor) -> tuple[Tensor, Tensor]:
        moved = self.mean + (self.factors @ z.unsqueeze(-1)).squeeze(-1)
        answer, _ = solve(moved, self.scale, self.temperature, self.target, 1e-2)
        return answer.log_p, torch.einsum("bkr,bk->br", self.factors, answer.d_mean) - z

    def bend(self, z: Tensor) -> Tensor:
        """Minus the second derivatives (B, R, R), by differences of the slope."""
        unit = torch.eye(z.shape[-1], dtype=z.dtype, device=z.device)
        return torch.stack(
            [(self.slope(z - _STEP * e) - self.slope(z + _STEP * e)) / (2 * _STEP) for e in unit], -1
        )

    def stepped(self) -> Tensor:
        """Rows (B,) where p changes from 0 to 1 within a short distance in z: the target against another class.

        Per unit of z their difference changes by |V_y - V_k|. The rest of the noise blurs it, by the scales of both
        classes and the standard deviation of the difference of two Gumbel draws, tau pi / sqrt(3).
        """
        own = self.target.unsqueeze(-1)
        row = own.unsqueeze(-1).expand(-1, 1, self.factors.shape[-1])
        far = (self.factors - self.factors.gather(1, row)).norm(dim=-1)
        square = self.scale.square()
        blur = square + square.gather(-1, own) + (math.pi * self.temperature).square() / 3
        steep: Tensor = far.square() * _STEEP**2 > blur
        return steep.any(-1)

    def searched(self) -> Tensor:
        """The mode (B, R), by bisection along lines of steepest ascent; with one factor one line is enough.

        Along any unit direction the slope falls by at least 1 per unit length, as that of the prior does. So it
        reaches 0 before t = |slope|.
        """
        z = torch.zeros_like(self.factors[:, 0, :])
        for _ in range(1 if z.shape[-1] == 1 else _LINES):
            slope = self.slope(z).nan_to_num(0.0, 0.0, 0.0)
            far = slope.norm(dim=-1, keepdim=True)
            along = slope / far.clamp(min=1e-12)
            low, high = torch.zeros_like(far), far
            for _ in range(_HALVINGS):
                middle = (low + high) / 2
                rises = (self.slope(z + middle * along) * along).sum(-1, keepdim=True) > 0
                low, high = torch.where(rises, middle, low), torch.where(rises, high, middle)
            z = z + low * along
        return z

    def widened(self, place: Tensor, vectors: Tensor, spread: Tensor) -> Tensor:
        """Spreads (B, R) along the columns of `vectors`, doubled where the objective falls too slowly.

        That is where one side has fallen by less than 1 nat at twice the spread; a parabola that fits has by 3.
        """
        top, spread = self.value(place), spread.clone()
        for r in range(spread.shape[-1]):
            for _ in range(_DOUBLINGS):
                reach = 2 * spread[:, r : r + 1] * vectors[:, :, r]
                sides = torch.maximum(self.value(place + reach), self.value(place - reach))
                more = (sides > top - 1) & (spread[:, r] < 1)
                if not bool(more.any()):
                    break
                spread[:, r] = torch.where(more, (2 * spread[:, r]).clamp(max=1.0), spread[:, r])
        return spread
