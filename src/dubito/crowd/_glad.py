"""GLAD: ability of annotators against difficulty of items."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from .labels import CrowdLabels


@dataclass(frozen=True)
class Glad:
    """Abilities ``(annotators,)``, log-easiness ``(items,)``, posteriors, and the two traces' ends."""

    ability: Tensor
    easiness: Tensor
    posterior: Tensor
    trace: list[float]
    log_likelihood: float
    converged: bool
    right: Tensor  # probability of being right, per label


def glad(
    crowd: CrowdLabels, *, dtype: torch.dtype, iterations: int, tolerance: float, gold: Tensor | None
) -> Glad:
    """EM for ``P(y = z) = sigmoid(a_r exp(b_n))``, wrong labels even over the other classes, classes uniform.

    a and b have Normal(1, 1) priors; each M-step takes safeguarded Newton steps, so the log-likelihood plus
    log prior density never falls.
    """
    model = _Model(crowd, dtype, gold)
    a, b = model.one(crowd.num_annotators), model.one(crowd.num_items)
    trace: list[float] = []
    converged = False
    for _ in range(iterations):
        q, value = model.e_step(a, b)
        trace.append(value + model.prior(a) + model.prior(b))
        converged = len(trace) > 1 and trace[-1] - trace[-2] < tolerance * max(len(crowd), 1)
        if converged:
            break
        right = q[model.item, model.label]
        for _ in range(2):
            a = model.improve(a, b, right, by_item=False)
            b = model.improve(b, a, right, by_item=True)
    q, value = model.e_step(a, b)
    if not converged:
        trace.append(value + model.prior(a) + model.prior(b))
    return Glad(a, b, q, trace, value, converged, torch.sigmoid(model.score(a, b)))


class _Model:
    def __init__(self, crowd: CrowdLabels, dtype: torch.dtype, gold: Tensor | None) -> None:
        self.item, self.annotator, self.label = crowd.item.long(), crowd.annotator.long(), crowd.label.long()
        self.shape, self.dtype, self.gold = (crowd.num_items, crowd.num_classes), dtype, gold
        self.rest = max(crowd.num_classes - 1, 1)

    def one(self, size: int) -> Tensor:
        return torch.ones(size, dtype=self.dtype, device=self.item.device)

    @staticmethod
    def prior(x: Tensor) -> float:
        return float(-0.5 * (x - 1).square().sum())

    def score(self, a: Tensor, b: Tensor) -> Tensor:
        return a[self.annotator] * b[self.item].exp()

    def e_step(self, a: Tensor, b: Tensor) -> tuple[Tensor, float]:
        """log sigmoid(t) - log sigmoid(-t) = t, so a label adds t + log(K - 1) to its own class only."""
        t = self.score(a, b)
        N, K = self.shape
        wrong = logsigmoid(-t) - _log(self.rest)
        base = t.new_zeros(N).index_add_(0, self.item, wrong)
        scores = t.new_zeros(N * K).index_add_(0, self.item * K + self.label, t + _log(self.rest))
        scores = scores.view(N, K) - _log(K)
        if self.gold is not None:
            other = torch.arange(K, device=t.device) != self.gold.unsqueeze(1)
            scores = scores.masked_fill(other & (self.gold >= 0).unsqueeze(1), -torch.inf)
        total = torch.logsumexp(scores, 1, keepdim=True)
        return (scores - total).exp(), float((total.squeeze(1) + base).sum(dtype=torch.float64))

    def improve(self, x: Tensor, other: Tensor, right: Tensor, *, by_item: bool) -> Tensor:
        """One Newton step for every annotator or item on its own, halved where it would lose."""
        index = self.item if by_item else self.annotator
        fixed = other[self.annotator if by_item else self.item]
        fixed = fixed if by_item else fixed.exp()

        def summed(values: Tensor) -> Tensor:
            return values.new_zeros(len(x)).index_add_(0, index, values)

        def score(v: Tensor) -> Tensor:
            return fixed * (v[index].exp() if by_item else v[index])

        def value(v: Tensor) -> Tensor:
            t = score(v)
            return summed(right * t + logsigmoid(-t)) - 0.5 * (v - 1).square()

        t = score(x)
        s = torch.sigmoid(t)
        turn = t if by_item else fixed  # dt/dx
        slope = summed((right - s) * turn) - (x - 1)
        bend = summed(s * (1 - s) * turn.square()) + 1
        step, now, best = slope / bend, value(x), x
        open_ = torch.ones_like(x, dtype=torch.bool)
        for _ in range(6):
            tried = x + step
            good = open_ & (value(tried) >= now)
            best = torch.where(good, tried, best)
            open_ = open_ & ~good
            step = step * 0.5
        return best


def _log(x: int) -> float:
    return float(torch.tensor(float(x), dtype=torch.float64).log())
