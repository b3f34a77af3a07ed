"""Plain training: one network, one loss."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn

from .._batches import Batch
from ..data import LabelledData
from ..errors import DubitoError
from ..losses import nll
from ..model import Loss, Model, check_stages, example_losses

Draw = Callable[[str], torch.Generator]
Target = Callable[..., Tensor]
Weight = Callable[[Tensor], Tensor]


class Plain(nn.Module):
    """One network, one loss: the mean over examples of weight * loss, plus a penalty on the channel.

    Arguments:
        loss: a loss of this library, a partial of one, or any callable with its signature.
        target: labels -> class weights, called as ``target(y, num_classes)`` with whichever of ``x``,
            ``positions`` and ``generator`` its signature names.
        weight: losses of a step's labelled examples ``(B,)``, without gradient -> how much each counts ``(B,)``, as
            ``partial(weights.small_loss, forget=0.2)``; see `weights`. The mean is over the batch.
        penalty: a function of the channel, added to the loss.

    The losses of several labels of one example are summed, then averaged over examples. If the data has weights of
    examples (`_batches.WEIGHT`), every loss is multiplied by its example's weight.

    Attributes kept by the loop: `epoch`, `epochs` (of the whole run), and `best`, the weights of the model with the
    best validation accuracy so far (None without validation data).

    Reference:
        tanno2019 eq. 4, alg. 1, listing 1, listing 3
    """

    unread: tuple[str, ...] = ()  # stages that a procedure has no use for, and refuses

    def __init__(
        self,
        model: Model,
        *,
        loss: Loss = nll,
        target: Target | None = None,
        weight: Weight | None = None,
        penalty: Callable[..., Tensor] | None = None,
    ) -> None:
        super().__init__()
        check_stages(model, loss)
        given = {"loss": loss is not nll, "target": target is not None, "penalty": penalty is not None}
        if idle := [name for name in self.unread if given[name]]:
            raise DubitoError(
                f"{type(self).__name__} does not read {idle[0]}=, which would change nothing",
                remedy=f"leave out {idle[0]}=, or take another procedure",
            )
        if weight is not None and type(self).forward is not Plain.forward:
            raise DubitoError(
                f"{type(self).__name__} says itself how much examples count: it takes no weight="
            )
        self.model, self.loss, self.target, self.weight, self.penalty = model, loss, target, weight, penalty
        self._wants = set() if target is None else set(inspect.signature(target).parameters)
        self.epoch, self.epochs = 0, 1
        self.best: Mapping[str, Tensor] | None = None
        self.anew = False  # whether the choice of the best epoch restarts with this one

    @property
    def later(self) -> int | None:
        """The epoch that early stopping skips to, where the next stage begins; None where it ends the run."""
        return None

    def begin(self, data: LabelledData) -> None:
        """Before training, and before a checkpoint is loaded: allocate state that belongs to examples."""
        if self.weight is not None:
            refuse_pixels(data)

    def begin_epoch(self, epoch: int, data: LabelledData) -> None:
        """Between epochs, plain training only takes note of the epoch."""
        self.epoch = epoch

    def end(self, data: LabelledData) -> None:
        """After the last step, before a model is selected; also called when a finished run is resumed."""

    def forward(self, batch: Batch, draw: Draw) -> Tensor:
        """The scalar that this step minimises."""
        losses = self.losses(self.model, batch, draw)
        if self.weight is not None:
            losses = counted(losses, over_step(self.weight, losses, batch), batch)
        return self.penalised(mean_of_given(losses, batch), self.model, batch)

    def penalised(self, total: Tensor, model: Model, batch: Batch) -> Tensor:
        """A loss plus the penalty on a model's channel, if there is one."""
        if self.penalty is None:
            return total
        # The losses of several processes are added up, so each contributes its share of the penalty.
        return total + one_number(self.penalty(model.channel)) / batch.ranks.size

    def losses(self, model: Model, batch: Batch, draw: Draw, purpose: str = "latent") -> Tensor:
        """One loss per example ``(B, ...)``, 0 where no label was given."""
        y = batch.y if batch.complete else batch.y.clamp(min=0)
        target = self._target(batch, y, model.num_classes, draw)
        losses = example_losses(
            model,
            model.latent(batch.x),
            target,
            self.loss,
            row=batch.row,
            annotators=batch.annotators,
            generator=latent_source(model, draw, purpose),
        )
        if not batch.complete:
            losses = torch.where(batch.y >= 0, losses, 0.0)
        if batch.row is None:
            return losses
        return losses.new_zeros(len(batch.x), *losses.shape[1:]).index_add(0, batch.row, losses)

    def _target(self, batch: Batch, y: Tensor, num_classes: int, draw: Draw) -> Tensor:
        if self.target is None:
            return y
        context: dict[str, Any] = {"x": batch.x, "positions": batch.positions}
        if "generator" in self._wants:
            context["generator"] = draw("target")
        found = self.target(y, num_classes, **{k: v for k, v in context.items() if k in self._wants})
        return _like_labels(found, y, num_classes)


def latent_source(model: Model, draw: Draw, purpose: str) -> torch.Generator | None:
    """The generator of the latent noise; None for a head without noise, which then costs none."""
    return draw(purpose) if getattr(model.head, "noisy", False) else None


def _like_labels(found: Tensor, y: Tensor, num_classes: int) -> Tensor:
    """The result of a target function for labels `y`, refused unless it is a weight per class, or other labels."""
    weights = (*y.shape, num_classes)
    if isinstance(found, Tensor) and found.shape == (weights if found.is_floating_point() else y.shape):
        return found
    got = (
        f"{found.dtype} of shape {tuple(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
    )
    raise DubitoError(
        "target= must make a weight per class, or whole-number labels",
        expected=f"real numbers of shape {weights}, or whole ones of shape {tuple(y.shape)}",
        got=got,
    )


def one_number(found: Any) -> Tensor | float:
    """The result of a penalty, refused unless it can be added to the loss."""
    if isinstance(found, Tensor) and found.numel() == 1:
        return found.reshape(())
    if isinstance(found, Real):
        return float(found)
    got = f"shape {tuple(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
    raise DubitoError(
        "penalty= must make one number", expected="a scalar", got=got, remedy="sum or average it"
    )


def mean_of_given(losses: Tensor, batch: Batch) -> Tensor:
    """Mean of weight * loss over the examples (or pixels) that have a label; 0 if none has."""
    losses, divisor = weighted(losses, batch), batch.divisor
    if isinstance(divisor, int) and divisor == losses.numel():
        return losses.mean()  # the same number, with one node less in the backward pass
    return losses.sum() / divisor


def weighted(losses: Tensor, batch: Batch) -> Tensor:
    """Losses ``(B, ...)`` times the weights of their examples, where these have any."""
    if batch.weight is None:
        return losses
    return losses * batch.weight.view(-1, *[1] * (losses.dim() - 1))


def over_step(rule: Weight, losses: Tensor, batch: Batch) -> Tensor:
    """A rule's weights for the whole step ``(size,)``, over all processes; 0 for examples without a label."""
    every = batch.ranks.whole(losses.detach(), batch.size)
    if batch.row is None and batch.complete:
        return _one_each(rule(every), every)
    here = (batch.y >= 0).to(losses.dtype)
    if batch.row is not None:
        here = here.new_zeros(len(batch.x)).index_add(0, batch.row, here)
    given = batch.ranks.whole(here, batch.size) > 0
    found = torch.zeros_like(every)
    found[given] = _one_each(rule(every[given]), every[given]).to(found.dtype)
    return found


def _one_each(found: Tensor, losses: Tensor) -> Tensor:
    if not isinstance(found, Tensor) or found.shape != losses.shape:
        got = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
        raise DubitoError("weight= must make one number per loss", expected=tuple(losses.shape), got=got)
    return found.detach()


def counted(losses: Tensor, weights: Tensor, batch: Batch) -> Tensor:
    """This process's losses times their weights, those of a whole step; weight 0 gives no gradient, even of inf."""
    part = batch.ranks.part(weights)
    return torch.where(part > 0, part * losses, 0.0)


def refuse_pixels(data: LabelledData) -> None:
    """Refuse a label per pixel where whole examples are chosen or weighed."""
    labels = data.labels if data.crowd is None else data.crowd.label
    if labels.dim() != 1:
        raise DubitoError(
            "this procedure chooses whole examples, so it takes one label per example or a crowd",
            where=f"{data.name}.labels",
            got=f"labels of shape {tuple(labels.shape)}",
        )
