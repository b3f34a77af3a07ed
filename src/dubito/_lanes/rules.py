"""What a captured step minimises, for the procedures that a lane can run.

A replayed graph runs the same operations at every step. What depends on the epoch is therefore looked up on the
device, with the epoch as a tensor. All batches have the same size, and every example has a label.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .. import weights
from ..procedures import CoTeaching, Distillation, Plain, SelfPaced
from .replay import Noise, Step

# Losses ``(B,)`` of each network and the epoch ``()``, counted from 0 -> the scalar to minimise.
Rule = Callable[[Sequence[Tensor], Tensor], Tensor]

PROCEDURES = (Plain, CoTeaching, SelfPaced, Distillation)


class Taught(Step):
    """A step of a student, whose losses are against a teacher's predictions for the same images.

    Arguments:
        against: logits and the teacher's log-probabilities -> losses ``(B,)``.
        teacher: images -> log-probabilities.
    """

    def __init__(
        self, *stages: Any, against: Callable[[Tensor, Tensor], Tensor], teacher: Callable[[Tensor], Tensor]
    ) -> None:
        super().__init__(*stages)
        self.against, self.teacher = against, teacher

    def losses(self, x: Tensor, y: Tensor, noise: Noise) -> Tensor:
        """One loss per example ``(B,)``."""
        with torch.no_grad():
            taught = self.teacher(x)
        return self.against(self._latent(x).mean, taught)


def rule_of(procedure: Plain, batch_size: int) -> Rule:
    """The rule of a procedure; any state, such as a threshold, stays in the procedure.

    Example:
        >>> from dubito import heads, model
        >>> plain = Plain(model.Model(torch.nn.Identity(), heads.Point(2, 2)))
        >>> rule_of(plain, 2)([torch.tensor([1.0, 3.0])], torch.tensor(0))
        tensor(2.)
    """
    if isinstance(procedure, CoTeaching):
        return _exchange(procedure, batch_size)
    if isinstance(procedure, SelfPaced):
        return _paced(procedure)
    return lambda losses, epoch: losses[0].mean()


def _exchange(procedure: CoTeaching, batch_size: int) -> Rule:
    """Each network's mean over the small losses of the other; how many are kept is a table by epoch."""
    last = procedure.ramp - 1  # the share left out is constant from this epoch on
    shares = [weights.forget_rate(epoch + 1, procedure.rate, procedure.ramp) for epoch in range(last + 1)]
    counts = [weights.keep_count(batch_size, share) for share in shares]
    table = torch.tensor(counts, device=next(procedure.parameters()).device)

    def rule(losses: Sequence[Tensor], epoch: Tensor) -> Tensor:
        mine, yours = losses
        kept = table.index_select(0, epoch.clamp(max=last).view(1))
        easy_mine, easy_yours = weights._small_loss(mine, kept), weights._small_loss(yours, kept)
        return weights.mean_over_chosen(mine, easy_yours) + weights.mean_over_chosen(yours, easy_mine)

    return rule


def _paced(procedure: SelfPaced) -> Rule:
    """Mean of weight * loss; the threshold is updated in place, and during burn-in every weight is 1."""

    def rule(losses: Sequence[Tensor], epoch: Tensor) -> Tensor:
        (mine,) = losses
        found = torch.where(epoch < procedure.burn_in, 1.0, procedure.paced(mine.detach(), burnt_in=True))
        return torch.where(found > 0, found * mine, 0.0).mean()

    return rule
