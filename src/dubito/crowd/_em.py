"""The EM loop shared by all confusion-matrix models."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ._layout import Layout, Sums, e_step, vote_shares
from ._rules import Fitted, Rule, log


@dataclass(frozen=True)
class Result:
    """Where EM ended: matrices, class prior, the last pass, the objective after each step.

    `dependence` is the rho of `_dependence`, nought where labels of an item are taken for independent.
    """

    fitted: Fitted
    prior: Tensor
    sums: Sums
    trace: list[float]
    converged: bool
    log_likelihood: float
    dependence: float = 0.0


@dataclass(frozen=True)
class Base:
    """Counts of labels that are not touched, added to those of the labels at hand."""

    counts: Tensor
    prior: Tensor


class Shared:
    """Sums over all processes when labels are sharded by item."""

    def __init__(self, distributed: bool) -> None:
        self.distributed = distributed

    def number(self, value: float, like: Tensor) -> float:
        """A number added up over the processes."""
        empty = like.new_zeros(0)
        return self(Sums(empty, empty, value, empty, empty)).log_likelihood

    def __call__(self, sums: Sums) -> Sums:
        """Add up counts, class counts and log-likelihood; posteriors stay local."""
        if not self.distributed:
            return sums
        import torch.distributed as dist

        total = sums.prior.new_tensor(sums.log_likelihood)
        for part in (sums.counts, sums.prior, total, sums.squares):
            if part.numel():
                dist.all_reduce(part)
        return Sums(sums.counts, sums.prior, float(total), sums.posterior, sums.squares)


def expectation_maximisation(
    layout: Layout,
    rule: Rule,
    *,
    pseudo: float,
    iterations: int,
    tolerance: float,
    start: tuple[Fitted, Tensor] | None = None,
    base: Base | None = None,
    shared: Shared,
) -> Result:
    """Alternate E- and M-steps until the objective gains less than `tolerance` per label.

    A fit whose steps ran out has settled as well if the last one moved the posteriors by less than that.

    Arguments:
        pseudo: pseudo-items per class in the class prior.
        start: matrices and class prior of an earlier fit; without it, vote shares.
        base: counts of labels outside the layout.
    """

    def whole(sums: Sums) -> tuple[Tensor, Tensor]:
        if base is None:
            return sums.counts, sums.prior
        return sums.counts + base.counts, sums.prior + base.prior

    def step(sums: Sums, last: Fitted | None, burning: bool) -> tuple[Fitted, Tensor]:
        counts, items = whole(sums)
        prior = (items + pseudo) / (items.sum() + pseudo * layout.num_classes).clamp(min=1e-300)
        return rule.fit(layout, counts, last, burning=burning), prior

    labels = shared.number(layout.num_labels, layout.zeros(0))
    if start is None:
        fitted, prior = step(shared(vote_shares(layout)), None, True)
        for _ in range(rule.burn_in):
            fitted, prior = step(shared(e_step(layout, fitted.table, log(prior))), fitted, True)
    else:
        fitted, prior = start

    def objective(sums: Sums) -> float:
        value = sums.log_likelihood + fitted.penalty + pseudo * float(log(prior).sum())
        if base is not None:
            value += float((base.counts * fitted.table).sum() + (base.prior * log(prior)).sum())
        return value

    trace: list[float] = []
    converged = False
    for _ in range(iterations):
        sums = shared(e_step(layout, fitted.table, log(prior)))
        trace.append(objective(sums))
        converged = len(trace) > 1 and trace[-1] - trace[-2] < tolerance * max(labels, 1.0)
        if converged:
            break
        fitted, prior = step(sums, fitted, False)
    last = shared(e_step(layout, fitted.table, log(prior), keep=True, squares=True))
    if not converged:
        trace.append(objective(last))
        # Where all agree the crowd's skill has no bound: it creeps up for ever, and no posterior moves any more.
        converged = iterations > 0 and float((last.counts - sums.counts).abs().sum()) < tolerance * labels
    true = last.log_likelihood
    if rule.objective == "evidence lower bound":
        true = shared(e_step(layout, log(fitted.mean), log(prior))).log_likelihood
    return Result(fitted, prior, last, trace, converged, true)
