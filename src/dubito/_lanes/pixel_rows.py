"""A convolution as one matrix product per network, with pixels as rows and channels last.

`convolutions.as_matmul` has pixels as columns and leaves the backward pass to autograd, which scatters patches.
Here a patch is k times l runs of adjacent channels, and the gradient for the input is a convolution again, of the
output's gradient with the flipped weights: all memory is read and written in order.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

PARTS = 8


def conv_rows(x: Tensor, weight: Tensor, bias: Tensor | None, padding: tuple[int, int]) -> Tensor:
    """A convolution of stride 1, differentiable once, usable under `torch.vmap`.

    Shapes: x ``(B, C, H, W)``, weight ``(O, C, k, l)`` -> ``(B, O, H', W')``, in memory ``(B, H', W', O)``.

    Example:
        >>> x, w = torch.rand(8, 3, 6, 6), torch.rand(2, 3, 3, 3)
        >>> torch.allclose(conv_rows(x, w, None, (1, 1)), F.conv2d(x, w, padding=1), atol=1e-5)
        True
    """
    y: Tensor = _Convolution.apply(x.permute(0, 2, 3, 1), weight.permute(2, 3, 1, 0), padding)  # type: ignore[no-untyped-call]
    if bias is not None:
        y = y + bias
    return y.permute(0, 3, 1, 2)


class _Convolution(torch.autograd.Function):
    """x ``(B, H, W, C)`` and weight ``(k, l, C, O)`` -> ``(B, H', W', O)``."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, weight: Tensor, padding: tuple[int, int]) -> Tensor:
        return _product(_patches(x, weight.shape[:2], padding), weight.flatten(0, 2))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, weight, ctx.padding = inputs
        ctx.save_for_backward(x, weight)

    @staticmethod
    def backward(ctx: Any, of_y: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        x, weight = ctx.saved_tensors
        high, wide = weight.shape[:2]
        of_x = of_weight = None
        if ctx.needs_input_grad[0]:
            turned = weight.flip(0, 1).transpose(2, 3)
            back = (high - 1 - ctx.padding[0], wide - 1 - ctx.padding[1])
            of_x = _product(_patches(of_y, (high, wide), back), turned.flatten(0, 2))
        if ctx.needs_input_grad[1]:
            patches = _patches(x, (high, wide), ctx.padding)
            # The sum over pixels is split, as it is long and its result small.
            parts = next(p for p in range(PARTS, 0, -1) if x.shape[0] % p == 0)
            rows = patches.reshape(parts, -1, patches.shape[-1])
            gradients = of_y.reshape(parts, -1, of_y.shape[-1])
            of_weight = (rows.transpose(1, 2) @ gradients).sum(0).view(weight.shape)
        return of_x, of_weight, None


def _patches(x: Tensor, size: tuple[int, int] | torch.Size, padding: tuple[int, int]) -> Tensor:
    """``(B, H, W, C)`` -> ``(B, H', W', k l C)``."""
    high, wide = padding
    padded = F.pad(x, (0, 0, wide, wide, high, high))
    H, W = padded.shape[1] - size[0] + 1, padded.shape[2] - size[1] + 1
    shifted = [padded[:, i : i + H, j : j + W] for i in range(size[0]) for j in range(size[1])]
    return torch.cat(shifted, -1)


def _product(patches: Tensor, weight: Tensor) -> Tensor:
    found: Tensor = (patches.flatten(0, 2) @ weight).unflatten(0, patches.shape[:3])
    return found
