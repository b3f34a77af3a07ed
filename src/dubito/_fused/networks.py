"""Residual networks forward and backward, in the operations of `plain`, without autograd.

Between two convolutions only the output of the first is kept, in bfloat16 on a GPU: each operation that reads it
computes batch norm and ReLU again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..backbones.resnet import ResNetCIFAR
from ..backbones.wide import WideResNet
from .plain import Back, Mask, Pair, Plain
from .tiles import Shape

SIDE = 32


@dataclass
class Pass:
    """One step through a network: operations, weights by layer, records of norms, activations, gradients."""

    ops: Plain
    weights: Mapping[nn.Module, Tensor]
    shapes: Mapping[nn.Module, Shape]
    records: dict[nn.Module, Tensor] = field(default_factory=dict)
    seen: list[Any] = field(default_factory=list)
    grads: dict[Tensor, Tensor] = field(default_factory=dict)

    def conv(
        self,
        layer: nn.Module,
        x: Tensor,
        norm: nn.Module | None = None,
        residual: Tensor | None = None,
        *,
        then: nn.BatchNorm2d | None = None,
    ) -> Tensor:
        """A convolution of x, activated by `norm`; makes the record of the norm `then`, which reads the result.

        In evaluation that norm has a record already, from its running moments.
        """
        record = None if norm is None else self.records[norm]
        reads = None if then in self.records else then
        y, found = self.ops.conv(x, self.weights[layer], self.shapes[layer], record, residual, reads)
        if then is not None and found is not None:
            self.records[then] = found
        return y

    def back_weight(self, layer: nn.Conv2d, x: Tensor, grad: Tensor, norm: nn.Module | None = None) -> None:
        """Store the gradient for the weights of a convolution of x, activated by a norm."""
        record = None if norm is None else self.records[norm]
        found = self.ops.conv_weight(x, grad, self.shapes[layer], record)
        k = layer.kernel_size[0]
        self.grads[layer.weight] = found[..., : layer.in_channels].unflatten(1, (k, k)).permute(0, 3, 1, 2)

    def back(
        self,
        layer: nn.Module,
        grad: Tensor,
        mask: tuple[Tensor, nn.Module | None],
        stat: tuple[Tensor, nn.BatchNorm2d],
        residual: Tensor | None = None,
    ) -> AtNorm:
        """The gradient for the input of a convolution, at the output of the norm before it.

        It is kept where the activation of `mask`, (x, norm), is positive; `stat` is the norm before, and its input.
        """
        weight, shape = self.weights[layer], self.shapes[layer]
        return self._at_norm(
            stat, self.ops.conv_input(grad, weight, shape, residual, self._mask(*mask), self._stat(stat))
        )

    def unpool(
        self, grad: Tensor, mask: tuple[Tensor, nn.Module | None], stat: tuple[Tensor, nn.BatchNorm2d]
    ) -> AtNorm:
        """The gradient for the input of the last average, at the output of the norm before it."""
        return self._at_norm(stat, self.ops.unpool(grad, self._mask(*mask), self._stat(stat)))

    def through(self, at_norm: AtNorm, residual: Tensor | None = None) -> Tensor:
        """The gradient for the x that a norm read, plus a residual."""
        return self.ops.norm_input(at_norm.grad, at_norm.x, at_norm.factors, residual)

    def _at_norm(self, stat: tuple[Tensor, nn.BatchNorm2d], found: tuple[Tensor, Back | None]) -> AtNorm:
        x, norm = stat
        grad, back = found
        assert back is not None
        self.grads[norm.weight], self.grads[norm.bias] = back.scale, back.shift
        return AtNorm(grad, x, back.factors)

    def _mask(self, x: Tensor, norm: nn.Module | None) -> Mask:
        """Where the activation of x is positive; without a norm, where x is."""
        return x, None if norm is None else self.records[norm]

    def _stat(self, stat: tuple[Tensor, nn.BatchNorm2d]) -> Pair:
        return stat[0], self.records[stat[1]]


class AtNorm(NamedTuple):
    """A gradient at the output of a norm, the norm's input, and the factors of its backward pass (`plain.Back`)."""

    grad: Tensor
    x: Tensor
    factors: Tensor


def convolutions(network: WideResNet | ResNetCIFAR) -> dict[nn.Module, Shape]:
    """The convolutions of a network for images of 32 x 32, in the order of its modules."""
    return dict(_shapes(network))


def _shapes(network: WideResNet | ResNetCIFAR) -> Iterator[tuple[nn.Conv2d, Shape]]:
    yield network.stem, Shape(16, network.stem.out_channels, SIDE)
    side = SIDE
    blocks: list[Any] = list(network.blocks)
    for block in blocks:
        stride = block.conv1.stride[0]
        side //= stride
        for layer in (block.conv1, block.conv2, block.shortcut):
            if isinstance(layer, nn.Conv2d):
                inputs, outputs, taps = layer.in_channels, layer.out_channels, layer.kernel_size[0] ** 2
                yield layer, Shape(inputs, outputs, side, layer.stride[0], taps)


def wide_forward(network: WideResNet, step: Pass, image: Tensor) -> Tensor:
    """Features (N, C) of a pre-activation network."""
    blocks: list[Any] = list(network.blocks)
    after = [block.norm1 for block in blocks[1:]] + [network.norm]
    x = step.conv(network.stem, image, then=blocks[0].norm1)
    for block, then in zip(blocks, after):
        y = step.conv(block.conv1, x, block.norm1, then=block.norm2)
        shortcut = x if isinstance(block.shortcut, nn.Identity) else step.conv(block.shortcut, x)
        step.seen.append((x, y))
        x = step.conv(block.conv2, y, block.norm2, shortcut, then=then)
    step.seen.append((image, x))
    return step.ops.pool(x, step.records[network.norm])


def wide_backward(network: WideResNet, step: Pass, grad: Tensor) -> None:
    """Gradients of all parameters from that of the features."""
    blocks: list[Any] = list(network.blocks)
    image, x = step.seen.pop()
    out = step.through(step.unpool(grad, (x, network.norm), (x, network.norm)))
    for block in reversed(blocks):
        x, y = step.seen.pop()
        step.back_weight(block.conv2, y, out, block.norm2)
        inner = step.through(step.back(block.conv2, out, (y, block.norm2), (y, block.norm2)))
        step.back_weight(block.conv1, x, inner, block.norm1)
        at_norm = step.back(block.conv1, inner, (x, block.norm1), (x, block.norm1))
        if not isinstance(block.shortcut, nn.Identity):
            step.back_weight(block.shortcut, x, out)
            out, _ = step.ops.conv_input(out, step.weights[block.shortcut], step.shapes[block.shortcut])
        out = step.through(at_norm, out)
    step.back_weight(network.stem, image, out)


def cifar_forward(network: ResNetCIFAR, step: Pass, image: Tensor) -> Tensor:
    """Features (N, C) of a network in the original order, with shortcuts without parameters."""
    blocks: list[Any] = list(network.blocks)
    second, norm = step.conv(network.stem, image, then=network.norm), network.norm
    x = step.ops.join(second, step.records[norm])
    step.seen.append((image, None, second, norm))
    for block in blocks:
        first = step.conv(block.conv1, x, then=block.norm1)
        second = step.conv(block.conv2, first, block.norm1, then=block.norm2)
        step.seen.append((x, first, second, block.norm2))
        x = step.ops.join(second, step.records[block.norm2], x)
    step.seen.append(x)
    return step.ops.pool(x)


def cifar_backward(network: ResNetCIFAR, step: Pass, grad: Tensor) -> None:
    """Gradients of all parameters from that of the features."""
    blocks: list[Any] = list(network.blocks)
    out = step.seen.pop()
    at_norm = step.unpool(grad, (out, None), step.seen[-1][2:])
    for block in reversed(blocks):
        x, first, _, _ = step.seen.pop()
        both = at_norm.grad  # for the sum of branch and shortcut, and so for each of them
        inner = step.through(at_norm)
        step.back_weight(block.conv2, first, inner, block.norm1)
        inner = step.through(step.back(block.conv2, inner, (first, block.norm1), (first, block.norm1)))
        step.back_weight(block.conv1, x, inner)
        residual = both if both.shape == x.shape else _spread(both, x)
        at_norm = step.back(block.conv1, inner, (x, None), step.seen[-1][2:], residual)
    image, *_ = step.seen.pop()
    step.back_weight(network.stem, image, step.through(at_norm))


def _spread(grad: Tensor, like: Tensor) -> Tensor:
    """The gradient of a shortcut that takes every other pixel and pads channels."""
    channels = like.shape[-1]
    before = (grad.shape[-1] - channels) // 2
    step = like.shape[1] // grad.shape[1]
    spread = torch.zeros_like(like)
    spread[:, ::step, ::step] = grad[..., before : before + channels]
    return spread
