"""Segmentation: the same stages with a larger leading shape, and the three places where an image may be enlarged.

    x -> network -> features (N, C, h, w) -> head -> latent -> link -> log p (N, H, W, K) -> channel -> loss

Networks work at a fraction of the image's resolution, so something has to be upsampled on the way. The paper
integrates at the low resolution and enlarges log-probabilities, because samples of full-size logits would not fit
into memory; an exact integral needs no samples, so the other two orders are open as well.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .. import heads
from .._tensors import at_least_float32
from ..channels._core import IMPOSSIBLE
from ..errors import DubitoError, nearest
from ..model import Model

SAMPLES = 256
UPSAMPLE = ("log_probs", "latent", "features")
# Pixels x classes (or features) worked on at a time: what is kept for the way back is of this size, a few times.
ELEMENTS = 1 << 26
# Of a factor per feature, enlarging and integrating keep about this many times more; of a few factors little.
COPIES = 8


class PixelLatent(heads.Latent):
    """A latent per pixel ``(N, h, w, ...)`` whose log-probabilities still have to be brought to `size` = (H, W)."""

    size: tuple[int, int] | None = None


class SegmentationModel(Model):
    """A classifier of pixels: any network that returns feature maps, and any head of this library.

        "log_probs":  log p = renormalised bilinear(log E softmax(u / tau)),   u ~ head(features)
        "latent":     log p = log E softmax(u / tau),   u ~ bilinear(mean), bilinear(scale), bilinear(factors)
        "features":   log p = log E softmax(u / tau),   u ~ head(bilinear(features))

    The first is what the paper does: the integral at decoder resolution, log-probabilities enlarged, and normalised
    again, as softmax cross-entropy on enlarged logits does. The paper calls the other two right but unaffordable.
    Without noise (a Point head) and with the softmax as link the first and the second are the same function. A
    logistic-normal likelihood reads its latent, so its latent is enlarged in any case. A bi-tempered loss reads
    enlarged logits in any case; with ``"latent"`` its predictions are of the same order.

    Shapes: images ``(N, C, H, W)`` -> log-probabilities ``(N, H, W, K)``.

    Arguments:
        backbone: images -> feature maps ``(N, in_features of the head, h, w)``.
        head: of `dubito.heads`, applied at every pixel.
        upsample: what is enlarged: ``"log_probs"``, ``"latent"`` or ``"features"``.
        align_corners: whether the corner pixels of both grids coincide, as in DeepLab's resize, or their areas.
        The others: as for `dubito.Model`, with 256 samples unless said otherwise. ``integration="auto"`` is the
            exact integral for independent classes and quasi-random points, drawn anew at every step, for factors.

    Reference:
        collier2020 sec. 5.2, sec. E.1

    Example:
        >>> from dubito.backbones import EncoderDecoder
        >>> network = EncoderDecoder(3, widths=(4, 8), decoder=8)
        >>> model = SegmentationModel(network, heads.Diagonal(8, 5), temperature=0.05)
        >>> model(torch.zeros(2, 3, 20, 28)).shape
        torch.Size([2, 20, 28, 5])
    """

    evaluation_batch = 8
    compiled_methods = ("features", "distribution")

    def __init__(
        self,
        backbone: nn.Module,
        head: nn.Module,
        *,
        upsample: str = "log_probs",
        align_corners: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(backbone, head, **{"samples": SAMPLES, **options})
        if self.integration == "auto" and hasattr(head, "rank"):
            self.integration = (
                "qmc"  # to a tolerance it would be an integral in many dimensions at every pixel
            )
        if upsample not in UPSAMPLE:
            raise DubitoError("unknown upsampling", got=repr(upsample), remedy=nearest(upsample, UPSAMPLE))
        self.upsample, self.align_corners = upsample, align_corners

    def features(self, x: Tensor) -> Tensor:
        """Feature maps with their channels last, ``(N, h, w, C)``."""
        if x.dim() != 4:
            raise DubitoError(
                "segmentation reads images", expected="(N, channels, height, width)", got=tuple(x.shape)
            )
        found: Tensor = self.backbone(x)
        if found.dim() != 4:
            raise DubitoError(
                "the network must return feature maps", expected="(N, C, h, w)", got=tuple(found.shape)
            )
        return found.movedim(1, -1)

    def distribution(self, features: Tensor) -> heads.Latent:
        """What the head makes of feature maps of any size."""
        # A head costs little and its logits are divided by small temperatures: full precision under autocast.
        with torch.autocast(features.device.type, enabled=False):
            return self.head(features)  # type: ignore[no-any-return]

    def latent_of(
        self, features: Tensor, size: tuple[int, int], rows: tuple[int, int] | None = None
    ) -> heads.Latent:
        """The head's distribution over the logits of every pixel, at full size unless log p is what is enlarged.

        `rows` = (first, after the last) asks for these rows of the full size alone, where something before log p
        is what is enlarged: no more of the features is looked at than they need.
        """
        if torch.is_autocast_enabled(features.device.type):
            features = at_least_float32(features)
        if rows is not None:
            needed, enlarged = _stripe(features.shape[1], size, rows, self.align_corners)
            features = features[:, needed]
            if self.upsample == "features":
                return self.distribution(enlarged(features))
            latent = self.distribution(features)
            return heads.Latent(*(None if part is None else enlarged(part) for part in latent))  # type: ignore[arg-type]
        if self.upsample == "features":
            features = self._resize(features, size)
        latent = self.distribution(features)
        low = PixelLatent(*latent)
        low.size = size
        # Of the softmax of logits without noise both orders are the same function.
        alike = latent.scale is None and self.link is None
        if self.upsample == "log_probs" and latent.root is None and not alike:
            return low
        return self.at_full_size(low)

    def at_full_size(self, latent: heads.Latent) -> heads.Latent:
        """The latent of every pixel, for losses that read it."""
        size = getattr(latent, "size", None)
        if size is None:
            return latent
        return heads.Latent(*(None if part is None else self._resize(part, size) for part in latent))  # type: ignore[arg-type]

    def latent(self, x: Tensor) -> heads.Latent:
        """Images to the latent of their pixels."""
        return self.latent_of(self.features(x), (x.shape[-2], x.shape[-1]))

    def in_parts(self, x: Tensor, read: Callable[[heads.Latent], Tensor]) -> Tensor:
        """What `read` makes of the latent of all images ``(N, h, w, ...)``, in parts where they are much at once.

        Parts are some images, or a stripe of rows of one. They spare memory where no gradient is asked for.
        """
        features, size = self.features(x), (x.shape[-2], x.shape[-1])
        count = max(1, min(len(x), masks_at_a_time(self, features, size)))
        bands = stripes(self, features, size, count)
        parts = [
            torch.cat([read(self.latent_of(part, size, rows)) for rows in bands], 1)
            for part in features.split(count)
        ]
        return torch.cat(parts)

    def forward(self, x: Tensor) -> Tensor:
        """log p(true class of each pixel), ``(N, H, W, K)``."""
        return super().forward(x) if torch.is_grad_enabled() else self.in_parts(x, self.log_probs)

    def log_probs(
        self,
        latent: heads.Latent,
        *,
        noise: tuple[Tensor, Tensor | None] | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """log p(true class of each pixel), ``(N, H, W, K)``."""
        log_p = super().log_probs(latent, noise=noise, generator=generator)
        size = getattr(latent, "size", None)
        if size is None or tuple(log_p.shape[1:3]) == size:
            return log_p
        # A probability of zero would make 0 * inf of the weights of the interpolation.
        return self._resize(log_p.clamp(min=IMPOSSIBLE), size).log_softmax(-1)

    def observed(self, log_p: Tensor, annotators: Tensor | None = None) -> Tensor:
        """log p(observed label of each pixel); `annotators` ``(N,)`` says who drew each mask."""
        if annotators is not None and annotators.dim() == 1 and log_p.dim() > 2:
            annotators = annotators.view(-1, *[1] * (log_p.dim() - 2))
        return super().observed(log_p, annotators)

    def _resize(self, values: Tensor, size: tuple[int, int]) -> Tensor:
        return resize(values, size, align_corners=self.align_corners)


def _stripe(
    height: int, size: tuple[int, int], rows: tuple[int, int], align_corners: bool
) -> tuple[slice, Callable[[Tensor], Tensor]]:
    """Which of `height` rows some rows of a map of `size` are made from, and how: those rows -> the stripe."""
    place = torch.arange(*rows, dtype=torch.float64)
    if align_corners:
        place = place * ((height - 1) / max(1, size[0] - 1))
    else:
        place = ((place + 0.5) * (height / size[0]) - 0.5).clamp(min=0)
    low = place.floor().long().clamp(max=height - 1)
    high = (low + 1).clamp(max=height - 1)
    first = int(low[0])

    def enlarged(values: Tensor) -> Tensor:
        share = (place - low).to(values.device, values.dtype).view(-1, *[1] * (values.dim() - 2))
        below, above = ((at - first).to(values.device) for at in (low, high))
        between = torch.lerp(values[:, below], values[:, above], share)
        return resize(between, (rows[1] - rows[0], size[1]), align_corners=align_corners)

    return slice(first, int(high[-1]) + 1), enlarged


def masks_at_a_time(model: SegmentationModel, features: Tensor, size: tuple[int, int]) -> int:
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


def stripes(
    model: SegmentationModel, features: Tensor, size: tuple[int, int], masks: int
) -> list[tuple[int, int] | None]:
    """Rows of so many masks that are worked on at a time, where all are too much; else [None], all of them."""
    whole = (
        masks * _numbers(model, features, size) * (COPIES if isinstance(model.head, heads.PreLogit) else 1)
    )
    count = min(size[0], -(-whole // ELEMENTS))
    if model.upsample == "log_probs" or count < 2:
        return [None]
    edges = [size[0] * i // count for i in range(count + 1)]
    return [*pairwise(edges)]


def _sources(head: nn.Module) -> int:
    """How many factors each class has in the latent of a head."""
    rank: int = getattr(head, "rank", 0)
    return rank + head.in_features if isinstance(head, heads.PreLogit) else rank


def resize(values: Tensor, size: tuple[int, int], *, align_corners: bool = False) -> Tensor:
    """Bilinear interpolation over the second and third axis: ``(N, h, w, ...)`` -> ``(N, H, W, ...)``.

    Example:
        >>> resize(torch.tensor([[[[0.0]], [[2.0]]]]), (2, 3), align_corners=True)[0, :, 0, 0]
        tensor([0., 2.])
    """
    if values.dim() < 3 or not values.is_floating_point():
        raise DubitoError(
            "maps to enlarge are floats (N, h, w, ...)", got=f"{values.dtype}, {tuple(values.shape)}"
        )
    if len(size) != 2 or min(size) < 1 or 0 in values.shape[1:3]:
        raise DubitoError(
            "no such size", expected="(height, width)", got=f"{size} from {tuple(values.shape)}"
        )
    if tuple(values.shape[1:3]) == tuple(size):
        return values
    rest = values.shape[3:]
    maps = values.flatten(3).movedim(-1, 1)
    if maps.shape[1] == 0:
        return values.new_zeros(len(values), *size, *rest)
    found: Tensor = F.interpolate(maps, size=size, mode="bilinear", align_corners=align_corners)
    return found.movedim(1, -1).reshape(len(values), *size, *rest)
