"""Procedures: what one step minimises, and what happens between epochs.

A procedure is a module that holds the networks it trains and any state that belongs to them, so that one
checkpoint of its state dict resumes it. The loop calls ``procedure(batch, draw)`` for the loss of a step and
``procedure.begin_epoch(epoch, data)`` before an epoch; `procedure.model` is what is evaluated.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from . import heads, weights
from ._batches import Batch
from ._random import generator
from .data import LabelledData
from .errors import DubitoError
from .losses import distillation, nll
from .model import Loss, Model, check_stages, example_losses

Draw = Callable[[str], torch.Generator]
Target = Callable[..., Tensor]


class Plain(nn.Module):
    """One network, one loss: the mean over examples of weight * loss, plus a penalty on the channel.

    Arguments:
        loss: a loss of this library, a partial of one, or any callable with its signature.
        target: labels -> class weights, called as ``target(y, num_classes)`` with whichever of ``x``,
            ``positions`` and ``generator`` its signature names.
        penalty: a function of the channel, added to the loss.

    With several labels per example their losses are summed, then averaged over examples.

    Reference:
        tanno2019 eq. 4, alg. 1, listing 1, listing 3
    """

    def __init__(
        self,
        model: Model,
        *,
        loss: Loss = nll,
        target: Target | None = None,
        penalty: Callable[..., Tensor] | None = None,
    ) -> None:
        super().__init__()
        check_stages(model, loss)
        self.model, self.loss, self.target, self.penalty = model, loss, target, penalty
        self._wants = set() if target is None else set(inspect.signature(target).parameters)

    def begin_epoch(self, epoch: int, data: LabelledData) -> None:
        """Nothing happens between epochs of plain training."""

    def forward(self, batch: Batch, draw: Draw) -> Tensor:
        """The scalar that this step minimises."""
        losses = self.losses(self.model, batch, draw)
        total = mean_of_given(losses, batch)
        return total if self.penalty is None else total + self.penalty(self.model.channel)

    def losses(self, model: Model, batch: Batch, draw: Draw, purpose: str = "latent") -> Tensor:
        """One loss per example ``(B, ...)``, 0 where no label was given."""
        given = batch.y >= 0
        target = self._target(batch, torch.where(given, batch.y, 0), model.num_classes, draw)
        losses = example_losses(
            model,
            model.latent(batch.x),
            target,
            self.loss,
            row=batch.row,
            annotators=batch.annotators,
            generator=draw(purpose) if isinstance(model.head, heads.Diagonal | heads.LowRank) else None,
        )
        losses = torch.where(given, losses, 0.0)
        if batch.row is None:
            return losses
        return losses.new_zeros(len(batch.x)).index_add(0, batch.row, losses)

    def _target(self, batch: Batch, y: Tensor, num_classes: int, draw: Draw) -> Tensor:
        if self.target is None:
            return y
        context: dict[str, Any] = {"x": batch.x, "positions": batch.positions}
        if "generator" in self._wants:
            context["generator"] = draw("target")
        return self.target(y, num_classes, **{k: v for k, v in context.items() if k in self._wants})


def mean_of_given(losses: Tensor, batch: Batch) -> Tensor:
    """Mean over the examples (or pixels) that have a label; 0 if none has."""
    if batch.row is not None:
        return losses.sum() / len(losses)
    return losses.sum() / (batch.y >= 0).sum().clamp(min=1)


class CoTeaching(Plain):
    """Two networks; each trains on the examples that the other finds easy.

        L = mean of l_a over the small losses of b  +  mean of l_b over the small losses of a

    The share left out rises over `ramp` epochs to the noise rate, `weights.forget_rate`. The first network is the
    one that is evaluated. The second starts from weights of its own (`fresh`), not from a copy.

    Arguments:
        rate: share of labels that are wrong: the realised one, where it is known.
        ramp: T_k.

    Reference:
        collier2020 sec. 5.1
        Han et al. 2018
    """

    def __init__(self, model: Model, *, rate: float | None = None, ramp: int = 10, **stages: Any) -> None:
        super().__init__(model, **stages)
        self.rate, self.ramp, self.forget = _noise_rate(rate), ramp, 0.0
        self.twin = fresh(model)

    def begin_epoch(self, epoch: int, data: LabelledData) -> None:
        """Move along the ramp."""
        self.forget = weights.forget_rate(epoch + 1, self.rate, self.ramp)

    def forward(self, batch: Batch, draw: Draw) -> Tensor:
        """The sum of both networks' losses; no parameter is shared, so each gets its own gradient."""
        mine = self.losses(self.model, batch, draw, "latent")
        yours = self.losses(self.twin, batch, draw, "twin")
        easy_mine = weights.small_loss(mine.detach(), self.forget)
        easy_yours = weights.small_loss(yours.detach(), self.forget)
        return weights.mean_over_chosen(mine, easy_yours) + weights.mean_over_chosen(yours, easy_mine)


class SelfPaced(Plain):
    """Self-paced MentorNet: examples count by how far their loss lies above a moving quantile.

    The threshold is a buffer, so a checkpoint holds it. In the first `burn_in` epochs every example counts fully.

    Arguments:
        rate: share of wrong labels; the quantile is 1 - rate.
        lambda2: width of the ramp of weights; 0 cuts hard.
        decay: of the moving quantile.

    Reference:
        collier2020 sec. 5.1
        Jiang et al. 2018
    """

    threshold: Tensor

    def __init__(
        self,
        model: Model,
        *,
        rate: float | None = None,
        lambda2: float = 1.0,
        burn_in: int = 5,
        decay: float = 0.9,
        **stages: Any,
    ) -> None:
        super().__init__(model, **stages)
        self.rate, self.lambda2, self.burn_in, self.decay = _noise_rate(rate), lambda2, burn_in, decay
        self.epoch = 0
        self.register_buffer("threshold", torch.zeros(()))

    def begin_epoch(self, epoch: int, data: LabelledData) -> None:
        """Count epochs for the burn-in."""
        self.epoch = epoch

    def forward(self, batch: Batch, draw: Draw) -> Tensor:
        """Mean over the batch of weight * loss."""
        losses = self.losses(self.model, batch, draw)
        counted, threshold = weights.mentornet(
            losses.detach(),
            self.threshold,
            quantile=1 - self.rate,
            lambda2=self.lambda2,
            decay=self.decay,
            epoch=self.epoch,
            burn_in=self.burn_in,
        )
        self.threshold.copy_(threshold)
        return mean_of_given(counted * losses, batch)


class Distillation(Plain):
    """A student that sees only the softened outputs of a teacher, never a label.

        L = - sum_k q_k log r_k,   q = softmax(teacher / T),   r = softmax(student / T)

    with q smoothed, or r sent through the symmetric transition matrix, where asked for. The teacher reads the same
    (augmented) inputs as the student, in evaluation mode.

    Arguments:
        teacher: a trained model.
        temperature: T, on both sides.
        smoothing: alpha of label smoothing on q. correction: alpha of forward correction on r.

    Reference:
        lukasik2020 sec. 4.4, table 5
    """

    def __init__(
        self,
        model: Model,
        *,
        teacher: Model | None = None,
        temperature: float = 2.0,
        smoothing: float = 0.0,
        correction: float = 0.0,
        **stages: Any,
    ) -> None:
        super().__init__(model, **stages)
        if teacher is None:
            raise DubitoError("distillation needs a teacher", remedy="pass teacher=, a trained model")
        # In a tuple, so that the teacher is neither a parameter of this module nor part of its checkpoints.
        self._teacher = (teacher.eval(),)
        self.temperature, self.smoothing, self.correction = temperature, smoothing, correction

    def forward(self, batch: Batch, draw: Draw) -> Tensor:
        """Mean over the batch of the student's cross-entropy against the teacher."""
        with torch.no_grad():
            taught = self._teacher[0].latent(batch.x).mean
        return distillation(
            self.model.latent(batch.x).mean,
            taught,
            temperature=self.temperature,
            smoothing=self.smoothing,
            correction=self.correction,
        )


def fresh(model: Model) -> Model:
    """A copy of a model whose parameters are drawn anew, tensor by tensor, with the spread of the original.

    Each weight tensor is permuted by a generator of its own: the same distribution, another start.
    """
    twin = copy.deepcopy(model)
    source = generator(0, 0, "twin")
    with torch.no_grad():
        for parameter in twin.parameters():
            order = torch.randperm(parameter.numel(), generator=source).to(parameter.device)
            parameter.copy_(parameter.flatten()[order].view_as(parameter))
    return twin


def _noise_rate(rate: float | None) -> float:
    if rate is None or not 0 <= rate < 1:
        raise DubitoError(
            "this procedure needs the share of wrong labels",
            expected="rate in [0, 1)",
            got=rate,
            remedy="pass rate=, for instance from dubito.audit",
        )
    return rate
