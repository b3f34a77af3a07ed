"""What aggregation returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import DubitoError
from ._coding import Ids, as_column, encode_with
from ._layout import Layout
from ._rules import Fitted, matrices
from .intervals import beta_interval, check_level, mean_of_betas


@dataclass(frozen=True)
class State:
    """Sufficient statistics behind an aggregate: enough to start again or to go on."""

    layout: Layout  # keys only, no labels
    fitted: Fitted
    counts: Tensor
    squares: Tensor
    items: Tensor  # expected number of items per class
    num_labels: int
    strength: float


@dataclass(frozen=True)
class Aggregate:
    """Consensus of a crowd.

    Fields:
        items, annotators, classes: ids, as in `CrowdLabels`.
        codes: ``(items,)`` class with the highest probability (the drawn one in a tied vote).
        probabilities: ``(items, classes)`` probability of each true class given the labels.
        skills: ``(annotators,)`` mean of the diagonal of the annotator's matrix: the chance of a right label
            on an item whose class is drawn evenly.
        class_prior: ``(classes,)``.
        log_likelihood: the true marginal log-likelihood of the labels under `class_prior` and
            `confusion_matrices`, ``sum_n log sum_k prior_k prod_r A[r, k, y_nr]`` (gold items contribute
            their known class only).
        trace: `objective` after each step; it never falls.
        objective: what the trace holds: the log-likelihood itself for maximum likelihood (strength 0); with a
            prior, the log-likelihood plus the log density of the prior (up to a constant); the evidence lower
            bound for the hierarchical model.
        method, why: the model used, and why it was chosen.
        converged: whether the last step gained less than the tolerance.
    """

    items: Ids
    annotators: Ids
    classes: Ids
    codes: Tensor
    probabilities: Tensor
    skills: Tensor
    class_prior: Tensor
    log_likelihood: float
    trace: Tensor
    objective: str
    method: str
    why: str
    converged: bool
    state: State = field(repr=False)

    @property
    def labels(self) -> Ids:
        """The consensus label of each item, as a class."""
        labels: Ids = self.classes[self.codes.cpu().numpy()]
        return labels

    @property
    def confidence(self) -> Tensor:
        """Probability of the consensus label, ``(items,)``."""
        return self.probabilities.gather(1, self.codes.unsqueeze(1)).squeeze(1)

    @property
    def confusion_matrices(self) -> Tensor:
        """``A[r, true, given]`` of all annotators, built when asked for; see `confusion_of` for one."""
        return matrices(self.state.layout, self.state.fitted)

    def confusion_of(self, annotator: Any) -> Tensor:
        """``A[true, given]`` of one annotator, by id."""
        code = encode_with(
            as_column([annotator], "annotator"), self.annotators, "annotator", "give a known id"
        )
        return matrices(self.state.layout, self.state.fitted, torch.from_numpy(code).long())[0]

    def evidence(self) -> Tensor:
        """Labels' worth of evidence behind each row of each matrix, ``(annotators, classes)``.

        The sum of squared posteriors: a label whose item's class is sure counts one, one that is torn
        between classes counts less. With the prior's pseudo-labels. Where one number per annotator
        stands behind all rows, they share all labels.
        """
        size = self.state.layout.by_annotator(self.state.squares)
        if self.state.fitted.shared:
            size = size.sum(1, keepdim=True).expand_as(size)
        return size + self.state.fitted.weight

    def skill_intervals(self, level: float = 0.95) -> Tensor:
        """Central intervals of the skills, ``(annotators, 2)``."""
        check_level(level)
        if self.state.fitted.shared:
            return beta_interval(self.skills, self.evidence()[:, 0], level)
        diagonal = diagonal_of(self.state.layout, self.state.fitted)
        return beta_interval(*mean_of_betas(diagonal, self.evidence()), level)

    def confusion_intervals(self, level: float = 0.95) -> Tensor:
        """Central intervals of the entries of all matrices, ``(annotators, classes, classes, 2)``."""
        A = self.confusion_matrices
        return beta_interval(A, self.evidence().unsqueeze(2).expand_as(A), level)


def diagonal_of(layout: Layout, fitted: Fitted) -> Tensor:
    """Diagonals of all matrices ``(annotators, classes)`` without building the matrices."""
    out = fitted.diagonal.clone()
    out[layout.key_annotator, layout.key_label] = fitted.mean.gather(
        1, layout.key_label.unsqueeze(1)
    ).squeeze(1)
    return out


def gold_codes(gold: Any, items: Ids, classes: Ids) -> Tensor | None:
    """Known classes of items, -1 elsewhere, from a dict or a pair of columns."""
    if gold is None:
        return None
    if isinstance(gold, dict):
        gold = (list(gold.keys()), list(gold.values()))
    if not isinstance(gold, (tuple, list)) or len(gold) != 2:
        raise DubitoError(
            "gold must map items to classes", expected="a dict or (items, labels)", got=type(gold)
        )
    who, what = (as_column(v, n) for v, n in zip(gold, ("gold items", "gold labels")))
    if len(who) != len(what):
        raise DubitoError("gold items and labels must be of one length", expected=len(who), got=len(what))
    rows = encode_with(who, items, "gold item", "give items that the crowd has")
    codes = encode_with(what, classes, "gold class", "list it in classes=[...]")
    out = np.full(len(items), -1, dtype=np.int64)
    for row, code in zip(rows, codes):
        if out[row] not in (-1, code):
            raise DubitoError("an item has two gold classes", where=f"item {items[row]!r}")
        out[row] = code
    return torch.from_numpy(out)
