"""Networks for small images, run on a GPU by our own kernels.

Layer by layer, torch writes each activation, its norm and its mask to memory and reads them again, and cuDNN's
convolutions leave the processors half idle if there are few channels. A residual network here is a single autograd
function, in which a convolution normalises and activates its input while reading it, and computes the moments of
its output for the norm that follows. Sums are added in a fixed order.

The nine-layer network has convolutions of many channels, for which cuDNN is good; only the operations between them
are our own kernels (`nine`). `benchmarks/lanes.py` measures the gain.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ..backbones.resnet import ResNetCIFAR
from ..backbones.small import CNN9
from ..backbones.wide import WideResNet
from . import nine, nvrtc, tiles
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

__all__ = ["Fast", "Fused", "fast", "suits"]


def suits(network: nn.Module, batch: Sequence[int]) -> TypeGuard[WideResNet | ResNetCIFAR | CNN9]:
    """Whether there are kernels for this network and batch shape, and a GPU to run them.

    Example:
        >>> from dubito.backbones import build
        >>> suits(build("lenet5", (1, 28, 28)), (128, 1, 28, 28))
        False
    """
    if isinstance(network, CNN9):
        return nine.available()
    if not (_fits(batch) and known(network) and nvrtc.available()):
        return False
    launches = [
        launch for shape in convolutions(network).values() for launch in tiles.launches(shape, batch[0])
    ]
    return max(launch.shared for launch in launches) <= nvrtc.shared_memory()


def known(network: nn.Module) -> TypeGuard[WideResNet | ResNetCIFAR]:
    """Whether there are tiles for all layers of a network."""
    if not isinstance(network, WideResNet | ResNetCIFAR) or network.stem.in_channels > 16:
        return False
    if isinstance(network, ResNetCIFAR) and any(
        isinstance(b.shortcut, nn.Sequential) for b in network.blocks
    ):
        return False
    if len({layer.eps for layer in network.modules() if isinstance(layer, nn.BatchNorm2d)}) > 1:
        return False
    return network.out_features in (64, 128) and all(map(tiles.known, convolutions(network).values()))


MOST = 1 << 13  # images in a batch: with 256 channels each, indices still fit into 32 bits


def _fits(batch: Sequence[int]) -> bool:
    return batch[0] % 4 == 0 and batch[0] <= MOST and tuple(batch[2:]) == (SIDE, SIDE)


class Fused:
    """A network's features, (N, C, 32, 32) -> (N, out_features) in float32, in training and in evaluation.

    Uses the parameters and buffers of the network. `ops` are the operations: the kernels, or `Plain()` for a CPU.

    Example:
        >>> network = WideResNet(depth=10, width=1)
        >>> Fused(network, Plain())(torch.zeros(4, 3, 32, 32)).shape
        torch.Size([4, 64])
    """

    def __init__(self, network: WideResNet | ResNetCIFAR, ops: Plain | None = None) -> None:
        self.network, self.shapes = network, convolutions(network)
        if ops is None:
            from .kernels import Kernels

            ops = Kernels(self.shapes.values())
        self.ops = ops
        self.parameters = list(network.parameters())
        self.norms = [m for m in network.modules() if isinstance(m, nn.BatchNorm2d)]
        self.counters = [b for name, b in network.named_buffers() if name.endswith("num_batches_tracked")]

    def takes(self, x: Tensor) -> bool:
        """Whether the kernels can take this batch."""
        return _fits(x.shape)

    def __call__(self, x: Tensor) -> Tensor:
        """Features of a batch; in training, the norms use its moments and update their running ones."""
        if not self.network.training:
            with torch.no_grad():
                return self._forward(x, self._records())[0]
        features: Tensor = _Function.apply(self, x, *self.parameters)  # type: ignore[no-untyped-call]
        return features

    def forward(self, x: Tensor) -> tuple[Tensor, Pass]:
        """Features, and the pass that `backward` needs."""
        torch._foreach_add_(self.counters, 1)
        return self._forward(x, {})

    def _forward(self, x: Tensor, records: dict[nn.Module, Tensor]) -> tuple[Tensor, Pass]:
        layers = [layer.weight.detach() for layer in self.shapes if isinstance(layer, nn.Conv2d)]
        weights = dict(zip(self.shapes, self.ops.weights(layers)))
        step = Pass(self.ops, weights, dict(self.shapes), records)
        image = self.ops.image(x.detach())
        if isinstance(self.network, WideResNet):
            return wide_forward(self.network, step, image), step
        return cifar_forward(self.network, step, image), step

    def _records(self) -> dict[nn.Module, Tensor]:
        """Records of the norms from their running moments: views of one tensor (4, C + C' + ...)."""
        names = ("running_mean", "running_var", "weight", "bias")
        mean, var, gamma, beta = (torch.cat([getattr(m, name) for m in self.norms]) for name in names)
        inverse = (var + self.norms[0].eps).rsqrt()
        together = torch.stack([mean, inverse, gamma * inverse, beta - mean * gamma * inverse])
        return dict(zip(self.norms, together.split([m.num_features for m in self.norms], 1)))

    def backward(self, step: Pass, grad: Tensor) -> list[Tensor]:
        """Gradients in the order of the parameters."""
        if isinstance(self.network, WideResNet):
            wide_backward(self.network, step, grad)
        else:
            cifar_backward(self.network, step, grad)
        return [step.grads[p] for p in self.parameters]


Fast = Fused | nine.FusedCNN9


def fast(network: WideResNet | ResNetCIFAR | CNN9) -> Fast:
    """The kernels' version of a network that `suits`."""
    return nine.FusedCNN9(network) if isinstance(network, CNN9) else Fused(network)


class _Function(torch.autograd.Function):
    """The bridge to autograd: gradients for the parameters, none for the images."""

    @staticmethod
    def forward(ctx: Any, fused: Fused, x: Tensor, *parameters: Tensor) -> Tensor:
        features, ctx.step = fused.forward(x)
        ctx.fused = fused
        return features

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        found = ctx.fused.backward(ctx.step, grad)
        ctx.step = None
        return None, None, *found
