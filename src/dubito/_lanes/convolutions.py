"""Convolutions of many small networks at once: bfloat16, and as matrix products where that is faster.

Under `torch.vmap` the convolutions of R networks become one grouped convolution, and for more than a few input
channels its gradients run group by group. Written as patches times weights they are batched matrix products.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from .pixel_rows import conv_rows

FROM_CHANNELS = 16
PARTS = 8


class HalfConvolutions(TorchFunctionMode):
    """While active, convolutions compute in `dtype`; linear layers convert their input back to their own type.

    Arguments:
        rows: convolutions of stride 1 with pixels as rows (`pixel_rows`), those of one channel too.
    """

    def __init__(self, dtype: torch.dtype = torch.bfloat16, *, rows: bool = False) -> None:
        super().__init__()
        self.dtype, self.rows = dtype, rows

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        options = dict(kwargs or {})
        if func in (torch.conv2d, F.conv2d):
            return self._conv2d(*args, **options)
        if func is F.linear:
            x, weight, *rest = args
            return func(x.to(weight.dtype), weight, *rest, **options)
        return func(*args, **options)

    def _conv2d(
        self, x: Tensor, weight: Tensor, bias: Tensor | None = None, *rest: Any, **options: Any
    ) -> Tensor:
        given = dict(zip(("stride", "padding", "dilation", "groups"), rest)) | options
        stride, padding = given.get("stride", 1), given.get("padding", 0)
        dilation, groups = given.get("dilation", 1), given.get("groups", 1)
        plain = _all(stride, 1) and _all(dilation, 1) and groups == 1 and not isinstance(padding, str)
        x, weight = x.to(self.dtype), weight.to(self.dtype)
        bias = None if bias is None else bias.to(self.dtype)
        if plain and self.rows:
            return conv_rows(x, weight, bias, (padding, padding) if isinstance(padding, int) else padding)
        if plain and weight.shape[1] >= FROM_CHANNELS:
            return as_matmul(x, weight, bias, padding)
        return torch.conv2d(x, weight, bias, stride, padding, dilation, groups)


def as_matmul(x: Tensor, weight: Tensor, bias: Tensor | None, padding: int | Sequence[int]) -> Tensor:
    """A convolution of stride 1 as patches times weights.

    Shapes: x ``(B, C, H, W)``, weight ``(O, C, k, l)`` -> ``(B, O, H', W')``. The batch is cut into at
    most `PARTS`, so that the sum over pixels in the gradient of the weights is split.

    Example:
        >>> x, w = torch.rand(8, 3, 6, 6), torch.rand(2, 3, 3, 3)
        >>> torch.allclose(as_matmul(x, w, None, 1), F.conv2d(x, w, padding=1), atol=1e-5)
        True
    """
    high, wide = (padding, padding) if isinstance(padding, int) else padding
    k, w = weight.shape[-2:]
    parts = next(p for p in range(PARTS, 0, -1) if x.shape[0] % p == 0)
    padded = F.pad(x, (wide, wide, high, high)).unflatten(0, (parts, -1))
    windows = padded.unfold(-2, k, 1).unfold(-2, w, 1)  # (P, b, C, H', W', k, l)
    shape = windows.shape[1], *windows.shape[3:5]
    patches = windows.permute(0, 2, 5, 6, 1, 3, 4).reshape(parts, weight[0].numel(), -1)
    y = torch.matmul(weight.flatten(1), patches).unflatten(-1, shape).transpose(1, 2)
    if bias is not None:
        y = y + bias[:, None, None]
    found: Tensor = y.flatten(0, 1)
    return found


def _all(value: int | Sequence[int], wanted: int) -> bool:
    return value == wanted if isinstance(value, int) else all(v == wanted for v in value)
