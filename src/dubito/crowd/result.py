"""What aggregation returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import DubitoError
from ._coding import Ids, as_column, encode_with
from ._hierarchical import sway
from ._layout import Layout
from ._rules import Fitted, matrices
from .intervals import beta_interval, jeffreys
from .labels import CrowdLabels


@dataclass(frozen=True)
class State:
    """Sufficient statistics behind an aggregate: enough to start again or to go on."""

    layout: Layout  # keys only, no labels
    fitted: Fitted
    counts: Tensor
    squares: Tensor
    items: Tensor  # expected number of items per class
    given: tuple[
        Tensor, Tensor, Tensor
    ]  # codes of item, annotator and label of each label, shared with the crowd
    strength: float
    company: Tensor  # (annotators,) share of their labels that is beside another or on an item of known class
    told: float  # the same share of all labels
    gold: Tensor | None = None  # (items,) known classes, -1 elsewhere


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
        converged: whether the last step gained less than the tolerance, or, when the steps ran out, moved the
            posteriors by less than it (per label).
        dependence: rho, how far labels of one item err together: m labels are worth ``m / (1 + rho (m - 1))``
            independent ones. Learned by the hierarchical model from how well a label is predicted by the others of
            its item, three or more; 0, independent, for the other models.
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
    dependence: float = 0.0

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
        row = torch.from_numpy(code).long().to(self.state.layout.device)
        return matrices(self.state.layout, self.state.fitted, row)[0]

    def worth(self) -> Tensor:
        """Labels' worth of what an annotator's labels tell about each row, ``(annotators, classes)``.

        A label tells about skill only as far as it is known whether it was right. With v the posterior that a
        label is right and a its mean over the annotator's labels, the observed information about a is
        ``f = sum (v - a)^2 / sum a (1 - a)`` of what known truth would give (Louis 1982; the products of scores).
        Posteriors are themselves estimated from the labels, so f is too high where it is low: labels are discounted
        by f^2 where an annotator has a matrix, whose rows are told apart by the same labels, and by f^1.5 where one
        number stands behind it. That covers on simulated crowds (`benchmarks/crowd_intervals.py`). The only label
        of an item, if its class is not known, agrees with itself and tells nothing.
        """
        state, layout = self.state, self.state.layout
        n = layout.by_annotator(state.counts)
        labels, hit = n.sum(1), self._hits()
        hit2 = layout.by_annotator((state.squares * layout.own()).sum(1))
        a = hit / labels.clamp(min=1e-9)
        f = (hit2 - 2 * a * hit + labels * a.square() + 1) / (labels * a * (1 - a) + 1)  # at most 1, as v is
        if state.fitted.shared:
            return (labels * state.company * f.pow(1.5)).unsqueeze(1).expand_as(n)
        return n * (state.company * f.square()).unsqueeze(1)

    def _hits(self) -> Tensor:
        """Expected number of right labels of each annotator."""
        layout = self.state.layout
        return layout.by_annotator((self.state.counts * layout.own()).sum(1))

    def evidence(self) -> Tensor:
        """Labels' worth of evidence behind each row of each matrix, that of the prior included.

        The prior is the crowd's: it is worth no more than the share of all labels that tell anything about skill.
        """
        return self.worth() + self.state.fitted.weight * self.state.told

    def _sway(self) -> Tensor | None:
        """What an uncertain skill adds to the rows of the hierarchical model."""
        return sway(self.state.fitted.hyper, self.worth()) if self.method == "hierarchical" else None

    def _pull(self) -> Tensor:
        """How far the prior of Dawid-Skene may have moved a skill, ``(annotators,)``.

        It draws every row towards the crowd's by the share ``s / (worth + s)``; annotators differ from the crowd
        by the spread of their shares of right labels. All rows of an annotator are drawn the same way, so this does
        not average out over classes.
        """
        s, layout = self.state.strength, self.state.layout
        labels = layout.by_annotator(self.state.counts).sum(1)
        share = (self._hits() / labels.clamp(min=1e-9))[labels > 0]
        apart = share.std(correction=0) if len(share) else labels.new_zeros(())
        found: Tensor = apart * (s / (self.worth() + s).clamp(min=1e-9)).mean(1)
        return found

    def skill_intervals(self, level: float = 0.95) -> Tensor:
        """Central intervals of the skills, ``(annotators, 2)``.

        Beta distributions with the evidence of `evidence`, wider by what the prior may have moved (`_pull` for
        Dawid-Skene, the uncertain skill for the default). On simulated crowds of fresh seeds a nominal 95 % covers
        .934 to .964 of the skills with two to ten labels per item; least where all annotators share one pattern of
        errors and have few labels, .88 (`benchmarks/crowd_intervals.py`). Where many err on the same item the
        default allows for it, but what all take for right is right to it: real crowds are covered less
        (`benchmarks/crowd_calibration.py`). An interval holds its skill, also where Jeffreys' prior has moved
        it off.
        """
        low, high = self._beta_intervals(level).unbind(-1)
        return torch.stack([torch.minimum(low, self.skills), torch.maximum(high, self.skills)], -1)

    def _beta_intervals(self, level: float) -> Tensor:
        if self.state.fitted.shared:
            return beta_interval(*jeffreys(self.skills, self.evidence()[:, 0]), level)
        diagonal = diagonal_of(self.state.layout, self.state.fitted)
        mean, variance = jeffreys(diagonal, self.evidence())
        spread, common = variance.mean(1) / variance.shape[1], self._sway()
        if common is not None:
            spread = spread + common.mean(1).square()
        if self.method == "dawid-skene":
            spread = spread + self._pull().square()
        return beta_interval(mean.mean(1), spread, level)

    def confusion_intervals(self, level: float = 0.95) -> Tensor:
        """Central intervals of the entries of all matrices, ``(annotators, classes, classes, 2)``."""
        A = self.confusion_matrices
        mean, variance = jeffreys(A, self.evidence().unsqueeze(2).expand_as(A))
        common, pattern = self._sway(), self.state.fitted.pattern
        if common is not None:
            eye = torch.eye(len(pattern), dtype=pattern.dtype, device=pattern.device)
            variance = variance + (common.unsqueeze(2) * (pattern + eye)).square()
        return beta_interval(mean, variance, level)


def check_aggregate(value: Any) -> None:
    """Refuse what `aggregate` did not return."""
    if not isinstance(value, Aggregate):
        raise DubitoError(
            "not an aggregate", expected="what aggregate(crowd) returns", got=type(value).__name__
        )


def company_of(
    crowd: CrowdLabels, gold: Tensor | None = None, *, distributed: bool = False
) -> tuple[Tensor, float]:
    """Share of each annotator's labels ``(annotators,)``, and of all, beside another or a known class.

    `distributed`: of the labels of all processes, whose items are their own.
    """
    pairs = torch.unique(
        crowd.item.long() * max(crowd.num_annotators, 1) + crowd.annotator
    )  # oneself is no company
    people = torch.bincount(pairs // max(crowd.num_annotators, 1), minlength=crowd.num_items)
    lonely = people == 1 if gold is None else (people == 1) & (gold < 0)
    who = crowd.annotator[lonely.index_select(0, crowd.item)]
    alone = torch.bincount(who, minlength=crowd.num_annotators).double()
    each = crowd.labels_per_annotator().double()
    if distributed:
        import torch.distributed as dist

        dist.all_reduce(alone)
        dist.all_reduce(each)
    return 1 - alone / each.clamp(min=1), 1 - float(alone.sum() / each.sum().clamp(min=1))


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
            raise DubitoError(
                "an item has two gold classes", where=f"item {items[row : row + 1].tolist()[0]!r}"
            )
        out[row] = code
    return torch.from_numpy(out)
