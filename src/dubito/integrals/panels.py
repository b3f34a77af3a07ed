"""Panels in t for the expected softmax of all classes: where they lie, their nodes, and the error of each."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .rows import Rows, log_slope_and_ratio
from .table import lookup, rough

_LEVELS = (-80.0, -30.0, -12.0, -5.0, -2.0, -0.7, -0.2, -0.03, -1e-3, -1e-6, -1e-10, -1e-15)
_ELEMENTS = 1 << 18
_DEPTH = 24
_HIDDEN, _DEEP = 10.0, 18.0  # widths of a class that a panel may span; -G beyond which no class matters
NODES = 8
_FINEST = 1e-10  # the least tolerance: below it, panels would be halved for the seams of the table


class Panels(NamedTuple):
    """P panels: their row, left end and length."""

    row: Tensor
    left: Tensor
    length: Tensor


class _Values(NamedTuple):
    """At the nodes of some panels, (P, K, n) or (P, n): what both passes need."""

    x: Tensor
    log_rate: Tensor  # log r_k
    in_v: Tensor  # d log F_k / d v over d log F_k / d x
    total: Tensor  # G
    log_weight: Tensor


def _jacobi(n: int) -> tuple[Tensor, Tensor]:
    """Eigenvalues and eigenvectors of the Jacobi matrix of the Legendre polynomials."""
    k = torch.arange(1, n, dtype=torch.float64)
    # The lower half is all that eigh reads.
    values, vectors = torch.linalg.eigh(torch.diag(k / (4 * k * k - 1).sqrt(), -1))
    return values, vectors


def gauss_legendre(n: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Nodes in (0, 1) and weights."""
    nodes, vectors = _jacobi(n)
    return ((nodes + 1) / 2).to(like), (vectors[0] ** 2).to(like)


def last_coefficients(n: int, like: Tensor) -> Tensor:
    """(nodes, 3): takes weighted terms to their sum and their last two Legendre coefficients."""
    vectors = _jacobi(n)[1]
    return (vectors[[0, -2, -1]] / vectors[0]).T.to(like)


def evaluate(rows: Rows, panels: Panels) -> _Values:
    """What both passes need, at the nodes of some panels."""
    nodes, weights = gauss_legendre(NODES, panels.left)
    t = panels.left[:, None] + panels.length[:, None] * nodes
    part = rows.take(panels.row)
    inverse = 1 / part.width.unsqueeze(-1)
    x = (t.unsqueeze(1) - part.mean.unsqueeze(-1)) * inverse
    m, m_x, m_v = lookup(part.table, x, part.cell.unsqueeze(-1), part.offset.unsqueeze(-1).expand_as(x))
    columns = (column.unsqueeze(-1) for column in (part.cos, part.sin, part.turn))
    log_slope, ratio, _ = log_slope_and_ratio(x, m, m_x, m_v, *columns)
    log_weight = panels.length.log()[:, None] + weights.log()
    log_rate = log_slope - part.width.log().unsqueeze(-1)
    return _Values(x, log_rate, ratio, -m.exp().sum(1), log_weight)


def _mass(rows: Rows, panels: Panels) -> Tensor:
    """exp(G) at the right end minus exp(G) at the left end, without cancellation where both are near 1."""
    part = rows.take(panels.row)
    t = torch.stack([panels.left, panels.left + panels.length], -1)
    x = (t.unsqueeze(1) - part.mean.unsqueeze(-1)) / part.width.unsqueeze(-1)
    m, _, _ = lookup(part.table, x, part.cell.unsqueeze(-1), part.offset.unsqueeze(-1).expand_as(x))
    total = -m.exp().sum(1)
    left, right = total.unbind(-1)
    return right.exp() * -torch.expm1(left - right)


def _edges(rows: Rows) -> Tensor:
    """Where G takes the values of `_LEVELS`, roughly, (B, levels): safeguarded Newton on log(-G)."""
    aim = torch.tensor(_LEVELS, dtype=rows.mean.dtype, device=rows.mean.device).neg().log()
    low = (rows.mean - 14 * rows.width).amax(-1, keepdim=True).expand(-1, len(aim))
    high = (rows.mean + 40 * rows.width).amax(-1, keepdim=True).expand(-1, len(aim))
    t = (rows.mean + rows.width).amax(-1, keepdim=True).expand(-1, len(aim))
    inverse = 1 / rows.width.unsqueeze(-1)
    for _ in range(60):
        x = (t.unsqueeze(1) - rows.mean.unsqueeze(-1)) * inverse
        m, m_x, _ = rough(rows.table, x, rows.cell.unsqueeze(-1), rows.offset.unsqueeze(-1))
        top = m.amax(1)
        terms = (m - top.unsqueeze(1)).exp()
        value = top + terms.sum(1).log()
        slope = (terms * m_x * inverse).sum(1) / terms.sum(1)
        above = value > aim  # G too low: go right
        low, high = torch.where(above, t, low), torch.where(above, high, t)
        near = ((value - aim).abs() < 0.2) | (high - low < 1e-9 * rows.width.amin(-1, keepdim=True))
        if bool(near.all()):
            break
        guess = t + (aim - value) / slope.clamp(max=-1e-30)
        t = torch.where(near, t, torch.where((guess > low) & (guess < high), guess, (low + high) / 2))
    return t.sort(-1).values


def refine(rows: Rows, tol: float) -> tuple[Panels, Tensor]:
    """Panels fine enough for `tol`, and the error that remains in each row."""
    edges = _edges(rows)
    count = edges.shape[1] - 1
    index = torch.arange(len(edges), device=edges.device).repeat_interleave(count)
    panels = Panels(
        index, edges[:, :-1].flatten(), (edges[:, 1:] - edges[:, :-1]).clamp(min=1e-300).flatten()
    )
    error = edges.new_zeros(len(edges))
    kept: list[Panels] = []
    depth = 0
    while True:
        depth += 1
        miss = torch.cat([_misses(rows, part) for part in parts(panels, rows)])
        # Panels share the tolerance, so that the sum of their errors stays below it.
        bad = (miss > max(tol, _FINEST) / (4 * count)) | hiding(rows, panels)
        if depth == _DEPTH:
            bad = torch.zeros_like(bad)
        error = error.index_add(0, panels.row[~bad], miss[~bad])
        kept.append(Panels(*(x[~bad] for x in panels)))
        if not bool(bad.any()):
            break
        half = panels.length[bad] / 2
        panels = Panels(
            panels.row[bad].repeat(2),
            torch.cat([panels.left[bad], panels.left[bad] + half]),
            half.repeat(2),
        )
    # Doubled, as it is an estimate, not a bound.
    return Panels(*(torch.cat(column) for column in zip(*kept))), 2 * error


def hiding(rows: Rows, panels: Panels) -> Tensor:
    """Panels that may hide a class which can win: one so narrow that it may lie between two nodes.

    The error in its probability may be within the tolerance, but not that in its gradient, larger by 1 / width.
    """
    mean, width = rows.mean[panels.row], rows.width[panels.row]
    right = panels.left + panels.length
    inside = (mean + 3 * width > panels.left.unsqueeze(-1)) & (mean - 3 * width < right.unsqueeze(-1))
    found = (inside & (panels.length.unsqueeze(-1) > _HIDDEN * width)).any(-1)
    index = found.nonzero().squeeze(-1)
    if len(index):
        part = rows.take(panels.row[index])
        x = (right[index].unsqueeze(-1) - part.mean) / part.width
        m, _, _ = rough(part.table, x.unsqueeze(-1), part.cell.unsqueeze(-1), part.offset.unsqueeze(-1))
        found = found.index_copy(0, index, m.squeeze(-1).exp().sum(-1) < _DEEP)
    return found


def parts(panels: Panels, rows: Rows) -> list[Panels]:
    """The panels in groups that fit into the cache."""
    size = max(1, _ELEMENTS // (rows.mean.shape[-1] * NODES))
    return [Panels(*part) for part in zip(*(x.split(size) for x in panels))]


def _misses(rows: Rows, panels: Panels) -> Tensor:
    """The error of each panel: of the sum over classes, whose value is known, and of the least smooth class.

    Errors of classes may cancel in the sum. So each integrand is expanded in Legendre polynomials: if its last two
    coefficients are smaller than the first by some factor, those beyond are taken to be smaller by it once more.
    """
    values = evaluate(rows, panels)
    terms = (values.log_rate + (values.total + values.log_weight).unsqueeze(1)).exp()
    found, *last = (terms @ last_coefficients(NODES, terms)).unbind(-1)
    rough_part = (last[0].abs() + last[1].abs()).square() / found.clamp(min=1e-300)
    return (found.sum(1) - _mass(rows, panels)).abs() + torch.minimum(rough_part, found).amax(1)
