"""M-steps: from expected counts to the annotators' matrices, one rule per model.

All rules see the counts ``C[u, k]``: how often key u = (annotator r, label j) was given to items of true class k,
in expectation, and n[r, k], their sum over labels. A matrix is kept as the entries of keys that occur and a
pattern for the rest: ``A[r, k, j] = scale[r, k] * pattern[k, j]`` off the diagonal, ``diagonal[r, k]`` on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from ._layout import Layout

TINY = 1e-300


@dataclass(frozen=True)
class Fitted:
    """Matrices of all annotators after an M-step.

    Fields:
        table: ``(keys, classes)`` what the E-step adds up: log A, or its expectation.
        mean: ``(keys, classes)`` point estimate of A at the keys.
        scale, diagonal: ``(annotators, classes)``; pattern: ``(classes, classes)``; the rest of A.
        penalty: what the rule adds to the log-likelihood in its objective.
        weight: ``(annotators, classes)`` pseudo-labels of the prior behind each row.
        hyper: what the rule wants to remember.
        shared: whether one number per annotator stands behind all rows.
    """

    table: Tensor
    mean: Tensor
    scale: Tensor
    pattern: Tensor
    diagonal: Tensor
    penalty: float
    weight: Tensor
    hyper: dict[str, Tensor]
    shared: bool = False


class Rule(Protocol):
    """One M-step. During the burn-in a prior may follow the crowd; afterwards it is fixed."""

    @property
    def burn_in(self) -> int:
        """Steps before the objective is recorded."""
        ...

    @property
    def objective(self) -> str:
        """What the loop climbs, in words."""
        ...

    def fit(self, layout: Layout, counts: Tensor, last: Fitted | None, *, burning: bool) -> Fitted:
        """The matrices that these counts give."""
        ...


def log(x: Tensor) -> Tensor:
    """Logarithm with a floor far below any probability that matters, so that no item becomes impossible."""
    return x.clamp(min=TINY).log()


def pool(layout: Layout, counts: Tensor, pseudo: float = 0.01) -> Tensor:
    """The crowd's matrix ``(true, given)``: all annotators' counts together."""
    together = layout.by_label(counts).T + pseudo
    return together / together.sum(1, keepdim=True)


def off_diagonal(matrix: Tensor) -> Tensor:
    """Rows without their diagonal, rescaled to sum to one."""
    K = len(matrix)
    rest = matrix.masked_fill(torch.eye(K, dtype=torch.bool, device=matrix.device), 0.0)
    return rest / rest.sum(1, keepdim=True).clamp(min=TINY)


@dataclass(frozen=True)
class Full:
    """Dawid-Skene: a matrix per annotator, ``A[r,k,j] = (C + s P[k,j]) / (n + s)``.

    `strength` s pseudo-labels per true class are spread like the crowd's pooled matrix P, which is fixed
    after the burn-in; s = 0 is maximum likelihood.
    """

    strength: float
    objective: str = "log-likelihood + log prior density"

    @property
    def burn_in(self) -> int:
        """A few steps until the crowd's matrix has settled; none without a prior."""
        return 5 if self.strength else 0

    def fit(self, layout: Layout, counts: Tensor, last: Fitted | None, *, burning: bool) -> Fitted:
        s = self.strength
        P = pool(layout, counts) if burning or last is None else last.hyper["pooled"]
        pseudo = s * P.T[layout.key_label]
        n = layout.by_annotator(counts)
        row = n[layout.key_annotator] + s
        A = torch.where(row > 0, (counts + pseudo) / row.clamp(min=TINY), 1.0 / layout.num_classes)
        left = s / (n + s) if s else (n <= 0).to(n)
        pattern = P if s else torch.full_like(P, 1.0 / layout.num_classes)
        penalty = 0.0
        if s:
            every = (s * P * (s * P).log()).sum(1) - s * (n + s).log()
            penalty = float(every.sum() + (pseudo * ((counts + pseudo).log() - pseudo.log())).sum())
        weight = torch.full_like(n, s)
        diagonal = left * pattern.diagonal()
        return Fitted(log(A), A, left, pattern, diagonal, penalty, weight, {"pooled": P})


@dataclass(frozen=True)
class OneCoin:
    """One skill per annotator, errors uniform: ``A[r,k,k] = a_r``, else ``(1 - a_r) / (K - 1)``.

    The skill is shrunk by s pseudo-labels towards the crowd's share of right labels.
    """

    strength: float
    objective: str = "log-likelihood + log prior density"

    @property
    def burn_in(self) -> int:
        """A few steps until the crowd's share of right labels has settled; none without a prior."""
        return 5 if self.strength else 0

    def fit(self, layout: Layout, counts: Tensor, last: Fitted | None, *, burning: bool) -> Fitted:
        s, K = self.strength, layout.num_classes
        right = layout.by_annotator((counts * layout.own()).sum(1))
        n = layout.by_annotator(counts.sum(1))
        share = right.sum() / n.sum().clamp(min=TINY) if burning or last is None else last.hyper["share"]
        a = torch.where(n + s > 0, (right + s * share) / (n + s).clamp(min=TINY), share)
        penalty = float((s * share * log(a) + s * (1 - share) * log(1 - a)).sum())
        wrong = (1 - a) / max(K - 1, 1)
        A = torch.where(layout.own(), a[layout.key_annotator, None], wrong[layout.key_annotator, None])
        pattern = (1 - torch.eye(K, dtype=A.dtype, device=A.device)) / max(K - 1, 1)
        skill = a.unsqueeze(1).expand(-1, K)
        weight = torch.full_like(skill, s)
        return Fitted(log(A), A, 1 - skill, pattern, skill, penalty, weight, {"share": share}, shared=True)


@dataclass(frozen=True)
class Skill:
    """Per-annotator skill over a pooled confusion: ``logit A[r,k,k] = easiness_k + ability_r``.

    Errors follow one pattern for the whole crowd, ``A[r,k,j] = (1 - A[r,k,k]) B[k,j]``. Abilities have a
    normal prior of precision `strength`. A generalised M-step: the two-way logistic fit is improved, not
    finished.
    """

    strength: float
    burn_in: int = 0
    objective: str = "log-likelihood + log prior density"

    def fit(self, layout: Layout, counts: Tensor, last: Fitted | None, *, burning: bool) -> Fitted:
        easiness, ability, B, penalty = rasch(layout, counts, last, max(self.strength, 1e-6))
        a = torch.sigmoid(easiness + ability.unsqueeze(1))
        A = spread(layout, a, B)
        hyper = {"easiness": easiness, "ability": ability, "pattern": B}
        return Fitted(log(A), A, 1 - a, B, a, penalty, torch.zeros_like(a), hyper, shared=True)


def spread(layout: Layout, right: Tensor, pattern: Tensor) -> Tensor:
    """Entries of A at the keys, from the diagonal ``(annotators, classes)`` and the pattern of errors."""
    a = right[layout.key_annotator]
    return torch.where(layout.own(), a, (1 - a) * pattern.T[layout.key_label])


PSEUDO = 0.01  # pseudo-labels that keep every kind of error possible
ALIKE = 100.0  # precision of the classes' easiness around their mean: a few hundred labels tell classes apart


def rasch(
    layout: Layout, counts: Tensor, last: Fitted | None, precision: float
) -> tuple[Tensor, Tensor, Tensor, float]:
    """Easiness of classes, ability of annotators, pattern of errors, and the log prior density of the three."""
    right = layout.by_annotator(counts * layout.own())
    n = layout.by_annotator(counts)
    if last is None:
        share = (right.sum(0) + 1) / (n.sum(0) + 2)
        easiness, ability = share.logit(), n.new_zeros(layout.num_annotators)
    else:
        easiness, ability = last.hyper["easiness"], last.hyper["ability"]
    for _ in range(3):
        ability = _newton(ability, right, n, easiness, precision)
        middle = easiness.mean()
        easiness = middle + _newton(easiness - middle, right.T, n.T, ability + middle, ALIKE)
    together = layout.by_label(counts).T + PSEUDO
    B = off_diagonal(together)
    eye = torch.eye(len(B), dtype=torch.bool, device=B.device)
    apart = (easiness - easiness.mean()).square().sum()
    penalty = -0.5 * (precision * ability.square().sum() + ALIKE * apart)
    penalty = penalty + PSEUDO * log(B).masked_fill(eye, 0.0).sum()
    return easiness, ability, B, float(penalty)


def _newton(x: Tensor, right: Tensor, n: Tensor, offset: Tensor, precision: float) -> Tensor:
    """One safeguarded Newton step of each x for sum right*log s + (n - right)*log(1 - s), s = sigmoid(x + o)."""

    def value(v: Tensor) -> Tensor:
        eta = v.unsqueeze(1) + offset
        gain = right * eta - n * torch.nn.functional.softplus(eta)
        return gain.sum(1) - 0.5 * precision * v.square()

    s = torch.sigmoid(x.unsqueeze(1) + offset)
    slope = (right - n * s).sum(1) - precision * x
    step = x + slope / ((n * s * (1 - s)).sum(1) + precision)
    # A quarter bounds the curvature of the logistic, so this step can never lose.
    safe = x + slope / (0.25 * n.sum(1) + precision)
    return torch.where(value(step) >= value(safe), step, safe)


def matrices(layout: Layout, fitted: Fitted, rows: Tensor | None = None) -> Tensor:
    """Dense ``A[r, true, given]`` of all annotators, or of those in `rows`."""
    who = torch.arange(layout.num_annotators, device=layout.device) if rows is None else rows
    place = torch.full((layout.num_annotators,), -1, dtype=torch.int64, device=layout.device)
    place[who] = torch.arange(len(who), device=layout.device)
    out = fitted.scale[who].unsqueeze(2) * fitted.pattern
    out.diagonal(dim1=1, dim2=2).copy_(fitted.diagonal[who])
    at = place[layout.key_annotator]
    kept = at >= 0
    out[at[kept], :, layout.key_label[kept]] = fitted.mean[kept]
    return out
