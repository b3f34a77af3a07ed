"""One loss per pixel, in as little memory as pixels x classes allow."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from .._batches import Batch
from .._numbers import word
from .._tensors import at_least_float32
from ..heads import Latent
from ..integrals import expected_softmax_nll
from ..losses import nll
from ..model import Loss, example_losses
from ..procedures import Plain
from ..procedures.plain import Draw
from .model import SegmentationModel, masks_at_a_time, stripes


class Pixels(Plain):
    """Plain training of a `SegmentationModel` whose loss is computed some images at a time.

    The network runs on the whole batch. Head, link, channel and loss then take as many masks at a time as fit into
    `model.ELEMENTS` numbers, one at least, and are computed again on the way back, so that what lies at full
    resolution never exists for the whole batch. Under `PreLogit` the latent has a factor per feature: at full
    resolution that is much for one mask already, which is then taken in stripes of rows. The numbers are those of
    `procedures.Plain`. Where the integral is taken at full resolution and the loss is the likelihood of whole
    numbers, it is the integral of the observed class alone.

    With several masks per image (`several_masks`) their losses are summed, then averaged over the pixels that
    somebody has labelled.

    Arguments: as for `procedures.Plain`.

    Reference:
        collier2020 sec. 5.2, sec. E.1
        tanno2019 eq. 4
    """

    def losses(self, model: SegmentationModel, batch: Batch, draw: Draw, purpose: str = "latent") -> Tensor:  # type: ignore[override]
        """One loss per pixel ``(B, H, W)``, 0 where no label was given."""
        features, size = model.features(batch.x), (batch.x.shape[-2], batch.x.shape[-1])
        target = self._target(batch, batch.y.clamp(min=0), model.num_classes, draw)
        # The seed of the step's generator, which is known without waiting for the device.
        seed = draw(purpose).initial_seed() if getattr(model.head, "noisy", False) else 0
        row = torch.arange(len(batch.x), device=features.device) if batch.row is None else batch.row
        parts = torch.arange(len(row), device=row.device).split(masks_at_a_time(model, features, size))
        bands = stripes(model, features, size, max(map(len, parts), default=1))
        found = []
        for number, part in enumerate(parts):
            who = None if batch.annotators is None else batch.annotators[part]
            inputs = (features[row[part]], target[part], batch.y[part], who, seed + number)
            if len(parts) == len(bands) == 1:
                found.append(self._part(model, size, *inputs))
                continue
            # All stripes of a mask share their quasi-random points.
            again: Any = partial(checkpoint, use_reentrant=False, preserve_rng_state=False)
            made = [again(self._part, model, size, *inputs, rows) for rows in bands]
            found.append(torch.cat(made, 1))
        losses = torch.cat(found)
        if batch.row is None:
            return losses
        return losses.new_zeros(len(batch.x), *size).index_add(0, batch.row, losses)

    def _part(
        self,
        model: SegmentationModel,
        size: tuple[int, int],
        features: Tensor,
        target: Tensor,
        y: Tensor,
        annotators: Tensor | None,
        seed: int,
        rows: tuple[int, int] | None = None,
    ) -> Tensor:
        latent = model.latent_of(features, size, rows)
        if rows is not None:
            target, y = target[:, slice(*rows)], y[:, slice(*rows)]
        source = torch.Generator(device=features.device).manual_seed(word(seed))
        if _one_class_suffices(model, latent, target, self.loss):
            losses = _likelihood(model, latent, torch.where(y >= 0, target, -100), source)
        else:
            losses = example_losses(model, latent, target, self.loss, annotators=annotators, generator=source)
        return torch.where(y >= 0, losses, 0.0)


def _one_class_suffices(model: SegmentationModel, latent: Latent, target: Tensor, loss: Loss) -> bool:
    """Whether the likelihood of the observed class is all that the loss reads."""
    full = latent.scale is not None and getattr(latent, "size", None) is None
    return (
        full
        and loss is nll
        and model.channel is None
        and model.link is None
        and not target.is_floating_point()
    )


def _likelihood(model: SegmentationModel, latent: Latent, y: Tensor, generator: torch.Generator) -> Tensor:
    assert latent.scale is not None
    return expected_softmax_nll(
        at_least_float32(latent.mean),
        at_least_float32(latent.scale),
        y,
        factors=latent.factors,
        temperature=model.tau,
        method=model.integration,
        samples=model.samples,
        generator=generator,
        reduction="none",
    )
