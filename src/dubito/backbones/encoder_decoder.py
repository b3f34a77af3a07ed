"""A compact encoder-decoder for segmentation: residual stages that halve the image, a decoder that adds them up."""

from __future__ import annotations

from itertools import pairwise

from torch import Generator, Tensor, nn
from torch.nn import functional as F

from ..errors import DubitoError
from ._layers import batch_norm, conv, initialise

NORMS = ("batch", "group")
MOST_BLOCKS = 1000  # per stage


class _Residual(nn.Module):
    """Two 3x3 convolutions around a shortcut, the first with a stride."""

    def __init__(self, inputs: int, outputs: int, stride: int, norm: str) -> None:
        super().__init__()
        self.conv1, self.norm1 = conv(inputs, outputs, 3, stride=stride), _norm(norm, outputs)
        self.conv2, self.norm2 = conv(outputs, outputs, 3), _norm(norm, outputs)
        self.shortcut = (
            nn.Identity() if (inputs, stride) == (outputs, 1) else conv(inputs, outputs, 1, stride=stride)
        )

    def forward(self, x: Tensor) -> Tensor:
        """(N, inputs, H, W) -> (N, outputs, H / stride, W / stride)."""
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


class EncoderDecoder(nn.Module):
    """Feature maps for every few pixels from a small U-shaped network, for machines without a large one.

    A strided stem, then one stage of residual blocks per further width, each at half the resolution of the one
    before. The decoder brings the deepest map and the mean of the image back up: it is reduced to `decoder`
    channels, enlarged, added to the reduced map of the stage above, and convolved, until the resolution `stride`.

    Shapes: (N, in_channels, H, W) -> (N, decoder, ceil(H / stride), ceil(W / stride)).

    Arguments:
        widths: channels of the stem and of every stage; the stage i works at stride 2^(i + 1).
        blocks: residual blocks per stage.
        decoder: channels of the result.
        stride: of the result, a power of two: 2 up to 2^len(widths).
        norm: "batch", or "group" (8 channels each), whose result for an image does not depend on the others.
        init, generator: see `dubito.backbones`.

    Reference:
        Ronneberger et al. 2015; Lin et al. 2017

    Example:
        >>> import torch
        >>> EncoderDecoder(3, widths=(8, 16, 32), stride=4)(torch.zeros(2, 3, 30, 40)).shape
        torch.Size([2, 64, 8, 10])
    """

    def __init__(
        self,
        in_channels: int = 3,
        *,
        widths: tuple[int, ...] = (32, 64, 128, 256),
        blocks: int = 2,
        decoder: int = 64,
        stride: int = 4,
        norm: str = "batch",
        init: str = "he",
        generator: Generator | None = None,
    ) -> None:
        super().__init__()
        strides = [2 ** (i + 1) for i in range(len(widths))]
        if stride not in strides or not 1 <= blocks <= MOST_BLOCKS:
            raise DubitoError(
                "no such decoder",
                expected=f"a stride of {strides}, 1 to {MOST_BLOCKS} blocks",
                got=(stride, blocks),
            )
        if norm not in NORMS:
            raise DubitoError("unknown norm", expected=" or ".join(NORMS), got=repr(norm))
        self.out_features, self.stride = decoder, stride
        self.stem = nn.Sequential(
            conv(in_channels, widths[0], 3, stride=2), _norm(norm, widths[0]), nn.ReLU()
        )
        self.stages = nn.ModuleList(
            nn.Sequential(_Residual(a, b, 2, norm), *(_Residual(b, b, 1, norm) for _ in range(blocks - 1)))
            for a, b in pairwise(widths)
        )
        kept = widths[strides.index(stride) :]
        self.reduce = nn.ModuleList(conv(width, decoder, 1, bias=True) for width in kept)
        self.context = conv(kept[-1], decoder, 1, bias=True)
        self.merge = nn.ModuleList(
            nn.Sequential(conv(decoder, decoder, 3), _norm(norm, decoder), nn.ReLU()) for _ in kept
        )
        initialise(self, init, generator)

    def forward(self, x: Tensor) -> Tensor:
        """Images to feature maps."""
        maps = [self.stem(x)]
        for stage in self.stages:
            maps.append(stage(maps[-1]))
        maps = maps[-len(self.reduce) :]
        up: Tensor = self.context(maps[-1].mean((-2, -1), keepdim=True))
        for level in reversed(range(len(maps))):
            here = self.reduce[level](maps[level])
            up = F.interpolate(up, size=here.shape[-2:], mode="bilinear", align_corners=False)
            up = self.merge[level](here + up)
        return up


def _norm(kind: str, channels: int) -> nn.Module:
    return batch_norm(channels) if kind == "batch" else nn.GroupNorm(max(1, channels // 8), channels)
