"""Trying a model before the first step: whether it accepts the inputs, and whether it can be trained."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .._batches import Batches, Order
from ..data import LabelledData
from ..errors import DubitoError
from ..evaluate import _judging
from ..model import Model
from .admission import finite, reading

BatchNorm = nn.modules.batchnorm._BatchNorm


@torch.no_grad()
def try_model(model: Model, data: LabelledData, name: str) -> None:
    """Send the first examples through the model, so that a misfit is reported before anything is trained."""
    batch = Batches(data)(torch.arange(min(2, len(data))))
    with reading(batch.x, f"{name}.inputs"), _judging(model):
        latent = model.latent(batch.x)
        shape = tuple(model.log_probs(latent).shape)
    if latent.scale is not None and not getattr(model.head, "noisy", False):
        raise DubitoError(
            "the head gives its latent a scale, but does not say that it is noisy, so no noise would be drawn anew",
            where=type(model.head).__name__,
            remedy="set noisy = True in its class",
        )
    one = data.labels.shape[1:] if data.crowd is None else data.crowd.label.shape[1:]
    labels = (len(batch.x), *one)
    if shape != (*labels, model.num_classes):
        raise DubitoError(
            "the model's predictions do not fit the labels",
            where=f"{name}.labels",
            expected=f"predictions of shape {(*labels, model.num_classes)}",
            got=shape,
        )


def check_parameters(module: nn.Module) -> None:
    """Refuse a module without trainable parameters, or with initial weights that are not finite."""
    if not any(p.requires_grad for p in module.parameters()):
        raise DubitoError("the model has no parameter to train", remedy="set requires_grad on some of them")
    for name, value in module.named_parameters():
        if not finite(value.detach()):
            raise DubitoError("the weights are not finite to begin with", where=name)


@torch.no_grad()
def check_norms(model: Model, data: LabelledData, order: Order, steps: int) -> None:
    """Refuse batches of one example if they leave a batch norm with a single value per channel."""
    if order.smallest(steps) > 1:
        return
    single = _norms_of_single_values(model, data)
    if single:
        several = order.size > 1
        raise DubitoError(
            "batch norm cannot train on a batch of one example",
            where=single[0],
            got=f"{order.n:,} examples in batches of {order.size}",
            remedy='take batching="drop" or another batch_size' if several else "take a larger batch_size",
        )


def _norms_of_single_values(model: Model, data: LabelledData) -> list[str]:
    """The batch norms that train and see one value per channel and example, not a map of several pixels."""
    found: list[str] = []
    examples = min(2, len(data))

    def look(name: str, x: Tensor) -> None:
        if x.numel() <= examples * x.shape[1]:
            found.append(name)

    with _judging(model):
        model.train()  # which may leave some of them as they are
        norms = {name: m for name, m in model.named_modules() if isinstance(m, BatchNorm) and m.training}
        model.eval()
        hooks = [
            m.register_forward_pre_hook(lambda _, x, name=name: look(name, x[0])) for name, m in norms.items()
        ]
        try:
            model(Batches(data)(torch.arange(examples)).x)
        finally:
            for hook in hooks:
                hook.remove()
    return found
