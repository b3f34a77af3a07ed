"""Training on chosen examples: co-teaching and self-paced MentorNet."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor

from .. import weights
from .._batches import Batch
from .._random import generator
from ..data import LabelledData
from ..errors import DubitoError
from ..model import Model
from .plain import Draw, Plain, mean_of_given, weighted


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
        self.rate, self.ramp = _noise_rate(rate), ramp
        self.twin = fresh(model)

    def begin(self, data: LabelledData) -> None:
        """One decision per example: pixels are refused."""
        _refuse_pixels(data)

    def forward(self, batch: Batch, draw: Draw) -> Tensor:
        """The sum of both networks' losses; no parameter is shared, so each gets its own gradient."""
        mine = self.losses(self.model, batch, draw, "latent")
        yours = self.losses(self.twin, batch, draw, "twin")
        forget = weights.forget_rate(self.epoch + 1, self.rate, self.ramp)
        easy_mine, easy_yours = _easy(mine, batch, forget), _easy(yours, batch, forget)
        mine, yours = weighted(mine, batch), weighted(yours, batch)
        return _mean_over(mine, easy_yours, batch) + _mean_over(yours, easy_mine, batch)


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
        self.register_buffer("threshold", torch.zeros(()))

    def begin(self, data: LabelledData) -> None:
        """One weight per example: pixels are refused."""
        _refuse_pixels(data)

    def forward(self, batch: Batch, draw: Draw) -> Tensor:
        """Mean over the batch of weight * loss; examples without a label are no part of the quantile."""
        losses = self.losses(self.model, batch, draw)
        every, given = _of_the_step(losses, batch)
        counted, threshold = weights.mentornet(
            every if given is None else every[given],
            self.threshold,
            quantile=1 - self.rate,
            lambda2=self.lambda2,
            decay=self.decay,
            epoch=self.epoch,
            burn_in=self.burn_in,
        )
        self.threshold.copy_(threshold)
        part = batch.ranks.part(_put(counted, given))
        return mean_of_given(torch.where(part > 0, part * losses, 0.0), batch)


def _of_the_step(losses: Tensor, batch: Batch) -> tuple[Tensor, Tensor | None]:
    """Losses of the whole step without gradient, and which of its examples have a label (None: all)."""
    every = batch.ranks.whole(losses.detach(), batch.size)
    if batch.row is None and batch.complete:
        return every, None
    given = (batch.y >= 0).to(losses.dtype)
    if batch.row is not None:
        given = given.new_zeros(len(batch.x)).index_add(0, batch.row, given)
    return every, batch.ranks.whole(given, batch.size) > 0


def _put(chosen: Tensor, given: Tensor | None) -> Tensor:
    """Weights of the examples that have a label at their places, 0 elsewhere."""
    if given is None:
        return chosen
    found = chosen.new_zeros(len(given))
    found[given] = chosen
    return found


def _easy(losses: Tensor, batch: Batch, forget: float) -> Tensor:
    """1 for the small losses among all labelled examples of the step, 0 elsewhere."""
    every, given = _of_the_step(losses, batch)
    return _put(weights.small_loss(every if given is None else every[given], forget), given)


def _mean_over(losses: Tensor, chosen: Tensor, batch: Batch) -> Tensor:
    """This process's part of the mean over the chosen examples of the step."""
    part = batch.ranks.part(chosen)
    return torch.where(part > 0, losses, 0.0).sum() / chosen.sum().clamp(min=1.0)


def _refuse_pixels(data: LabelledData) -> None:
    if data.crowd is None and data.labels.dim() != 1:
        raise DubitoError(
            "this procedure chooses whole examples, so it takes one label per example or a crowd",
            where=f"{data.name}.labels",
            got=f"labels of shape {tuple(data.labels.shape)}",
        )


def fresh(model: Model) -> Model:
    """A copy of a model whose parameters are drawn anew, tensor by tensor, with the spread of the original.

    Each weight tensor is permuted by a generator of its own: the same distribution, another start. The channel
    starts as it is: its matrices have a diagonal, which a permutation would scatter.
    """
    twin = copy.deepcopy(model)
    source = generator(0, 0, "twin")
    with torch.no_grad():
        for parameter in [*twin.backbone.parameters(), *twin.head.parameters()]:
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
