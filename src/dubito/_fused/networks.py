"""Residual networks forward and backward in the operations of `plain`, without autograd in between.

Between two convolutions only what the first left is kept, in bfloat16 on a GPU: batch norm and ReLU are computed
again by whoever reads it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ..backbones.resnet import ResNetCIFAR
from ..backbones.wide import WideResNet
from .plain import Pair, Plain
from .tiles import Shape

SIDE = 32


@dataclass
class Pass:
    """One step through a network: its operations, weights by layer, records of norms, gradients by parameter."""

    ops: Plain
    weights: dict[nn.Module, Tensor]
    shapes: dict[nn.Module, Shape]
    records: dict[nn.Module, Tensor] = field(default_factory=dict)
    sums: Tensor = field(default_factory=lambda: torch.empty(0))  # of what the last convolution left
    seen: list[Any] = field(default_factory=list)
    grads: dict[Tensor, Tensor] = field(default_factory=dict)

    def conv(
        self, layer: nn.Module, x: Tensor, norm: nn.Module | None = None, residual: Tensor | None = None
    ) -> Tensor:
        """A convolution of x, activated by a norm."""
        record = None if norm is None else self.records[norm]
        y, self.sums = self.ops.conv(x, self.weights[layer], self.shapes[layer], record, residual)
        return y

    def norm(self, layer: nn.BatchNorm2d, x: Tensor) -> None:
        """Let a norm take the moments of x, which was the last result of `conv`."""
        self.records[layer] = self.ops.norm(self.sums, x[..., 0].numel(), layer)

    def back_weight(self, layer: nn.Conv2d, x: Tensor, grad: Tensor, norm: nn.Module | None = None) -> None:
        """The gradient in the weights of a convolution of x, activated by a norm."""
        record = None if norm is None else self.records[norm]
        found = self.ops.conv_weight(x, grad, self.shapes[layer], record)
        k = layer.kernel_size[0]
        self.grads[layer.weight] = found[..., : layer.in_channels].unflatten(1, (k, k)).permute(0, 3, 1, 2)

    def back(
        self,
        layer: nn.Module,
        grad: Tensor,
        mask: tuple[Tensor, nn.Module | None],
        stat: tuple[Tensor, nn.Module],
        residual: Tensor | None = None,
    ) -> Pair:
        """The gradient in what a convolution read, and the sums that the norm before it needs."""
        return self.ops.conv_input(
            grad, self.weights[layer], self.shapes[layer], residual, self.mask(*mask), self.stat(*stat)
        )

    def back_norm(
        self, layer: nn.BatchNorm2d, found: Pair, x: Tensor, residual: Tensor | None = None
    ) -> Tensor:
        """The gradient in the x that a norm read, from that in the norm's result and its sums."""
        factors, scale, shift = self.ops.norm_back(found[1], x[..., 0].numel(), self.records[layer])
        self.grads[layer.weight], self.grads[layer.bias] = scale, shift
        return self.ops.norm_input(found[0], x, factors, residual)

    def mask(self, x: Tensor, norm: nn.Module | None) -> tuple[Tensor, Tensor | None]:
        """Where the activation of x is positive; without a norm, where x is."""
        return x, None if norm is None else self.records[norm]

    def stat(self, x: Tensor, norm: nn.Module) -> Pair:
        """What a norm read, and its record."""
        return x, self.records[norm]


def convolutions(network: nn.Module) -> dict[nn.Conv2d, Shape]:
    """The convolutions of a network for images of 32 x 32, in the order of its modules."""
    return dict(_shapes(network))


def _shapes(network: nn.Module) -> Iterator[tuple[nn.Conv2d, Shape]]:
    assert isinstance(network, WideResNet | ResNetCIFAR)
    yield network.stem, Shape(16, network.stem.out_channels, SIDE)
    side = SIDE
    for block in network.blocks:
        stride = block.conv1.stride[0]
        side //= stride
        for layer in (block.conv1, block.conv2, block.shortcut):
            if isinstance(layer, nn.Conv2d):
                inputs, outputs, taps = layer.in_channels, layer.out_channels, layer.kernel_size[0] ** 2
                yield layer, Shape(inputs, outputs, side, layer.stride[0], taps)


def wide_forward(network: WideResNet, step: Pass, image: Tensor) -> Tensor:
    """Features (N, C) of a pre-activation network."""
    x = step.conv(network.stem, image)
    for block in network.blocks:
        step.norm(block.norm1, x)
        y = step.conv(block.conv1, x, block.norm1)
        step.norm(block.norm2, y)
        shortcut = x if isinstance(block.shortcut, nn.Identity) else step.conv(block.shortcut, x)
        step.seen.append((x, y))
        x = step.conv(block.conv2, y, block.norm2, shortcut)
    step.norm(network.norm, x)
    step.seen.append((image, x))
    return step.ops.pool(x, step.records[network.norm])


def wide_backward(network: WideResNet, step: Pass, grad: Tensor) -> None:
    """Gradients of all parameters from that of the features."""
    ops = step.ops
    image, x = step.seen.pop()
    found = ops.unpool(grad, step.mask(x, network.norm), step.stat(x, network.norm))
    out = step.back_norm(network.norm, found, x)
    for block in reversed(network.blocks):  # type: ignore[call-overload]
        x, y = step.seen.pop()
        step.back_weight(block.conv2, y, out, block.norm2)
        inner = step.back_norm(
            block.norm2, step.back(block.conv2, out, (y, block.norm2), (y, block.norm2)), y
        )
        step.back_weight(block.conv1, x, inner, block.norm1)
        found = step.back(block.conv1, inner, (x, block.norm1), (x, block.norm1))
        if not isinstance(block.shortcut, nn.Identity):
            step.back_weight(block.shortcut, x, out)
            out, _ = ops.conv_input(out, step.weights[block.shortcut], step.shapes[block.shortcut])
        out = step.back_norm(block.norm1, found, x, out)
    step.back_weight(network.stem, image, out)


def cifar_forward(network: ResNetCIFAR, step: Pass, image: Tensor) -> Tensor:
    """Features (N, C) of a network in the original order, with shortcuts without parameters."""
    y = step.conv(network.stem, image)
    step.norm(network.norm, y)
    x = step.ops.join(y, step.records[network.norm])
    step.seen.append((image, y, network.norm))
    for block in network.blocks:
        first = step.conv(block.conv1, x)
        step.norm(block.norm1, first)
        second = step.conv(block.conv2, first, block.norm1)
        step.norm(block.norm2, second)
        step.seen.append((x, first, second))
        x = step.ops.join(second, step.records[block.norm2], x)
    step.seen.append(x)
    return step.ops.pool(x)


def cifar_backward(network: ResNetCIFAR, step: Pass, grad: Tensor) -> None:
    """Gradients of all parameters from that of the features."""
    last = network.blocks[-1]
    out = step.seen.pop()
    found = step.ops.unpool(grad, (out, None), step.stat(step.seen[-1][2], last.norm2))
    for i in reversed(range(len(network.blocks))):
        block = network.blocks[i]
        x, first, second = step.seen.pop()
        out = found[0]  # the gradient in the sum of both branches
        inner = step.back_norm(block.norm2, found, second)
        step.back_weight(block.conv2, first, inner, block.norm1)
        found = step.back(block.conv2, inner, (first, block.norm1), (first, block.norm1))
        inner = step.back_norm(block.norm1, found, first)
        step.back_weight(block.conv1, x, inner)
        before = (
            (step.seen[-1][1], network.norm) if i == 0 else (step.seen[-1][2], network.blocks[i - 1].norm2)
        )
        residual = out if out.shape == x.shape else _spread(out, x)
        found = step.back(block.conv1, inner, (x, None), before, residual)
    image, y, norm = step.seen.pop()
    step.back_weight(network.stem, image, step.back_norm(norm, found, y))


def _spread(grad: Tensor, like: Tensor) -> Tensor:
    """The gradient of a shortcut that takes every other pixel and pads channels."""
    channels = like.shape[-1]
    before = (grad.shape[-1] - channels) // 2
    step = like.shape[1] // grad.shape[1]
    spread = torch.zeros_like(like)
    spread[:, ::step, ::step] = grad[..., before : before + channels]
    return spread
