"""Wide residual networks for 32x32 images."""

from __future__ import annotations

from torch import Generator, Tensor, nn
from torch.nn import functional as F

from ..errors import DubitoError
from ._layers import batch_norm, conv, global_average, initialise


class _PreActivation(nn.Module):
    """x + conv(relu(bn(conv(relu(bn(x)))))), with a 1x1 convolution of x itself where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = batch_norm(inputs), conv(inputs, outputs, 3, stride=stride)
        self.norm2, self.conv2 = batch_norm(outputs), conv(outputs, outputs, 3)
        same = inputs == outputs and stride == 1
        self.shortcut: nn.Module = nn.Identity() if same else conv(inputs, outputs, 1, stride=stride)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv1(F.relu(self.norm1(x)))
        y = self.conv2(F.relu(self.norm2(y)))
        out: Tensor = self.shortcut(x) + y
        return out


class WideResNet(nn.Module):
    """Pre-activation wide residual network: 16 channels, then three groups of 16w, 32w, 64w.

    Convolutions have no bias. The shortcut of a block that changes shape reads the block's input, not its
    activation (the code behind the paper's tables does so).

    Arguments:
        depth: 6n + 4, with n blocks per group.
        width: the multiplier w.

    Reference:
        englesson2023 table 1

    Example:
        >>> import torch
        >>> WideResNet(depth=10, width=1)(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 64])
    """

    def __init__(
        self,
        in_channels: int = 3,
        depth: int = 28,
        width: int = 2,
        *,
        init: str = "he",
        generator: Generator | None = None,
    ) -> None:
        super().__init__()
        if not 10 <= depth <= 10_000 or (depth - 4) % 6:
            raise DubitoError("wide residual networks have 6n + 4 layers", got=f"depth={depth}")
        self.stem = conv(in_channels, 16, 3)
        blocks, channels = [], 16
        for outputs, stride in ((16 * width, 1), (32 * width, 2), (64 * width, 2)):
            for i in range((depth - 4) // 6):
                blocks.append(_PreActivation(channels, outputs, stride if i == 0 else 1))
                channels = outputs
        self.blocks = nn.Sequential(*blocks)
        self.norm = batch_norm(channels)
        self.out_features = channels
        initialise(self, init, generator)

    def forward(self, x: Tensor) -> Tensor:
        """(N, in_channels, H, W) -> (N, 64 * width)."""
        return global_average(F.relu(self.norm(self.blocks(self.stem(x)))))
