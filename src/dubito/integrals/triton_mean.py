# mypy: disable-error-code="no-untyped-def, untyped-decorator, misc, no-untyped-call"
"""Minus the mean of log p over the rows that are not ignored, by one program. Imported only where Triton is."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _kernel(log_p_ptr, target_ptr, loss_ptr, share_ptr, rows, ignore, BLOCK: tl.constexpr):
    total = tl.zeros([BLOCK], tl.float32)
    count = tl.zeros([BLOCK], tl.int32)
    for start in range(0, rows, BLOCK):
        at = start + tl.arange(0, BLOCK)
        keep = at < rows
        total += tl.load(log_p_ptr + at, mask=keep, other=0.0)
        label = tl.load(target_ptr + at, mask=keep, other=0)
        count += (keep & (label != ignore)).to(tl.int32)
    number = tl.maximum(tl.sum(count), 1).to(tl.float32)
    tl.store(loss_ptr, -tl.sum(total) / number)
    tl.store(share_ptr, -1.0 / number)


def mean_of(log_p: Tensor, target: Tensor, ignore: int) -> tuple[Tensor, Tensor]:
    """The loss and its derivative in each log p, both scalars. Ignored rows have log p = 0."""
    loss, share = (torch.empty((), dtype=torch.float32, device=log_p.device) for _ in range(2))
    _kernel[(1,)](log_p, target, loss, share, len(log_p), ignore, BLOCK=4096, num_warps=16)
    return loss, share
