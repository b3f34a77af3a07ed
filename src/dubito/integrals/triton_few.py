# ruff: noqa: RUF059
# mypy: disable-error-code="no-untyped-def, untyped-decorator, misc, no-untyped-call, assignment"
"""Shared noise banks for few classes: one row per thread, its classes in registers. Imported only where Triton is.

Sums over classes need no communication between threads, and there are no padding classes. For more classes there is
`triton_qmc`.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .triton_launch import Launcher, log2

MOST_CLASSES = 32
ROWS, WARPS = 64, 2  # of a program
# Exponentials are taken to base 2. 1 / tau at tau = 0 is a very large number: all but the maximum vanish.
_SHARP = tl.constexpr(1e25)
_LOG2_E, _LOG_2 = tl.constexpr(1.4426950408889634), tl.constexpr(0.6931471805599453)


@triton.jit
def _load(mean_ptr, scale_ptr, tau_ptr, rows, tau_stride, K: tl.constexpr, R: tl.constexpr):
    """A row per lane: number, mask, place, tau, log2(e) / tau, and means and scales times this, a tuple each."""
    row = tl.program_id(0) * R + tl.arange(0, R)
    live = row < rows
    at = row.to(tl.int64) * K
    tau = tl.load(tau_ptr + row * tau_stride, mask=live, other=1.0).to(tl.float32)
    inverse = tl.where(tau > 0, _LOG2_E / tau, _SHARP)
    mean = ()
    scale = ()
    for k in tl.static_range(K):
        mean = mean + (tl.load(mean_ptr + at + k, mask=live, other=0.0).to(tl.float32) * inverse,)
        scale = scale + (tl.load(scale_ptr + at + k, mask=live, other=0.0).to(tl.float32) * inverse,)
    return row, live, at, tau, inverse, mean, scale


@triton.jit
def _draw(bank, mean, scale, K: tl.constexpr, R: tl.constexpr):
    """One draw: noise of each class, its distance below the highest in powers of two, two to it, sum, highest."""
    noise = ()
    height = ()
    top = tl.full([R], -float("inf"), tl.float32)
    for k in tl.static_range(K):
        e = tl.load(bank + k)
        u = mean[k] + scale[k] * e
        noise = noise + (e,)
        height = height + (u,)
        top = tl.maximum(top, u)
    below = ()
    power = ()
    total = tl.zeros([R], tl.float32)
    for k in tl.static_range(K):
        d = height[k] - top
        w = tl.exp2(d)
        below = below + (d,)
        power = power + (w,)
        total += w
    return noise, below, power, total, top


@triton.jit
def _zeros(K: tl.constexpr, R: tl.constexpr):
    out = ()
    for _ in tl.static_range(K):
        out = out + (tl.zeros([R], tl.float32),)
    return out


@triton.jit(do_not_specialize=["rows", "samples", "tau_stride", "ignore"])
def _nll(
    mean_ptr, scale_ptr, target_ptr, tau_ptr, bank_ptr, log_p_ptr, d_mean_ptr, d_scale_ptr, d_tau_ptr,
    rows, samples, tau_stride, ignore, K: tl.constexpr, R: tl.constexpr, HEAT: tl.constexpr,
):  # fmt: skip
    """With weights w_s proportional to p_sy, d log p_y / d u_k is the average of w_s (1{k = y} - p_sk) / tau.

    The term 1{k = y} concerns the target alone and is added at the end.
    """
    row, live, at, tau, inverse, mean, scale = _load(mean_ptr, scale_ptr, tau_ptr, rows, tau_stride, K, R)
    target = tl.load(target_ptr + row, mask=live, other=0)
    counts = target != ignore  # a row that does not count has log p = 0 and no gradients
    target = tl.where(counts, target, 0)
    own_mean = tl.load(mean_ptr + at + target, mask=live, other=0.0).to(tl.float32) * inverse
    own_scale = tl.load(scale_ptr + at + target, mask=live, other=0.0).to(tl.float32) * inverse
    g_mean = _zeros(K, R)
    g_scale = _zeros(K, R)
    g_own = tl.zeros([R], tl.float32)
    g_tau = tl.zeros([R], tl.float32)
    mass = tl.zeros([R], tl.float32)
    peak = tl.full([R], -1e38, tl.float32)
    for s in range(samples):
        own_noise = tl.load(bank_ptr + s * K + target)
        noise, below, power, total, top = _draw(bank_ptr + s * K, mean, scale, K, R)
        own_below = own_mean + own_scale * own_noise - top
        log_own = own_below - log2(total)
        higher = tl.maximum(peak, log_own)
        fade = tl.exp2(peak - higher)
        weight = tl.exp2(log_own - higher)
        share = weight / total
        to_mean = ()
        to_scale = ()
        average = tl.zeros([R], tl.float32)
        for k in tl.static_range(K):
            push = power[k] * share
            to_mean = to_mean + (g_mean[k] * fade - push,)
            to_scale = to_scale + (g_scale[k] * fade - push * noise[k],)
            if HEAT:
                average += tl.where(push > 0, push * below[k], 0.0)
        g_mean = to_mean
        g_scale = to_scale
        if HEAT:
            g_tau = g_tau * fade + tl.where(weight > 0, weight * own_below, 0.0) - average
        g_own = g_own * fade + weight * own_noise
        mass = mass * fade + weight
        peak = higher
    slope = tl.where(tau > 0, 1.0 / tau, 0.0) / mass
    slope = tl.where(counts, slope, 0.0)
    log_p = (peak + tl.log2(mass) - tl.log2(samples * 1.0)) * _LOG_2
    tl.store(log_p_ptr + row, tl.where(counts, log_p, 0.0), mask=live)
    if HEAT:
        tl.store(d_tau_ptr + row, -g_tau * _LOG_2 * slope, mask=live)
    for k in tl.static_range(K):
        own = target == k
        tl.store(d_mean_ptr + at + k, (g_mean[k] + tl.where(own, mass, 0.0)) * slope, mask=live)
        tl.store(d_scale_ptr + at + k, (g_scale[k] + tl.where(own, g_own, 0.0)) * slope, mask=live)


@triton.jit(do_not_specialize=["rows", "samples", "tau_stride"])
def _forward(
    mean_ptr, scale_ptr, tau_ptr, bank_ptr, log_p_ptr, rows, samples, tau_stride,
    K: tl.constexpr, R: tl.constexpr,
):  # fmt: skip
    """log of the average softmax of all classes."""
    row, live, at, tau, inverse, mean, scale = _load(mean_ptr, scale_ptr, tau_ptr, rows, tau_stride, K, R)
    mass = _zeros(K, R)
    best = ()
    for _ in tl.static_range(K):
        best = best + (tl.full([R], -1e38, tl.float32),)
    for s in range(samples):
        noise, below, power, total, top = _draw(bank_ptr + s * K, mean, scale, K, R)
        per = 1 / total
        log_total = log2(total)
        more = ()
        better = ()
        for k in tl.static_range(K):
            more = more + (mass[k] + power[k] * per,)
            better = better + (tl.maximum(best[k], below[k] - log_total),)
        mass = more
        best = better
    for k in tl.static_range(K):
        # A class that underflows in every draw keeps the log of its best one.
        log_p = tl.where(mass[k] > 0, tl.log2(tl.maximum(mass[k], 1e-38)), best[k]) - tl.log2(samples * 1.0)
        tl.store(log_p_ptr + at + k, log_p * _LOG_2, mask=live)


@triton.jit(do_not_specialize=["rows", "samples", "tau_stride"])
def _backward(
    mean_ptr, scale_ptr, tau_ptr, grad_ptr, bank_ptr, log_p_ptr, d_mean_ptr, d_scale_ptr, d_tau_ptr,
    rows, samples, tau_stride, K: tl.constexpr, R: tl.constexpr,
):  # fmt: skip
    """d_u = (g_k w_k - p_k sum_c g_c w_c) / tau with w_c = p_c / (S average p_c), draw by draw."""
    row, live, at, tau, inverse, mean, scale = _load(mean_ptr, scale_ptr, tau_ptr, rows, tau_stride, K, R)
    grad = ()
    log_p = ()
    for k in tl.static_range(K):
        grad = grad + (tl.load(grad_ptr + at + k, mask=live, other=0.0).to(tl.float32),)
        log_p = log_p + (tl.load(log_p_ptr + at + k, mask=live, other=0.0) * _LOG2_E,)
    g_mean = _zeros(K, R)
    g_scale = _zeros(K, R)
    g_tau = tl.zeros([R], tl.float32)
    for s in range(samples):
        noise, below, power, total, top = _draw(bank_ptr + s * K, mean, scale, K, R)
        log_total = log2(total)
        weighted = ()
        every = tl.zeros([R], tl.float32)
        for k in tl.static_range(K):
            w = grad[k] * tl.exp2(below[k] - log_total - log_p[k])
            weighted = weighted + (w,)
            every += w
        every = every / total
        to_mean = ()
        to_scale = ()
        for k in tl.static_range(K):
            push = weighted[k] - power[k] * every
            to_mean = to_mean + (g_mean[k] + push,)
            to_scale = to_scale + (g_scale[k] + push * noise[k],)
            g_tau += tl.where(push == 0, 0.0, push * below[k])
        g_mean = to_mean
        g_scale = to_scale
    slope = tl.where(tau > 0, 1.0 / tau, 0.0) / samples
    tl.store(d_tau_ptr + row, -g_tau * _LOG_2 * slope, mask=live)
    for k in tl.static_range(K):
        tl.store(d_mean_ptr + at + k, g_mean[k] * slope, mask=live)
        tl.store(d_scale_ptr + at + k, g_scale[k] * slope, mask=live)


nll, forward, backward = Launcher(_nll), Launcher(_forward), Launcher(_backward)
