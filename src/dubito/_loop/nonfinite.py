"""Losses and gradients that are not finite must not change the weights, and are reported within a hundred steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from numbers import Real

import torch
from torch import Tensor

from ..errors import DubitoError, NotFiniteError
from .quick import quick

REPORT_EVERY = 100
LARGE = 1 << 15  # entries of a gradient from which on checking their sum is quicker than checking each


class Watch:
    """Takes the optimiser's steps and refuses those whose loss or gradients are not finite.

    On the CPU a bad step is refused at once. On a GPU reading a value would stall the device, so an optimiser that
    can mask its update there (the fused ones, through `found_inf`) does, and the flags are read every hundred
    steps. After a bad step all later ones are masked too, so the weights are those before it.

    Arguments:
        clip: largest norm of the gradient, None for no limit.
    """

    def __init__(
        self, optimizer: torch.optim.Optimizer, device: torch.device, clip: float | None = None
    ) -> None:
        self.optimizer, self.clip, self._update = optimizer, clip, quick(optimizer)
        self._parameters = [p for group in optimizer.param_groups for p in group["params"]]
        self._one_kind = len({p.dtype for p in self._parameters}) == 1
        fused = all(group.get("fused") for group in optimizer.param_groups)
        self.masked = device.type == "cuda" and fused
        self._may_look = device.type == "cpu"
        self.first_bad = torch.tensor(-1, dtype=torch.int64, device=device)
        self.recent: list[tuple[int, Tensor]] = []
        # In single precision whatever torch's default is: the check of gradients takes no other.
        self._found = torch.zeros((), dtype=torch.float32, device=device)
        self._one = torch.ones((), dtype=torch.float32, device=device)

    def step(self, total: Tensor, step: int, positions: Tensor) -> float | Tensor:
        """Update the weights unless something is not finite; returns the loss, as a number if it was looked at."""
        found = self._not_finite()
        if not self.masked:
            value = float(total)
            if not math.isfinite(value) or float(found):
                raise self._error(step, positions)
            self._update()
            return value
        self.recent.append((step, positions))
        bad = (found > 0) | ~total.isfinite()
        self.first_bad = torch.where(bad & (self.first_bad < 0), step, self.first_bad)
        self.optimizer.found_inf = (self.first_bad >= 0).float()  # type: ignore[attr-defined]
        self.optimizer.step()
        if len(self.recent) >= REPORT_EVERY:
            self.report()
        return total

    def _not_finite(self) -> Tensor:
        """1 if a gradient is not finite, else 0; gradients are scaled down where their norm is beyond the limit."""
        gradients = [p.grad for p in self._parameters if p.grad is not None]
        if True in [g.is_sparse for g in gradients]:
            gradients = [_values(g) for g in gradients]
        if self.clip is not None and gradients:
            parameters = [p for p in self._parameters if p.grad is not None]
            norm = torch.nn.utils.get_total_norm(gradients)
            torch.nn.utils.clip_grads_with_norm_(parameters, self.clip, norm)
            return (~norm.isfinite()).float()
        if self._may_look:
            # An entry that is not finite makes the sum so; as a sum may also overflow, the entries then decide.
            gradients = [g for g in gradients if g.numel() < LARGE or not math.isfinite(g.sum())]
        for same in [gradients] if self._one_kind and gradients else _by_kind(gradients):
            # One pass over all gradients, which multiplies by one and flags entries that are not finite.
            torch._amp_foreach_non_finite_check_and_unscale_(same, self._found, self._one)
        return self._found  # once 1 it stays 1, and the run ends

    def report(self) -> None:
        """Raise if a step since the last report was bad."""
        if not self.masked:
            return
        first = int(self.first_bad)
        if first >= 0:
            raise self._error(first, next(rows for step, rows in self.recent if step == first))
        self.recent.clear()

    def _error(self, step: int, positions: Tensor) -> NotFiniteError:
        if not _all_finite(self._parameters):
            return _too_large(step - 1)
        rows = ", ".join(map(str, positions[:8].tolist())) + (", ..." if len(positions) > 8 else "")
        return NotFiniteError(
            "the loss or its gradient is not finite, and the weights were left as they were",
            where=f"step {step}, rows {rows}",
            remedy="look at these rows, or lower the learning rate or clip gradients",
        )


def check_weights(parameters: Iterable[Tensor], step: int) -> None:
    """Refuse to keep or hand out weights that an update, `step` or one before it, has made infinite or nan."""
    if not _all_finite(parameters):
        raise _too_large(step)


def rate_factor(schedule: Callable[[int, int], float], step: int, steps: int) -> float:
    """The factor of a schedule at a step, refused unless it is a finite number >= 0."""
    found = schedule(step, steps)
    if isinstance(found, Tensor) and found.numel() == 1:
        found = found.item()
    if not isinstance(found, Real) or not 0 <= found < math.inf:
        raise DubitoError(
            "schedule must return a factor on the learning rate",
            where=f"step {step} of {steps}",
            expected="a finite number of at least 0",
            got=repr(found)[:80],
        )
    return found


def _by_kind(gradients: list[Tensor]) -> list[list[Tensor]]:
    """The gradients, grouped by type; nearly always one list."""
    kinds = {gradient.dtype for gradient in gradients}
    if len(kinds) < 2:
        return [gradients] if gradients else []
    return [[g for g in gradients if g.dtype == kind] for kind in kinds]


def _values(gradient: Tensor) -> Tensor:
    """The entries of a gradient; of a row-sparse one, the stored entries."""
    return gradient.coalesce().values() if gradient.is_sparse else gradient


def _all_finite(tensors: Iterable[Tensor]) -> bool:
    """Whether all entries are finite. Their sum tells, in one read of the device, unless it overflows."""
    every = [tensor.detach() for tensor in tensors]
    quick = torch.stack([tensor.sum().isfinite() for tensor in every]).all() if every else True
    return bool(quick) or all(bool(tensor.isfinite().all()) for tensor in every)


def _too_large(step: int) -> NotFiniteError:
    return NotFiniteError(
        "the weights are no longer finite, since an update was too large",
        where=f"step {max(0, step)} or before",
        remedy="lower the learning rate",
    )
