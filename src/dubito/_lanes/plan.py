"""The batches and learning rates of a lane's epoch, on the device, where a replayed graph reads them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .._loop.nonfinite import rate_factor


class Plan:
    """Tables by step, and counters that a captured step reads and advances itself.

    A replayed graph takes no arguments from the host, so each step looks up its batch and rate by these counters.
    """

    def __init__(self, most: int, batch_size: int, device: torch.device) -> None:
        self.places = torch.zeros(most, batch_size, dtype=torch.int64, device=device)
        self.epochs = torch.zeros(most, dtype=torch.int64, device=device)
        self.step = torch.zeros(1, dtype=torch.int64, device=device)  # steps done in this epoch
        self.done = torch.zeros(1, dtype=torch.int64, device=device)  # steps done in the run
        self.rates: list[Tensor] = []  # one per parameter group, over all steps of the run

    def set_epoch(self, places: Tensor, first: int, epoch: int) -> None:
        """The batches of an epoch; the first of them may begin in the epoch before, `first`."""
        self.places[: len(places)] = places
        self.epochs.fill_(epoch)
        self.epochs[:1] = first
        self.step.zero_()

    def set_rates(
        self,
        opt: torch.optim.Optimizer,
        rates: list[float],
        schedule: Callable[[int, int], float],
        steps: int,
        done: int,
    ) -> None:
        """The learning rate of every step, from the rate that each group begins the run with."""
        device = self.step.device
        factors = [rate_factor(schedule, step, steps) for step in range(steps)]
        for group, rate in zip(opt.param_groups, rates):
            self.rates.append(torch.tensor([rate * factor for factor in factors], device=device))
            group["lr"] = torch.tensor(rate, device=device)  # a tensor, which a captured step can set
        self.done.fill_(done)

    def next(self, opt: torch.optim.Optimizer) -> tuple[Tensor, Tensor]:
        """Positions ``(B,)`` and epoch ``()`` of the next step; sets its rates and advances the counters."""
        positions = self.places.index_select(0, self.step).squeeze(0)
        epoch = self.epochs.index_select(0, self.step).squeeze(0)
        for group, rates in zip(opt.param_groups, self.rates):
            group["lr"].copy_(rates.index_select(0, self.done).squeeze(0))
        self.step += 1
        self.done += 1
        return positions, epoch
