"""One row of the integral: its classes as standardised Gaussian-plus-Gumbel variables around the target."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .gumbel_normal import EULER, ROOT_C
from .table import FAR, X_MAX, Table, angle_cell, rough, table

_TINY = 1e-30
_LINE = -21.0  # of M: below it 1 - F < 1e-9 equals -log F


class Rows(NamedTuple):
    """B rows of K classes. Means are relative to the target's, and the Gumbel mean, common to all, is dropped."""

    mean: Tensor  # (B, K)
    width: Tensor  # (B, K), standard deviation of Gaussian plus Gumbel
    cos: Tensor  # (B, K), scale / width
    sin: Tensor  # (B, K), sqrt(c) temperature / width
    cell: Tensor  # (B, K) int32, angle cell of the table
    offset: Tensor  # (B, K), offset in that cell
    turn: Tensor  # (B, K), derivative of the offset in the angle
    target: Tensor  # (B, 1) int64
    own: Tensor  # (B,) int64, the target's place in the flattened (B, K)
    table: Table

    def take(self, index: Tensor) -> Rows:
        """Some of the rows."""
        mean, width, cos, sin, cell, offset, turn, target = (x[index] for x in self[:8])
        return Rows(mean, width, cos, sin, cell, offset, turn, target, _places(mean, target), self.table)

    def of_target(self, values: Tensor) -> Tensor:
        """The target's entry: (B, K, N) -> (B, N)."""
        return values.flatten(0, 1).index_select(0, self.own)


def _places(mean: Tensor, target: Tensor) -> Tensor:
    rows, classes = mean.shape
    start = torch.arange(0, rows * classes, classes, device=mean.device)
    return start + target.squeeze(-1)


def log_slope_and_ratio(
    x: Tensor, m: Tensor, m_x: Tensor, m_v: Tensor, cos: Tensor, sin: Tensor, turn: Tensor | float
) -> tuple[Tensor, Tensor, Tensor]:
    """log of d log F / dx, (dM/dv) / (dM/dx), and where, on the right, the table is not accurate enough for them.

    Far to the right the Gumbel's tail is exactly exponential, with s = sqrt(c) cos / sin its Gaussian part:
    -log F = exp(s^2 / 2 - E g - x sqrt(c) / sin).
    """
    rate = ROOT_C / sin
    straight = ((x - 8) * sin > ROOT_C * cos) & ((m < _LINE) | (x > X_MAX))
    line = (rate * cos).square() / 2 - EULER - rate * x
    log_slope = torch.where(straight, line + rate.log(), m + (-m_x).clamp(min=_TINY).log())
    ratio = torch.where(straight, (rate - x) * cos / (sin * turn), m_v / m_x.clamp(max=-_TINY))
    return log_slope, ratio, (m < FAR) & ~straight


def make_rows(mean: Tensor, scale: Tensor, temperature: Tensor, target: Tensor) -> Rows:
    """Standardise rows: mean and scale (B, K), temperature (B, 1), target (B,). No width may be 0."""
    target = target.unsqueeze(-1)
    own = _places(mean, target)
    gumbel = ROOT_C * temperature
    width = torch.hypot(scale, gumbel.expand_as(scale))
    tab = table(mean.device, mean.dtype)
    cell, offset, turn = angle_cell(tab, torch.atan2(gumbel.expand_as(scale), scale))
    return Rows(
        mean - mean.reshape(-1, 1).index_select(0, own),
        width,
        scale / width,
        gumbel / width,
        cell,
        offset,
        turn,
        target,
        own,
        tab,
    )


def rough_value_and_slope(rows: Rows, t: Tensor) -> tuple[Tensor, Tensor]:
    """As `rough_log_integrand`, without the second derivative."""
    inverse = 1 / rows.width.unsqueeze(-1)
    x = (t.unsqueeze(1) - rows.mean.unsqueeze(-1)) * inverse
    m, m_x, m_xx = rough(rows.table, x, rows.cell.unsqueeze(-1), rows.offset.unsqueeze(-1))
    log_f = -m.clamp(max=80.0).exp()
    y, y_x, y_xx = rows.of_target(m), rows.of_target(m_x), rows.of_target(m_xx)
    width = rows.of_target(rows.width.unsqueeze(-1))
    value = log_f.sum(1) + y + (-y_x).clamp(min=1e-30).log() - width.log()
    first = (log_f.mul_(m_x) * inverse).sum(1) + (y_x + y_xx / y_x) / width
    return value, first


def rough_log_integrand(rows: Rows, t: Tensor, *, branchless: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """log of f_y(t) prod_{k != y} F_k(t) and its two derivatives at t (B, N), roughly: for placing nodes."""
    inverse = 1 / rows.width.unsqueeze(-1)
    x = (t.unsqueeze(1) - rows.mean.unsqueeze(-1)) * inverse
    m, m_x, m_xx = rough(
        rows.table, x, rows.cell.unsqueeze(-1), rows.offset.unsqueeze(-1), branchless=branchless
    )
    log_f = -m.clamp(max=80.0).exp()
    slope = log_f * m_x * inverse
    bend = log_f * (m_x * m_x + m_xx) * inverse * inverse
    y, y_x, y_xx = rows.of_target(m), rows.of_target(m_x), rows.of_target(m_xx)
    width = rows.of_target(rows.width.unsqueeze(-1))
    ratio = y_xx / y_x
    value = log_f.sum(1) + y + (-y_x).clamp(min=1e-30).log() - width.log()
    first = slope.sum(1) + (y_x + ratio) / width
    second = bend.sum(1) + (y_xx - ratio * ratio) / (width * width)
    return value, first, second
