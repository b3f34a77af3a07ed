"""Weighted doctor net: model every annotator, then learn how much each opinion is worth."""

from __future__ import annotations

from typing import Any

import torch
from torch import Generator, Tensor, nn

from .._batches import Batch
from .._dense import check_sizes
from ..data import LabelledData
from ..errors import DubitoError
from ..heads import Head, Latent, Point
from ..model import Model
from .em import count_annotators, crowd_of
from .plain import Draw, Plain, weighted


class DoctorHeads(Head):
    """One linear softmax head per annotator, averaged with learned weights.

        p(k | x) = sum_r w_r softmax(W_r h + b_r)[k],   w = softmax(opinion)

    As a head it returns log p, so that the model predicts with all annotators.

    Shapes: features ``(..., F)`` -> mean ``(..., K)``; weight ``(R, K, F)``, bias ``(R, K)``, opinion ``(R,)``.

    Arguments:
        num_annotators: R.
        generator, init: start of the heads, as for `heads.Point`; all annotators start alike.

    Reference:
        Guan et al. 2018

    Example:
        >>> DoctorHeads(4, 3, num_annotators=5)(torch.zeros(2, 4)).mean.exp().sum(-1)
        tensor([1.0000, 1.0000], grad_fn=...)
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        num_annotators: int,
        generator: Generator | None = None,
        init: str = "glorot",
    ) -> None:
        super().__init__(in_features, num_classes, init)
        check_sizes(num_annotators=num_annotators)
        first = Point(in_features, num_classes, generator=generator, init=init)
        weight, bias = (p.detach() for p in (first.mean.weight, first.mean.bias))
        self.num_annotators = num_annotators
        self.weight = nn.Parameter(weight.expand(num_annotators, -1, -1).clone())
        self.bias = nn.Parameter(bias.expand(num_annotators, -1).clone())
        self.opinion = nn.Parameter(torch.zeros(num_annotators))
        self.register_buffer("heard", torch.ones(num_annotators, dtype=torch.bool))

    heard: Tensor

    def of(self, features: Tensor, annotators: Tensor) -> Tensor:
        """Log-probabilities of the given annotators' answers: ``(M, F)`` and ``(M,)`` -> ``(M, K)``."""
        features = features.to(self.weight.dtype)
        logits = torch.einsum("mkf,mf->mk", self.weight[annotators], features) + self.bias[annotators]
        return logits.log_softmax(-1)

    def everyone(self, features: Tensor) -> Tensor:
        """Log-probabilities of all annotators' answers, ``(..., R, K)``."""
        features = features.to(self.weight.dtype)
        return (torch.einsum("...f,rkf->...rk", features, self.weight) + self.bias).log_softmax(-1)

    def average(self, log_q: Tensor, left_out: Tensor | None = None) -> Tensor:
        """Log of the weighted mean of answers ``(..., R, K)``, weights renormalised over those not left out.

        Annotators who never gave a label never count. If all the others are left out, all of these count.
        """
        kept = self.heard if left_out is None else self.heard & ~left_out
        kept = torch.where(kept.any(-1, keepdim=True), kept, self.heard)
        log_w = self.opinion.masked_fill(~kept, -torch.inf).log_softmax(-1)
        return (log_w.unsqueeze(-1) + log_q).logsumexp(-2)

    def forward(self, features: Tensor) -> Latent:
        """Log-probabilities of the weighted mean, as logits."""
        self.check(features)
        return Latent(self.average(self.everyone(features)))


class DoctorNet(Plain):
    """Two stages: each annotator's head learns their labels, then frozen heads learn to be averaged.

        stage 1   mean over items of the mean over an item's labels of -log softmax(W_r h + b_r)[y]
        stage 2   cross-entropy of the item's mean label against the weighted mean of the heads of annotators who
                  did not label it, so that no head is judged on labels it has memorised

    With validation data, stage 2 starts from the best epoch of stage 1, and the model returned is the best of
    stage 2, so that its average is trained. Early stopping in stage 1 skips to the first epoch of stage 2 (the
    history lacks those in between); in stage 2 it ends the run. If all annotators labelled an item, none is left
    for stage 2, and all heads count. Stage 1 computes only the heads of the labels in a batch, stage 2 all of them.

    Arguments:
        averaging: share of the epochs spent on stage 2.

    Reference:
        tanno2019 sec. 3.3
        Guan et al. 2018
    """

    unread = ("loss", "target", "penalty")

    def __init__(self, model: Model, *, averaging: float = 0.2, **stages: Any) -> None:
        super().__init__(model, **stages)
        if not isinstance(model.head, DoctorHeads) or model.channel is not None:
            raise DubitoError("a doctor net needs DoctorHeads and no channel", got=type(model.head).__name__)
        if not 0 < averaging < 1:
            raise DubitoError("averaging is a share of the epochs", expected="in (0, 1)", got=averaging)
        self.averaging, self.head = averaging, model.head

    @property
    def averages_from(self) -> int:
        """The first epoch of stage 2, counted from 0."""
        return self.epochs - round(self.averaging * self.epochs)

    @property
    def second_stage(self) -> bool:
        """Whether backbone and heads are frozen by now."""
        return self.epoch >= self.averages_from

    @property
    def later(self) -> int | None:
        """The first epoch of stage 2, while still in stage 1."""
        return self.averages_from if self.epoch < self.averages_from < self.epochs else None

    def begin(self, data: LabelledData) -> None:
        """Leave annotators without labels out of the mean."""
        if count_annotators(data) > self.head.num_annotators:
            raise DubitoError(
                "more annotators than heads", expected=self.head.num_annotators, got=count_annotators(data)
            )
        given = torch.bincount(crowd_of(data).annotator, minlength=self.head.num_annotators) > 0
        self.head.heard.copy_(given)

    def begin_epoch(self, epoch: int, data: LabelledData) -> None:
        """At the start of stage 2, return to the best weights of stage 1."""
        super().begin_epoch(epoch, data)
        self.anew = epoch == self.averages_from
        if self.anew and self.best is not None:
            self.model.load_state_dict(self.best)

    def forward(self, batch: Batch, draw: Draw) -> Tensor:
        """Mean loss of the present stage over the items of the step; 0 for items without labels."""
        if batch.row is None or batch.annotators is None:
            raise DubitoError("this procedure learns from annotators", remedy="pass data with crowd labels")
        row, who, y = batch.row, batch.annotators, batch.y
        if not batch.complete:
            given = y >= 0
            row, who, y = row[given], who[given], y[given]
        self.model.backbone.train(not self.second_stage)
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.second_stage):
            features = self.model.backbone(batch.x)
        if self.second_stage:
            losses = self._averaging(features, row, who, y)
        else:
            each = -self.head.of(features[row], who).gather(1, y.unsqueeze(1)).squeeze(1)
            nothing = each.new_zeros(len(batch.x))
            counts = nothing.index_add(0, row, torch.ones_like(each)).clamp(min=1)
            losses = nothing.index_add(0, row, each) / counts
        return weighted(losses, batch).sum() / batch.divisor

    def _averaging(self, features: Tensor, row: Tensor, who: Tensor, y: Tensor) -> Tensor:
        with torch.no_grad():
            log_q = self.head.everyone(features)
        labellers = log_q.new_zeros(log_q.shape[:2]).index_add(0, row, _hot(who, log_q.shape[1], log_q.dtype))
        mixed = self.head.average(log_q, labellers > 0)
        target = torch.zeros_like(mixed).index_add(0, row, _hot(y, mixed.shape[1], mixed.dtype))
        return -(target * mixed).sum(-1) / target.sum(-1).clamp(min=1)


def _hot(index: Tensor, count: int, dtype: torch.dtype) -> Tensor:
    """One-hot rows; unlike torch's, without reading values, which a mapped or captured step cannot do."""
    return (index.unsqueeze(-1) == torch.arange(count, device=index.device)).to(dtype)
