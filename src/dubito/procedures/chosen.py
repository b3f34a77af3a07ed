"""Training on chosen examples: co-teaching and self-paced MentorNet."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor

from .. import weights
from .._batches import Batch
from .._random import generator
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

    def forward(self, batch: Batch, draw: Draw) -> Tensor:
        """The sum of both networks' losses; no parameter is shared, so each gets its own gradient."""
        mine = self.losses(self.model, batch, draw, "latent")
        yours = self.losses(self.twin, batch, draw, "twin")
        forget = weights.forget_rate(self.epoch + 1, self.rate, self.ramp)
        easy_mine = weights.small_loss(mine.detach(), forget)
        easy_yours = weights.small_loss(yours.detach(), forget)
        mine, yours = weighted(mine, batch), weighted(yours, batch)
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
        self.register_buffer("threshold", torch.zeros(()))

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
