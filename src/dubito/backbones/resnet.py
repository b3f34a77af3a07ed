"""Residual networks: the 6n+2 layers for CIFAR, the 50 layers for ImageNet in both orders."""

from __future__ import annotations

from torch import Generator, Tensor, nn
from torch.nn import functional as F

from ..errors import DubitoError
from ._layers import batch_norm, conv, global_average, initialise

# (blocks, filters, stride) of the four stages of the 50-layer networks.
STAGES_50 = ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2))


class _PadShortcut(nn.Module):
    """Subsample the image and append zero channels: a shortcut without parameters."""

    def __init__(self, extra: int, stride: int) -> None:
        super().__init__()
        self.extra, self.stride = extra, stride

    def forward(self, x: Tensor) -> Tensor:
        before = self.extra // 2
        x = x[:, :, :: self.stride, :: self.stride]
        return F.pad(x, (0, 0, 0, 0, before, self.extra - before))


class _Basic(nn.Module):
    """relu(shortcut(x) + bn(conv(relu(bn(conv(x))))))."""

    def __init__(self, inputs: int, outputs: int, stride: int, shortcut: str) -> None:
        super().__init__()
        self.conv1, self.norm1 = conv(inputs, outputs, 3, stride=stride), batch_norm(outputs)
        self.conv2, self.norm2 = conv(outputs, outputs, 3), batch_norm(outputs)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            project = nn.Sequential(conv(inputs, outputs, 1, stride=stride), batch_norm(outputs))
            self.shortcut = project if shortcut == "project" else _PadShortcut(outputs - inputs, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(self.shortcut(x) + y)


class ResNetCIFAR(nn.Module):
    """Residual network of 6n + 2 layers for 32x32 images, original order (convolution, norm, ReLU).

    Three stages of n blocks with 16, 32, 64 filters and strides 1, 2, 2; no bias; global average.

    Arguments:
        depth: 32 (n = 5) or 56 (n = 9) in the paper.
        shortcut: "pad" (no parameters; 0.46 M at depth 32) or "project" (1x1 convolution and norm).

    Reference:
        lukasik2020 table 6

    Example:
        >>> import torch
        >>> ResNetCIFAR(depth=8)(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 64])
    """

    def __init__(
        self,
        in_channels: int = 3,
        depth: int = 32,
        *,
        shortcut: str = "pad",
        init: str = "he",
        generator: Generator | None = None,
    ) -> None:
        super().__init__()
        if not 8 <= depth <= 10_000 or (depth - 2) % 6:
            raise DubitoError("residual networks for CIFAR have 6n + 2 layers", got=f"depth={depth}")
        if shortcut not in ("pad", "project"):
            raise DubitoError("unknown shortcut", expected="'pad' or 'project'", got=repr(shortcut))
        self.stem, self.norm = conv(in_channels, 16, 3), batch_norm(16)
        blocks, channels = [], 16
        for outputs, stride in ((16, 1), (32, 2), (64, 2)):
            for i in range((depth - 2) // 6):
                blocks.append(_Basic(channels, outputs, stride if i == 0 else 1, shortcut))
                channels = outputs
        self.blocks = nn.Sequential(*blocks)
        self.out_features = channels
        initialise(self, init, generator)

    def forward(self, x: Tensor) -> Tensor:
        """(N, in_channels, H, W) -> (N, 64)."""
        return global_average(self.blocks(F.relu(self.norm(self.stem(x)))))


class _Bottleneck(nn.Module):
    """1x1, 3x3 (with the stride), 1x1 to four times the filters, each with norm; ReLU after the sum."""

    def __init__(self, inputs: int, filters: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * filters
        self.conv1, self.norm1 = conv(inputs, filters, 1), batch_norm(filters)
        self.conv2, self.norm2 = conv(filters, filters, 3, stride=stride), batch_norm(filters)
        self.conv3, self.norm3 = conv(filters, outputs, 1), batch_norm(outputs)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(conv(inputs, outputs, 1, stride=stride), batch_norm(outputs))

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        y = F.relu(self.norm2(self.conv2(y)))
        return F.relu(self.shortcut(x) + self.norm3(self.conv3(y)))


class _BottleneckV2(nn.Module):
    """The bottleneck with norm and ReLU before each convolution; a changing shortcut reads the activation."""

    def __init__(self, inputs: int, filters: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * filters
        self.norm1, self.conv1 = batch_norm(inputs), conv(inputs, filters, 1)
        self.norm2, self.conv2 = batch_norm(filters), conv(filters, filters, 3, stride=stride)
        self.norm3, self.conv3 = batch_norm(filters), conv(filters, outputs, 1)
        changes = stride != 1 or inputs != outputs
        self.shortcut = conv(inputs, outputs, 1, stride=stride) if changes else None

    def forward(self, x: Tensor) -> Tensor:
        a = F.relu(self.norm1(x))
        y = self.conv2(F.relu(self.norm2(self.conv1(a))))
        y = self.conv3(F.relu(self.norm3(y)))
        out: Tensor = (x if self.shortcut is None else self.shortcut(a)) + y
        return out


class ResNet50(nn.Module):
    """The 50-layer residual network of ImageNet: stem, bottlenecks (3, 4, 6, 3), global average.

    Arguments:
        version: 1 (norm after each convolution, stride in the 3x3) or 2 (norm and ReLU before each).
        stem: "imagenet" (7x7 stride 2, 3x3 max-pool stride 2) or "cifar" (3x3 stride 1, no pool).

    Reference:
        lukasik2020 table 6
        tanno2019 table 1

    Example:
        >>> ResNet50(stem="cifar").out_features
        2048
    """

    def __init__(
        self,
        in_channels: int = 3,
        *,
        version: int = 1,
        stem: str = "imagenet",
        init: str = "he",
        generator: Generator | None = None,
    ) -> None:
        super().__init__()
        if version not in (1, 2):
            raise DubitoError("unknown version", expected="1 or 2", got=version)
        if stem not in ("imagenet", "cifar"):
            raise DubitoError("unknown stem", expected="'imagenet' or 'cifar'", got=repr(stem))
        self.large, self.version = stem == "imagenet", version
        self.stem = conv(in_channels, 64, 7, stride=2) if self.large else conv(in_channels, 64, 3)
        block = _Bottleneck if version == 1 else _BottleneckV2
        blocks, channels = [], 64
        for count, filters, stride in STAGES_50:
            for i in range(count):
                blocks.append(block(channels, filters, stride if i == 0 else 1))
                channels = 4 * filters
        self.blocks = nn.Sequential(*blocks)
        # Version 1 normalises behind the stem, version 2 behind the last block.
        self.norm = batch_norm(64 if version == 1 else channels)
        self.out_features = channels
        initialise(self, init, generator)

    def forward(self, x: Tensor) -> Tensor:
        """(N, in_channels, H, W) -> (N, 2048)."""
        x = self.stem(x)
        if self.version == 1:
            x = F.relu(self.norm(x))
        if self.large:
            x = F.max_pool2d(x, 3, stride=2, padding=1)
        x = self.blocks(x)
        return global_average(F.relu(self.norm(x)) if self.version == 2 else x)
