"""One loss per pixel, in as little memory as pixels x classes allow."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from .._batches import Batch
from .._numbers import word
from .._tensors import at_least_float32
from ..heads import Latent, PreLogit
from ..integrals import expected_softmax_nll
from ..losses import nll
from ..model import Loss, example_losses
from ..procedures import Plain
from ..procedures.plain import Draw
from .model import SegmentationModel

# Pixels x classes (or features) worked on at a time: what is kept for the way back is of this size, a few times.
ELEMENTS = 1 << 26
# Of a factor per feature, enlarging and integrating keep about this many times more; of a few factors little.
COPIES = 8


class Pixels(Plain):
    """Plain training of a `SegmentationModel` whose loss is computed some images at a time.

    The network runs on the whole batch. Head, link, channel and loss then take as many masks at a time as fit into
    `ELEMENTS` numbers, one at least, and are computed again on the way back, so that what lies at full resolution
    never exists for the whole batch. Under `PreLogit` the latent has a factor per feature: at full resolution that
    is much for one mask already, which is then taken in stripes of rows. The numbers are those of
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
        parts = torch.arange(len(row), device=row.device).split(_masks_at_a_time(model, features, size))
        stripes = _stripes(model, features, size, max(map(len, parts), default=1))
        found = []
        for number, part in enumerate(parts):
            who = None if batch.annotators is None else batch.annotators[part]
            inputs = (features[row[part]], target[part], batch.y[part], who, seed + number)
            if len(parts) == len(stripes) == 1:
                found.append(self._part(model, size, *inputs))
                continue
            # All stripes of a mask share their quasi-random points.
            again: Any = partial(checkpoint, use_reentrant=False, preserve_rng_state=False)
            made = [again(self._part, model, size, *inputs, rows) for rows in stripes]
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


def _masks_at_a_time(model: SegmentationModel, features: Tensor, size: tuple[int, int]) -> int:
    """As many as fit into `ELEMENTS`, one at least."""
    return max(1, ELEMENTS // max(1, _numbers(model, features, size)))


def _numbers(model: SegmentationModel, features: Tensor, size: tuple[int, int]) -> int:
    """The largest tensor of one mask: features, factors or log-probabilities, at the size that they have."""
    _, height, width, channels = features.shape
    full, classes = size[0] * size[1], model.num_classes
    latent = classes * (1 + _sources(model.head))
    if model.upsample == "log_probs":
        return int(max(full * classes, height * width * latent))
    return int(full * max(channels if model.upsample == "features" else 0, latent))


def _stripes(
    model: SegmentationModel, features: Tensor, size: tuple[int, int], masks: int
) -> list[tuple[int, int] | None]:
    """Rows of so many masks that are worked on at a time, where all are too much; else [None], all of them."""
    whole = masks * _numbers(model, features, size) * (COPIES if isinstance(model.head, PreLogit) else 1)
    count = min(size[0], -(-whole // ELEMENTS))
    if model.upsample == "log_probs" or count < 2:
        return [None]
    edges = [size[0] * i // count for i in range(count + 1)]
    return [*pairwise(edges)]


def _sources(head: nn.Module) -> int:
    """How many factors each class has in the latent of a head."""
    rank: int = getattr(head, "rank", 0)
    return rank + head.in_features if isinstance(head, PreLogit) else rank


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
