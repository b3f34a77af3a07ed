# mypy: disable-error-code="no-untyped-def, untyped-decorator, misc, no-untyped-call"
"""The mean of log p, how many rows missed, and gradients times a number. Imported only where Triton is."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from .triton_launch import Launcher

_BLOCK = 16384
_PART = 1024


@triton.jit(do_not_specialize=["rows", "ignore"])
def _mean(
    log_p_ptr, error_ptr, target_ptr, loss_ptr, facts_ptr, rows, tol, allowed, ignore,
    JUDGED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    total = tl.zeros([BLOCK], tl.float32)
    count = tl.zeros([BLOCK], tl.int32)
    missed = tl.zeros([BLOCK], tl.int32)
    for start in range(0, rows, BLOCK):
        at = start + tl.arange(0, BLOCK)
        keep = at < rows
        log_p = tl.load(log_p_ptr + at, mask=keep, other=0.0)
        label = tl.load(target_ptr + at, mask=keep, other=0)
        total += log_p
        count += (keep & (label != ignore)).to(tl.int32)
        if JUDGED:
            good = tl.load(error_ptr + at, mask=keep, other=0.0) <= tol + allowed * tl.abs(log_p)
            missed += tl.where(good, 0, 1)  # a NaN is not good
    number = tl.maximum(tl.sum(count), 1).to(tl.float32)
    tl.store(loss_ptr, -tl.sum(total) / number)
    tl.store(facts_ptr, -1.0 / number)
    tl.store(facts_ptr + 1, tl.sum(missed).to(tl.float32))


@triton.jit(do_not_specialize=["count"])
def _scaled(
    d_mean_ptr, d_scale_ptr, grad_ptr, facts_ptr, to_mean_ptr, to_scale_ptr, count, PART: tl.constexpr
):
    factor = tl.load(grad_ptr).to(tl.float32) * tl.load(facts_ptr)
    at = tl.program_id(0).to(tl.int64) * PART + tl.arange(0, PART)
    keep = at < count
    tl.store(to_mean_ptr + at, tl.load(d_mean_ptr + at, mask=keep).to(tl.float32) * factor, mask=keep)
    tl.store(to_scale_ptr + at, tl.load(d_scale_ptr + at, mask=keep).to(tl.float32) * factor, mask=keep)


@triton.jit(do_not_specialize=["rows"])
def _count(error_ptr, facts_ptr, rows, tol, BLOCK: tl.constexpr):
    missed = tl.zeros([BLOCK], tl.int32)
    for start in range(0, rows, BLOCK):
        at = start + tl.arange(0, BLOCK)
        missed += tl.where(tl.load(error_ptr + at, mask=at < rows, other=0.0) <= tol, 0, 1)
    tl.store(facts_ptr, tl.sum(missed))


_run_count = Launcher(_count)
_run_mean, _run_scaled = Launcher(_mean), Launcher(_scaled)


def mean_of(
    log_p: Tensor,
    target: Tensor,
    ignore: int,
    error: Tensor | None = None,
    tol: float = 0.0,
    allowed: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """The loss, a scalar; and facts (2,): its derivative in each log p, and how many rows miss the tolerance.

    Ignored rows have log p = 0. Without errors no row misses.
    """
    loss = torch.empty((), dtype=torch.float32, device=log_p.device)
    facts = torch.empty(2, dtype=torch.float32, device=log_p.device)
    judged = error is not None
    given = (log_p, log_p if error is None else error, target)
    _run_mean(1, given, (loss, facts, len(log_p), tol, allowed, ignore), (judged, _BLOCK), 16)
    return loss, facts


def scaled(d_mean: Tensor, d_scale: Tensor, grad: Tensor, facts: Tensor) -> tuple[Tensor, Tensor]:
    """Both gradients times `grad` and the first of the facts."""
    to_mean, to_scale, count = torch.empty_like(d_mean), torch.empty_like(d_scale), d_mean.numel()
    _run_scaled(-(-count // _PART), (d_mean, d_scale, grad, facts), (to_mean, to_scale, count), (_PART,), 4)
    return to_mean, to_scale


def count_missed(error: Tensor, tol: float) -> int:
    """How many errors are above the tolerance, or NaN. Waits for the device."""
    facts = torch.empty(1, dtype=torch.int32, device=error.device)
    _run_count(1, (error, facts), (len(error), tol), (_BLOCK,), 16)
    return int(facts.item())
