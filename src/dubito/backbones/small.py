"""The small networks: MLP, LeNet-5, the four-layer and the nine-layer convolutional nets."""

from __future__ import annotations

from itertools import pairwise

from torch import Generator, Tensor, nn
from torch.nn import functional as F

from ..errors import DubitoError
from ._layers import conv, dense, global_average, initialise


class MLP(nn.Module):
    """Fully connected layers with ReLU after each; images are flattened.

    Arguments:
        in_features: numbers per example.
        hidden: widths; the last one is `out_features`. Empty: the input itself (a linear model).
        init, generator: see `dubito.backbones`.

    Reference:
        englesson2023 fig. 3

    Example:
        >>> net = MLP(2, hidden=(8, 5))
        >>> net.out_features
        5
    """

    def __init__(
        self,
        in_features: int,
        hidden: tuple[int, ...] = (2000, 2000),
        *,
        init: str = "torch",
        generator: Generator | None = None,
    ) -> None:
        super().__init__()
        widths = (in_features, *hidden)
        self.layers = nn.ModuleList(dense(a, b) for a, b in pairwise(widths))
        self.out_features = widths[-1]
        initialise(self, init, generator)

    def forward(self, x: Tensor) -> Tensor:
        """(N, ...) -> (N, out_features)."""
        x = x.flatten(1)
        for layer in self.layers:
            x = F.relu(layer(x))
        return x


class LeNet5(nn.Module):
    """Three 5x5 convolutions (6, 16, 120) that keep the size, 2x2 max-pool after two, a dense layer of 84.

    ReLU everywhere; an odd size is pooled upwards (7 -> 4), as "same" pooling does. The start matters here:
    Glorot uniform with zero bias is worth points of accuracy to logistic-normal training.

    Arguments:
        in_channels, image_size: of the input; the image is square.

    Reference:
        englesson2023 table 1

    Example:
        >>> import torch
        >>> LeNet5()(torch.zeros(2, 1, 28, 28)).shape
        torch.Size([2, 84])
    """

    def __init__(
        self,
        in_channels: int = 1,
        image_size: int = 28,
        *,
        init: str = "glorot",
        generator: Generator | None = None,
    ) -> None:
        super().__init__()
        self.conv1 = conv(in_channels, 6, 5, bias=True)
        self.conv2 = conv(6, 16, 5, bias=True)
        self.conv3 = conv(16, 120, 5, bias=True)
        side = ((image_size + 1) // 2 + 1) // 2
        self.dense = dense(side * side * 120, 84)
        self.out_features = 84
        initialise(self, init, generator)

    def forward(self, x: Tensor) -> Tensor:
        """(N, in_channels, size, size) -> (N, 84)."""
        x = F.max_pool2d(F.relu(self.conv1(x)), 2, ceil_mode=True)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2, ceil_mode=True)
        x = F.relu(self.conv3(x))
        return F.relu(self.dense(x.flatten(1)))


class CNN4(nn.Module):
    """Four 3x3 convolutions with ReLU, 2x2 max-pool early on, global average at the end.

    Arguments:
        filters: four widths; (32, 32, 64, 64) for digits, (128, 128, 128, 128) for larger grey images.
        pool: "each" of the first two convolutions is followed by a pool, or "once" after the pair: the
            paper's sentence allows both.

    Reference:
        tanno2019 fig. 3

    Example:
        >>> import torch
        >>> CNN4()(torch.zeros(2, 1, 28, 28)).shape
        torch.Size([2, 64])
    """

    def __init__(
        self,
        in_channels: int = 1,
        filters: tuple[int, int, int, int] = (32, 32, 64, 64),
        *,
        pool: str = "each",
        init: str = "glorot",
        generator: Generator | None = None,
    ) -> None:
        super().__init__()
        if pool not in ("each", "once"):
            raise DubitoError("unknown pooling", expected="'each' or 'once'", got=repr(pool))
        if len(filters) != 4:
            raise DubitoError("four convolutions need four widths", where="filters", got=filters)
        self.convs = nn.ModuleList(conv(a, b, 3, bias=True) for a, b in pairwise((in_channels, *filters)))
        self.pool_after = (0, 1) if pool == "each" else (1,)
        self.out_features = filters[-1]
        initialise(self, init, generator)

    def forward(self, x: Tensor) -> Tensor:
        """(N, in_channels, H, W) -> (N, filters[-1])."""
        for i, layer in enumerate(self.convs):
            x = F.relu(layer(x))
            if i in self.pool_after:
                x = F.max_pool2d(x, 2)
        return global_average(x)


class CNN9(nn.Module):
    """Nine 3x3 convolutions, each with group norm and leaky ReLU, in three blocks.

    128 x 3, pool, dropout, 256 x 3, pool, dropout, then 512, 256, 128 without padding, global average. The
    paper gives neither padding nor the kind of dropout: unpadded and by channel, as in the network it was
    taken from, and never active at prediction.

    Arguments:
        dropout: probability that a channel, or a single number, is dropped after each pool.
        dropout_of: "channel" or "element": what is dropped as one.
        groups, slope, norm_eps: of group norm and leaky ReLU.
        padded: keep the size in the last block as well.
        norm_last: normalise what leaves the activation instead of what enters it.

    Reference:
        collier2020 table 7

    Example:
        >>> import torch
        >>> CNN9(in_channels=1).eval()(torch.zeros(2, 1, 28, 28)).shape
        torch.Size([2, 128])
    """

    WIDTHS = (128, 128, 128, 256, 256, 256, 512, 256, 128)
    POOLED = (2, 5)  # the convolutions that a pool comes after

    def __init__(
        self,
        in_channels: int = 3,
        *,
        dropout: float = 0.25,
        groups: int = 2,
        slope: float = 0.01,
        norm_eps: float = 1e-5,
        padded: bool = False,
        dropout_of: str = "channel",
        norm_last: bool = False,
        init: str = "glorot",
        generator: Generator | None = None,
    ) -> None:
        super().__init__()
        if not 0 <= dropout < 1:
            raise DubitoError("dropout is out of range", expected="0 <= dropout < 1", got=dropout)
        if dropout_of not in ("channel", "element"):
            raise DubitoError("unknown dropout", expected="'channel' or 'element'", got=repr(dropout_of))
        if groups < 1 or any(width % groups for width in self.WIDTHS):
            raise DubitoError(
                "the widths cannot be cut into such groups", expected="2, 4, 8, ...", got=groups
            )
        paddings = (1, 1, 1, 1, 1, 1) + ((1, 1, 1) if padded else (0, 0, 0))
        pairs = pairwise((in_channels, *self.WIDTHS))
        self.convs = nn.ModuleList(conv(a, b, 3, padding=p, bias=True) for (a, b), p in zip(pairs, paddings))
        self.norms = nn.ModuleList(nn.GroupNorm(groups, width, eps=norm_eps) for width in self.WIDTHS)
        self.dropout = nn.Dropout2d(dropout) if dropout_of == "channel" else nn.Dropout(dropout)
        self.slope, self.norm_last = slope, norm_last
        self.out_features = self.WIDTHS[-1]
        initialise(self, init, generator)

    def forward(self, x: Tensor) -> Tensor:
        """(N, in_channels, H, W) -> (N, 128); H and W at least 28."""
        for i, (layer, norm) in enumerate(zip(self.convs, self.norms)):
            x = layer(x)
            x = norm(F.leaky_relu(x, self.slope)) if self.norm_last else F.leaky_relu(norm(x), self.slope)
            if i in self.POOLED:
                x = self.dropout(F.max_pool2d(x, 2))
        return global_average(x)
