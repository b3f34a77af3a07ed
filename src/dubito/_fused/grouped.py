"""Bias, leaky ReLU and group norm after a convolution, as one operation with a gradient of its own.

As separate layers under autocast they compute and keep float32, and pass over memory a dozen times. Here only the
convolution's output is kept, in its own type, with a mean and 1 / deviation for each group of an image; everything
else is recomputed in the backward pass. `Plain` is the reference that the kernels (`triton_grouped`) must equal.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F


class How(NamedTuple):
    """z = norm(leaky(y + bias)) if the norm comes `last`, else leaky(norm(y + bias))."""

    groups: int
    slope: float
    eps: float
    last: bool


class Channels(NamedTuple):
    """One number per channel: the convolution's bias, and the norm's scale and shift."""

    bias: Tensor
    gamma: Tensor
    beta: Tensor


class Plain:
    """Each operation in torch, in the type of the images, (N, C, H, W)."""

    def image(self, x: Tensor) -> Tensor:
        """The images as the first convolution reads them."""
        return x

    def norm(self, y: Tensor, by: Channels, how: How) -> tuple[Tensor, Tensor]:
        """z, and the mean and 1 / deviation of each group, (N, groups, 2)."""
        u = _biased(y, by)
        x = F.leaky_relu(u, how.slope) if how.last else u
        parts = x.flatten(2).unflatten(1, (how.groups, -1)).flatten(2)
        var, mean = torch.var_mean(parts, -1, correction=0)
        record = torch.stack([mean, (var + how.eps).rsqrt()], -1)
        v = _over(by.gamma) * _normal(x, record) + _over(by.beta)
        return (v if how.last else F.leaky_relu(v, how.slope)).to(y.dtype), record

    def norm_back(
        self, grad: Tensor, y: Tensor, record: Tensor, by: Channels, how: How
    ) -> tuple[Tensor, Channels]:
        """The gradient for y, and those for the channels: sums over images and pixels."""
        u = _biased(y, by)
        x = F.leaky_relu(u, how.slope) if how.last else u
        normal, inverse = _normal(x, record), _of_channels(record[..., 1], y.shape[1])
        g = grad.to(x.dtype)
        if not how.last:
            g = _bent(g, _over(by.gamma) * normal + _over(by.beta), how.slope)
        beta, gamma = g.sum((0, 2, 3)), (g * normal).sum((0, 2, 3))
        h = _over(by.gamma) * g
        d = inverse * (h - _group_mean(h, how.groups) - normal * _group_mean(h * normal, how.groups))
        if how.last:
            d = _bent(d, u, how.slope)
        return d.to(y.dtype), Channels(d.sum((0, 2, 3)), gamma, beta)

    def pool(self, x: Tensor) -> Tensor:
        """The largest of each two by two pixels."""
        return F.max_pool2d(x, 2)


def normed(y: Tensor, by: Channels, how: How, ops: Plain) -> Tensor:
    """z, differentiable in y and the channels.

    Example:
        >>> by = Channels(*torch.tensor([[0.0], [1.0], [0.0]]).expand(3, 4))
        >>> normed(torch.randn(2, 4, 3, 3), by, How(2, 0.01, 1e-5, last=True), Plain()).shape
        torch.Size([2, 4, 3, 3])
    """
    z: Tensor = _Normed.apply(y, *by, how, ops)  # type: ignore[no-untyped-call]
    return z


class _Normed(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, y: Tensor, bias: Tensor, gamma: Tensor, beta: Tensor, how: How, ops: Plain
    ) -> Tensor:
        z, record = ops.norm(y, Channels(bias, gamma, beta), how)
        ctx.save_for_backward(y, record, bias, gamma, beta)
        ctx.how, ctx.ops = how, ops
        return z

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        y, record, *by = ctx.saved_tensors
        d, channels = ctx.ops.norm_back(grad, y, record, Channels(*by), ctx.how)
        return d, *channels, None, None


def _biased(y: Tensor, by: Channels) -> Tensor:
    """y + bias, in float32 at least."""
    return y.to(torch.promote_types(y.dtype, torch.float32)) + _over(by.bias)


def _over(channels: Tensor) -> Tensor:
    return channels[:, None, None]


def _of_channels(of_groups: Tensor, channels: int) -> Tensor:
    """(N, groups) -> (N, C, 1, 1)."""
    return of_groups.repeat_interleave(channels // of_groups.shape[1], 1)[..., None, None]


def _normal(x: Tensor, record: Tensor) -> Tensor:
    mean, inverse = (_of_channels(part, x.shape[1]) for part in record.unbind(-1))
    return (x - mean) * inverse


def _group_mean(x: Tensor, groups: int) -> Tensor:
    return _of_channels(x.unflatten(1, (groups, -1)).mean((2, 3, 4)), x.shape[1])


def _bent(grad: Tensor, x: Tensor, slope: float) -> Tensor:
    """`grad` taken back through the leaky ReLU of x."""
    return torch.where(x > 0, grad, slope * grad)
