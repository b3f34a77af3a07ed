"""Training on chosen examples: co-teaching and self-paced MentorNet."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import torch
from torch import Tensor

from .. import weights
from .._batches import Batch
from .._random import generator
from ..data import LabelledData
from ..errors import DubitoError
from ..model import Model
from .plain import Draw, Plain, counted, mean_of_given, over_step, refuse_pixels, weighted


class CoTeaching(Plain):
    """Two networks; each trains on the examples that the other finds easy.

        L = mean of l_a over the small losses of b  +  mean of l_b over the small losses of a

    The share left out rises over `ramp` epochs to the noise rate, `weights.forget_rate`. The first network is
    evaluated. The second starts from different weights (`fresh`).

    Arguments:
        rate: share of wrong labels: the realised one, where it is known.
        ramp: T_k, epochs until the full rate.

    Reference:
        collier2020 sec. 5.1
        Han et al. 2018
    """

    def __init__(self, model: Model, *, rate: float | None = None, ramp: int = 10, **stages: Any) -> None:
        super().__init__(model, **stages)
        self.rate, self.ramp = _noise_rate(rate), ramp
        self.twin = fresh(model)

    def begin(self, data: LabelledData) -> None:
        """Refuse labels of pixels: whole examples are chosen."""
        refuse_pixels(data)

    def forward(self, batch: Batch, draw: Draw) -> Tensor:
        """The sum of both networks' losses; no parameter is shared, so each gets its own gradient."""
        mine = self.losses(self.model, batch, draw, "latent")
        yours = self.losses(self.twin, batch, draw, "twin")
        forget = weights.forget_rate(self.epoch + 1, self.rate, self.ramp)
        rule = partial(weights.small_loss, forget=forget)
        easy_mine, easy_yours = over_step(rule, mine, batch), over_step(rule, yours, batch)
        mine = _mean_over(weighted(mine, batch), easy_yours, batch)
        yours = _mean_over(weighted(yours, batch), easy_mine, batch)
        return self.penalised(mine, self.model, batch) + self.penalised(yours, self.twin, batch)


class SelfPaced(Plain):
    """Self-paced MentorNet: examples count less the further their loss lies above a moving quantile.

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
        """Refuse labels of pixels: whole examples are weighted."""
        refuse_pixels(data)

    def forward(self, batch: Batch, draw: Draw) -> Tensor:
        """Mean over the batch of weight * loss; examples without a label are no part of the quantile."""
        losses = self.losses(self.model, batch, draw)
        losses = counted(losses, over_step(self.paced, losses, batch), batch)
        return self.penalised(mean_of_given(losses, batch), self.model, batch)

    def paced(self, losses: Tensor, *, burnt_in: bool = False) -> Tensor:
        """Weights of the examples of a step; updates the threshold. `burnt_in`: burn-in is over at any epoch."""
        found, threshold = weights.mentornet(
            losses,
            self.threshold,
            quantile=1 - self.rate,
            lambda2=self.lambda2,
            decay=self.decay,
            epoch=self.epoch,
            burn_in=0 if burnt_in else self.burn_in,
        )
        self.threshold.copy_(threshold)
        return found


def _mean_over(losses: Tensor, chosen: Tensor, batch: Batch) -> Tensor:
    """This process's part of the mean over the chosen examples of the step."""
    return counted(losses, chosen, batch).sum() / chosen.sum().clamp(min=1.0)


def fresh(model: Model) -> Model:
    """A copy of a model with other initial weights of the same distribution: each parameter tensor is permuted.

    The channel stays as it is: a permutation would destroy the diagonal of its matrices.
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
