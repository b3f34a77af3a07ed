"""What a trained model says about the annotators it learned from and about the items they labelled."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .crowd import CrowdLabels, Questions
from .crowd.ask import _check, ask_about
from .crowd.intervals import beta_interval, jeffreys
from .data import LabelledData
from .data._labelled import Triplets
from .evaluate import predict
from .procedures import GeneralisedEM
from .procedures.em import count_annotators, crowd_of
from .procedures.posterior import count_matrices, log_evidence, posterior
from .train import Run

# How many of the most telling annotators are considered for questions.
CANDIDATES = 50


@dataclass(frozen=True)
class Judged:
    """Posteriors ``(N, K)`` of the items, matrices ``(R, K, K)`` of the annotators, and the labels behind them."""

    posteriors: Tensor
    matrices: Tensor
    crowd: Triplets

    def quality(self) -> Tensor:
        """Probability that each label is right, ``(labels,)``: the posterior of the class it names."""
        return self.posteriors[self.crowd.item, self.crowd.label]

    def skill_intervals(self, level: float) -> Tensor:
        """Central intervals of the mean diagonals, ``(R, 2)``.

        Beta distributions behind each row, whose size is the expected number of labels on items of that class. A
        label counts only as far as it is known whether it was right: with v the probability that it is and a its
        mean over the annotator's labels, by ``f = sum (v - a)^2 / sum a (1 - a)``, squared, because the rows are
        told apart by the same labels.
        """
        R, K, _ = self.matrices.shape
        v, who = self.quality(), self.crowd.annotator
        zero = v.new_zeros(R)
        labels = zero.index_add(0, who, torch.ones_like(v))
        hit, hit2 = zero.index_add(0, who, v), zero.index_add(0, who, v.square())
        a = hit / labels.clamp(min=1e-9)
        f = ((hit2 - 2 * a * hit + labels * a.square() + 1) / (labels * a * (1 - a) + 1)).clamp(0.0, 1.0)
        rows = v.new_zeros(R, K).index_add(0, who, self.posteriors[self.crowd.item])
        diagonal = self.matrices.diagonal(dim1=1, dim2=2)
        mean, variance = jeffreys(diagonal, rows * f.square().unsqueeze(1))
        return beta_interval(mean.mean(1), variance.mean(1) / K, level)


def judge(run: Run, data: LabelledData) -> Judged:
    """Posteriors and matrices after training, in float64 on the CPU.

    EM has both. A channel has matrices, and its posterior is ``p(k | x_n) prod over labels of A[r, k, y]``. For
    methods without matrices these are counted against the predictions, and once more against the posteriors.
    """
    data = data.to("cpu")
    crowd, trained = crowd_of(data), run.procedure
    if isinstance(trained, GeneralisedEM):
        q, A = (t.detach().cpu().double() for t in (trained.posteriors, trained.matrices))
        return Judged(q, A, crowd)
    log_p = predict(run.model.cpu(), data).log_p.double()
    channel, n = run.model.channel, len(data)
    if channel is not None and getattr(channel, "per_annotator", False):
        A = channel.matrices().detach().cpu().double()  # type: ignore[operator]
        return Judged(posterior(log_p, log_evidence(A, crowd, n)), A, crowd)
    q = log_p.exp()
    for _ in range(2):
        A = count_matrices(q, crowd, count_annotators(data), strength=1.0)
        q = posterior(log_p, log_evidence(A, crowd, n))
    return Judged(q, A, crowd)


def questions(crowd: CrowdLabels, judged: Judged, n: int, per_annotator: int | None) -> Questions:
    """The n most informative pairs of item and annotator, as `crowd.ask_next` finds them from labels alone."""
    _check(n, per_annotator, CANDIDATES)
    q, A = judged.posteriors, judged.matrices
    return ask_about(crowd, q, q.mean(0), A.__getitem__, n, per_annotator, CANDIDATES)
