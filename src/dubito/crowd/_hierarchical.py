"""The hierarchical model: the crowd's pattern, the annotator's skill, the annotator's own matrix."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ._layout import Layout
from ._rules import Fitted, rasch, spread

NOTHING = 1e-12  # an expected count below this is none: with many classes most are
LEAST = 1e-10  # of a Dirichlet's parameters


def trigamma(x: Tensor) -> Tensor:
    """Derivative of digamma."""
    return torch.polygamma(1, x)


def diagonal(hyper: dict[str, Tensor]) -> Tensor:
    """Mean of the prior on the diagonal, ``(annotators, classes)``."""
    a = torch.sigmoid(hyper["easiness"] + hyper["ability"].unsqueeze(1))
    return a.clamp(1e-6, 1 - 1e-6)


def prior_of(layout: Layout, hyper: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Parameters of the Dirichlet priors at the keys ``(keys, classes)``, and their sums ``(classes,)``."""
    s = hyper["strength"]
    return (s * spread(layout, diagonal(hyper), hyper["pattern"])).clamp(min=LEAST), s


def sway(hyper: dict[str, Tensor], n: Tensor) -> Tensor:
    """Standard deviation of the diagonals that an uncertain skill in the prior brings, common to all rows.

    The labels of a class tell about the skill as one draw from the Dirichlet does, however many they are:
    ``n (s + 1) / (n + s)`` of them count, beside the normal prior of the ability.

    Shapes: n ``(annotators, classes)``, the labels' worth of evidence in each row -> the same.
    """
    a, s = diagonal(hyper), hyper["strength"]
    known = (n * (s + 1) / (n + s) * a * (1 - a)).sum(1, keepdim=True) + 1.0
    return s / (n + s) * a * (1 - a) / known.sqrt()


@dataclass(frozen=True)
class Cells:
    """The cells (annotator, true, given) whose expected count is not nothing; the others add no evidence."""

    true: Tensor
    row: Tensor  # place of (annotator, true) in a flattened table
    error: Tensor  # place of (true, given) in a flattened table
    right: Tensor  # which cells are on the diagonal
    counts: Tensor
    n: Tensor  # (annotators, classes)

    @staticmethod
    def of(layout: Layout, counts: Tensor, n: Tensor) -> Cells:
        """Find them."""
        K = layout.num_classes
        place = counts.flatten().nonzero().squeeze(1)
        key, true = torch.div(place, K, rounding_mode="floor"), place % K
        given = layout.key_label.index_select(0, key)
        row = layout.key_annotator.index_select(0, key) * K + true
        right = (true == given).nonzero().squeeze(1)
        return Cells(true, row, true * K + given, right, counts.flatten().index_select(0, place), n)

    def alpha(self, hyper: dict[str, Tensor]) -> Tensor:
        """The Dirichlet parameters of the prior at the cells."""
        a, s = diagonal(hyper), hyper["strength"]
        out = (s * (1 - a)).flatten().index_select(0, self.row)
        out *= hyper["pattern"].flatten().index_select(0, self.error)
        out[self.right] = (s * a).flatten().index_select(0, self.row[self.right])
        return out.clamp_(min=LEAST)


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
        counts = counts.masked_fill(counts < NOTHING, 0.0)
        n = layout.by_annotator(counts)
        cells = Cells.of(layout, counts, n)
        easiness, ability, B, penalty = rasch(layout, counts, last, 1.0)
        new = {"easiness": easiness, "ability": ability, "pattern": B, "penalty": n.new_tensor(penalty)}
        new["strength"] = n.new_full((layout.num_classes,), self.strength)
        tried = [] if last is None else [last.hyper]
        if last is not None:
            new["strength"] = last.hyper["strength"]
        for s in self._steps(cells, new):
            tried.append({**new, "strength": s.clamp(0.05, 1e4)})
        hyper, value = self._best(cells, tried)
        return self._posterior(layout, counts, n, hyper, value)

    def given(self, layout: Layout, counts: Tensor, last: Fitted) -> Fitted:
        """The matrices that these counts give under the prior as it is."""
        return self._posterior(layout, counts, layout.by_annotator(counts), last.hyper, 0.0)

    def _best(self, cells: Cells, tried: list[dict[str, Tensor]]) -> tuple[dict[str, Tensor], float]:
        """The first proposal that is no worse than where we stand (the first of the list), else that."""
        stand, value = tried[0], self._evidence(cells, tried[0])
        for hyper in tried[1:]:
            found = self._evidence(cells, hyper)
            if found >= value:
                return hyper, found
        return stand, value

    def _evidence(self, cells: Cells, hyper: dict[str, Tensor]) -> float:
        """Log probability of the expected counts with the matrices integrated out, and of the priors."""
        s = hyper["strength"]
        alpha = cells.alpha(hyper)
        rows = torch.lgamma(s).expand_as(cells.n) - torch.lgamma(cells.n + s)
        inner = torch.lgamma(cells.counts + alpha) - torch.lgamma(alpha)
        return float(rows.sum() + inner.sum() + (s.log() - self.rate * s).sum() + hyper["penalty"])

    def _steps(self, cells: Cells, hyper: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Proposals for s, boldest first: a Newton step in log s, Minka's fixed point, no change."""
        s = hyper["strength"]
        alpha = cells.alpha(hyper)
        post, total = cells.counts + alpha, cells.n + s

        def over_cells(values: Tensor) -> Tensor:
            return torch.zeros_like(s).index_add_(0, cells.true, values)

        up = over_cells(alpha * (torch.digamma(post) - torch.digamma(alpha)))
        down = s * (torch.digamma(total) - torch.digamma(s)).sum(0)
        slope = up - down + 1.0 - self.rate * s
        bend = over_cells(alpha.square() * (trigamma(post) - trigamma(alpha)))
        bend = bend - s.square() * (trigamma(total) - trigamma(s)).sum(0) + up - down - self.rate * s
        step = torch.where(bend < 0, -slope / bend, slope.sign()).clamp(-2.0, 2.0)
        return s * step.exp(), s * (up + 1.0) / (down + self.rate * s), s

    def _posterior(
        self, layout: Layout, counts: Tensor, n: Tensor, hyper: dict[str, Tensor], evidence: float
    ) -> Fitted:
        alpha, s = prior_of(layout, hyper)
        a = diagonal(hyper)
        post, total = counts + alpha, n + s
        row = torch.digamma(total)[layout.key_annotator]
        table = torch.digamma(post) - row
        share = s / total
        return Fitted(
            table=table,
            mean=post / total[layout.key_annotator],
            scale=share * (1 - a),
            pattern=hyper["pattern"],
            diagonal=share * a,
            # The lower bound is the E-step's log-likelihood and this: -KL(posterior, prior) + log priors.
            penalty=evidence - float((counts * table).sum()),
            weight=s.expand_as(n),
            hyper=hyper,
        )
