"""Training that prunes: truncated generalised cross-entropy by alternating search."""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from torch import Tensor

from .._batches import Batch, Batches
from ..data import LabelledData
from ..errors import DubitoError
from ..model import Model
from .plain import Draw, Plain, mean_of_given


class Pruning(Plain):
    """Leave out examples whose label the model finds improbable, chosen anew every few epochs.

        L = mean_i v_i (l_i - l(k)),    v_i = 1[p_i > k],    l(k) = (1 - k^q) / q

    with l generalised cross-entropy and p_i the probability of the observed label of example i. All v start at 1.
    At epoch `start`, and every `every` epochs after it, they are computed for all training examples, without
    augmentation, by the best model so far (by validation accuracy; the current one without validation data). The v
    are a buffer, so checkpoints hold them.

    Arguments:
        k: the probability at or below which an example is left out.
        q: of the loss, for the constant l(k) alone; pass the loss as ``loss=partial(losses.gce, q=q)``.
        start: the epoch of the first choice, counted from 0.
        every: epochs between choices.

    Reference:
        Zhang and Sabuncu 2018, alg. 1
    """

    kept: Tensor

    def __init__(
        self, model: Model, *, q: float = 0.7, k: float = 0.5, start: int = 40, every: int = 10, **stages: Any
    ) -> None:
        super().__init__(model, **stages)
        if not 0 <= k < 1 or start < 0 or every < 1:
            raise DubitoError(
                "pruning needs 0 <= k < 1, start >= 0 and every >= 1", got=f"{k}, {start}, {every}"
            )
        self.k, self.start, self.every = k, start, every
        self.offset = _cut_off(k, q)
        self.register_buffer("kept", torch.ones(0))

    def begin(self, data: LabelledData) -> None:
        """Every example counts at first."""
        if data.crowd is not None or data.labels.dim() != 1:
            raise DubitoError("pruning takes one label per example", where=data.name)
        self.kept = torch.ones(len(data), device=data.device)

    def begin_epoch(self, epoch: int, data: LabelledData) -> None:
        """Choose again, if it is time to."""
        super().begin_epoch(epoch, data)
        if epoch >= self.start and (epoch - self.start) % self.every == 0:
            self.kept.copy_(self.choose(data))

    @torch.no_grad()
    def choose(self, data: LabelledData) -> Tensor:
        """v ``(N,)``: 1 where the best model so far gives the observed label a probability above k."""
        judge = copy.deepcopy(self.model)
        if self.best is not None:
            judge.load_state_dict(self.best)
        judge.eval()
        parts = []
        for batch in Batches(data).all():
            log_q = judge.observed(judge(batch.x))
            chosen = log_q.gather(-1, batch.y.clamp(min=0).unsqueeze(-1)).squeeze(-1)
            parts.append((chosen.exp() > self.k).to(self.kept.dtype))
        return torch.cat(parts)

    def forward(self, batch: Batch, draw: Draw) -> Tensor:
        """Mean over the batch of v (l - l(k)); examples left out have no gradient."""
        losses = self.losses(self.model, batch, draw) - self.offset
        if not batch.complete:
            losses = torch.where(batch.y >= 0, losses, 0.0)
        total = mean_of_given(self.kept[batch.positions] * losses, batch)
        return self.penalised(total, self.model, batch)


def _cut_off(k: float, q: float) -> float:
    """l(k), a constant without effect on gradients; -log k at q = 0, and 0 where that is infinite."""
    if q == 0:
        return -math.log(k) if k > 0 else 0.0
    return float((1 - k**q) / q)
