"""The hierarchical model: the crowd's pattern, the annotator's skill, the annotator's own matrix."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ._layout import Layout
from ._rules import Fitted, rasch, spread


@dataclass(frozen=True)
class Hierarchical:
    """Three levels: the crowd's pattern, an annotator's skill over it, and the annotator's own matrix.

    Rows have Dirichlet priors, ``A[r,k,:] ~ Dir(s_k M[r,k,:])``, whose mean M is the `Skill` model and whose
    strength s_k per true class is learned from the crowd by evidence: where annotators are alike or have few labels
    their matrices fall back to the skill model, where they differ and have many each keeps its own. Matrices
    are integrated out by mean-field variational Bayes; the objective is the evidence lower bound, and a new
    M or s is taken only if it does not lower it.
    """

    strength: float
    burn_in: int = 0
    objective: str = "evidence lower bound"
    # Gamma(2, 1/4) on s_k: mode 4, weak.
    rate: float = 0.25

    def fit(self, layout: Layout, counts: Tensor, last: Fitted | None, *, burning: bool) -> Fitted:
        n = layout.by_annotator(counts)
        easiness, ability, B, penalty = rasch(layout, counts, last, 1.0)
        new = {"easiness": easiness, "ability": ability, "pattern": B, "penalty": n.new_tensor(penalty)}
        if last is None:
            new["strength"] = n.new_full((layout.num_classes,), self.strength)
            value = self._evidence(layout, counts, n, new)
        else:
            old = last.hyper
            new["strength"] = old["strength"]
            before, value = (self._evidence(layout, counts, n, h) for h in (old, new))
            if value < before:
                new, value = old, before
        return self._posterior(layout, counts, n, self._strengthen(layout, counts, n, new, value))

    def _strengthen(
        self, layout: Layout, counts: Tensor, n: Tensor, hyper: dict[str, Tensor], value: float
    ) -> dict[str, Tensor]:
        """Better strengths: Minka's fixed point for the total of a Dirichlet, in long strides while they pay."""
        s, ratio = hyper["strength"], self._ratio(layout, counts, n, hyper)
        if float((ratio - 1).abs().max()) < 1e-4:
            return hyper
        for stride in (16.0, 2.0, 1.0):
            tried = {**hyper, "strength": (s * ratio**stride).clamp(0.05, 1e4)}
            if self._evidence(layout, counts, n, tried) >= value:
                return tried
        return hyper

    def _mean(self, layout: Layout, hyper: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        a = torch.sigmoid(hyper["easiness"] + hyper["ability"].unsqueeze(1)).clamp(1e-6, 1 - 1e-6)
        return a, (hyper["strength"] * spread(layout, a, hyper["pattern"])).clamp(min=1e-10)

    def _evidence(self, layout: Layout, counts: Tensor, n: Tensor, hyper: dict[str, Tensor]) -> float:
        """Log probability of the expected counts with the matrices integrated out, and of the priors."""
        s = hyper["strength"]
        alpha = self._mean(layout, hyper)[1]
        rows = torch.lgamma(s).expand_as(n) - torch.lgamma(n + s)
        cells = torch.lgamma(counts + alpha) - torch.lgamma(alpha)
        return float(rows.sum() + cells.sum() + (s.log() - self.rate * s).sum() + hyper["penalty"])

    def _ratio(self, layout: Layout, counts: Tensor, n: Tensor, hyper: dict[str, Tensor]) -> Tensor:
        s = hyper["strength"]
        alpha = self._mean(layout, hyper)[1]
        up = (alpha * (torch.digamma(counts + alpha) - torch.digamma(alpha))).sum(0)
        down = (torch.digamma(n + s) - torch.digamma(s)).sum(0)
        return (up + 1.0) / (s * (down + self.rate))

    def _posterior(self, layout: Layout, counts: Tensor, n: Tensor, hyper: dict[str, Tensor]) -> Fitted:
        s = hyper["strength"]
        a, alpha = self._mean(layout, hyper)
        post, total = counts + alpha, n + s
        row = torch.digamma(total)[layout.key_annotator]
        table = torch.digamma(post) - row
        divergence = (torch.lgamma(total) - torch.lgamma(s)).sum() + (counts * table).sum()
        divergence = divergence - (torch.lgamma(post) - torch.lgamma(alpha)).sum()
        prior = (s.log() - self.rate * s).sum() + hyper["penalty"]
        share = s / total
        # Labels of a class tell about the skill as one draw from the Dirichlet does, however many they are.
        known = (n * (s + 1) / total * a * (1 - a)).sum(1, keepdim=True) + 1.0
        return Fitted(
            table=table,
            mean=post / total[layout.key_annotator],
            scale=share * (1 - a),
            pattern=hyper["pattern"],
            diagonal=share * a,
            penalty=float(prior - divergence),
            weight=s.expand_as(n),
            hyper=hyper,
            sway=share * a * (1 - a) / known.sqrt(),
        )
