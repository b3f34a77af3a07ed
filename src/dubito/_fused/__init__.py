"""Residual networks for small images as one function with a gradient of its own, by kernels of ours on a GPU.

Layers as torch has them write each activation, its norm and its mask to memory and read them again, and cuDNN's
convolutions of few channels leave the processors half idle. Here a convolution activates what it reads, and leaves
the moments of what it writes to the norm that follows. Sums are made in a fixed order. `benchmarks/lanes.py` measures
what that brings.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn

from ..backbones.resnet import ResNetCIFAR
from ..backbones.wide import WideResNet
from . import nvrtc, tiles
from .networks import (
    SIDE,
    Pass,
    cifar_backward,
    cifar_forward,
    convolutions,
    wide_backward,
    wide_forward,
)
from .plain import Plain

__all__ = ["Fused", "suits"]


def suits(network: nn.Module, batch: Sequence[int]) -> TypeGuard[WideResNet | ResNetCIFAR]:
    """Whether a network is one of those here, its batches have a size that the kernels take, and there is a GPU.

    Example:
        >>> from dubito.backbones import build
        >>> suits(build("lenet5", (1, 28, 28)), (128, 1, 28, 28))
        False
    """
    fitting = batch[0] % 4 == 0 and tuple(batch[2:]) == (SIDE, SIDE)
    return fitting and known(network) and nvrtc.available()


def known(network: nn.Module) -> TypeGuard[WideResNet | ResNetCIFAR]:
    """Whether a network is made of layers that there are tiles for."""
    if not isinstance(network, WideResNet | ResNetCIFAR) or network.stem.in_channels > 16:
        return False
    if isinstance(network, ResNetCIFAR) and any(
        isinstance(b.shortcut, nn.Sequential) for b in network.blocks
    ):
        return False
    return network.out_features in (64, 128) and all(map(tiles.known, convolutions(network).values()))


class Fused:
    """A network's features in training, (N, C, 32, 32) -> (N, out_features) in float32.

    Parameters and buffers stay those of the network, which computes by itself where it is judged. `ops` are the
    operations: `Plain()` for a CPU, by default the kernels for batches of `images`.

    Example:
        >>> network = WideResNet(depth=10, width=1)
        >>> Fused(network, 4, Plain())(torch.zeros(4, 3, 32, 32)).shape
        torch.Size([4, 64])
    """

    def __init__(self, network: WideResNet | ResNetCIFAR, images: int, ops: Plain | None = None) -> None:
        self.network, self.images = network, images
        self.shapes = convolutions(network)
        if ops is None:
            from .kernels import Kernels

            ops = Kernels(self.shapes.values(), images)
        self.ops = ops
        self.parameters = list(network.parameters())
        self.counters = [b for name, b in network.named_buffers() if name.endswith("num_batches_tracked")]

    def takes(self, x: Tensor) -> bool:
        """Whether a batch has the size that this was made for."""
        return len(x) == self.images and x.shape[2:] == (SIDE, SIDE)

    def __call__(self, x: Tensor) -> Tensor:
        """Features of a batch; the norms take its moments."""
        features: Tensor = _Function.apply(self, x, *self.parameters)  # type: ignore[no-untyped-call]
        return features

    def forward(self, x: Tensor) -> tuple[Tensor, Pass]:
        """Features, and the pass that `backward` goes on with."""
        weights = self.ops.weights(
            [layer.weight.detach() for layer in self.shapes if isinstance(layer, nn.Conv2d)]
        )
        step = Pass(self.ops, dict(zip(self.shapes, weights)), dict(self.shapes))
        torch._foreach_add_(self.counters, 1)
        image = self.ops.image(x.detach())
        if isinstance(self.network, WideResNet):
            return wide_forward(self.network, step, image), step
        return cifar_forward(self.network, step, image), step

    def backward(self, step: Pass, grad: Tensor) -> list[Tensor]:
        """Gradients in the order of the parameters."""
        if isinstance(self.network, WideResNet):
            wide_backward(self.network, step, grad)
        else:
            cifar_backward(self.network, step, grad)
        return [step.grads[p] for p in self.parameters]


class _Function(torch.autograd.Function):
    """The bridge to autograd: a gradient in the parameters, none in the images."""

    @staticmethod
    def forward(ctx: Any, fused: Fused, x: Tensor, *parameters: Tensor) -> Tensor:
        features, ctx.step = fused.forward(x)
        ctx.fused = fused
        return features

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        found = ctx.fused.backward(ctx.step, grad)
        ctx.step = None
        return None, None, *found
