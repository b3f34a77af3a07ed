# mypy: disable-error-code="no-untyped-def, untyped-decorator, misc, no-untyped-call"
"""Two classes, exactly: the sums of `two_classes` in float64, one row per lane. Imported only where Triton is."""

from __future__ import annotations

import math
from functools import lru_cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from . import two_classes as _two
from .triton_launch import Launcher

_TERMS, _NODES, _STEP = tl.constexpr(_two.TERMS), tl.constexpr(_two.NODES), tl.constexpr(_two.STEP)
_FIRST, _SHARPEST, _FAR = tl.constexpr(_two.FIRST), tl.constexpr(_two.SHARPEST), tl.constexpr(_two.FAR)
_LEAST = tl.constexpr(_two.ERROR)
_DEGREE, _FOLD = tl.constexpr(30), tl.constexpr(5.0)  # of Mills' ratio as a polynomial
_ROOT_2PI, _LOG_2 = tl.constexpr(math.sqrt(2 * math.pi)), tl.constexpr(math.log(2.0))
_LOG_ROOT, _LOG_STEP = (
    tl.constexpr(0.5 * math.log(2 * math.pi)),
    tl.constexpr(math.log(_two.STEP) - 0.5 * math.log(2 * math.pi)),
)
_ROUNDING = tl.constexpr(2.0**-24)
ROWS, WARPS = 64, 2  # of a program


@triton.jit
def _mills(ratio_ptr, z):
    """R(z) and 1 - z R(z) for z >= 0: (z + 5) R(z) by Chebyshev polynomials of (z - 5) / (z + 5)."""
    x = 2 * (z - _FOLD) / (z + _FOLD)
    b = z * 0.0
    before = z * 0.0
    for k in tl.static_range(_DEGREE, 0, -1):
        now = x * b - before + tl.load(ratio_ptr + k)
        before = b
        b = now
    ratio = (0.5 * x * b - before + tl.load(ratio_ptr)) / (z + _FOLD)
    far = tl.maximum(z, _FAR)
    y = 1 / (far * far)
    tail = y * 0.0 + 1.0
    for k in tl.static_range(27, 2, -2):
        tail = 1 - k * y * tail
    return ratio, tl.where(z > _FAR, y * tail, 1 - z * ratio)


@triton.jit
def _over_normal(gap, scale, tau):
    """As in `two_classes`: the log of the sum, and the derivatives times tau, tau^2 and tau."""
    lean = gap / tau
    top = tl.minimum(-lean, 0.0) - tl.log(1 + tl.exp(-tl.abs(lean)))  # of the term at e = 0, for size only
    total = gap * 0.0
    slope = gap * 0.0
    bend = gap * 0.0
    heat = gap * 0.0
    for j in range(_NODES):
        e = _FIRST + _STEP * j
        u = (gap - scale * e) / tau
        small = tl.exp(-tl.abs(u))
        term = tl.exp(tl.minimum(-u, 0.0) - tl.log(1 + small) - 0.5 * e * e - top)
        up = tl.where(u > 0, 1.0, small) / (1 + small)  # sigmoid(u)
        push = term * up
        total += term
        slope += push
        bend += push * tl.where(u > 0, 1 - small, small - 1) / (1 + small)
        heat += push * u
    return top + tl.log(total) + _LOG_STEP, slope / total, bend / total, heat / total


@triton.jit
def _by_series(ratio_ptr, weight_ptr, c, r):
    """As in `two_classes`: the log of S, and its derivatives times s, s^2 and tau."""
    above = tl.maximum(c - r, 0.0)
    fade = tl.exp(-0.5 * above * above)
    total, unused = _mills(ratio_ptr, c)
    total = total * fade + 0 * unused
    slope = c * 0.0
    heat = c * 0.0
    for k in range(_TERMS):
        n = k + 1.0
        weight = tl.load(weight_ptr + k)
        outer, outer_1 = _mills(ratio_ptr, n * r + c)
        left = n * r - c
        inner, inner_1 = _mills(ratio_ptr, tl.abs(left))
        deep = tl.exp(tl.minimum(0.5 * (n - 1) * r * ((n + 1) * r - 2 * c), 0.0))
        beyond = deep * (_ROOT_2PI - tl.exp(-0.5 * left * left) * inner)
        below = left < 0
        inner_1 = tl.where(below, fade - left * beyond, inner_1 * fade)
        inner = tl.where(below, beyond, inner * fade)
        total += weight * (inner - outer * fade)
        slope += weight * n * (inner + outer * fade)
        heat += weight * n * (inner_1 - outer_1 * fade)
    slope = slope * r / total
    heat = heat * r / total
    lean = tl.where(above > 0, r * (c - 0.5 * r), 0.5 * c * c)
    return tl.log(total) - _LOG_ROOT - lean, slope, c * slope - heat, heat


@triton.jit(do_not_specialize=["rows", "tau_stride", "ignore", "heated"])
def pair_kernel(
    mean_ptr, scale_ptr, target_ptr, tau_ptr, ratio_ptr, weight_ptr, log_p_ptr, error_ptr, d_mean_ptr, d_scale_ptr,
    d_tau_ptr, rows, tau_stride, ignore, heated, R: tl.constexpr,
):  # fmt: skip
    """log p of the target, its error, and the gradients."""
    row = (tl.program_id(0) * R + tl.arange(0, R)).to(tl.int64)
    live = row < rows
    tau = tl.load(tau_ptr + row * tau_stride, mask=live, other=1.0).to(tl.float64)
    target = tl.load(target_ptr + row, mask=live, other=0)
    counts = live & (target != ignore)
    own = 2 * row + tl.where(counts, target, 0)
    other = 4 * row + 1 - own
    mean = tl.load(mean_ptr + own, mask=live, other=0.0).to(tl.float64)
    ahead = mean - tl.load(mean_ptr + other, mask=live, other=0.0).to(tl.float64)
    own_scale = tl.load(scale_ptr + own, mask=live, other=1.0).to(tl.float64)
    other_scale = tl.load(scale_ptr + other, mask=live, other=1.0).to(tl.float64)
    gap = tl.abs(ahead)
    scale = tl.sqrt(own_scale * own_scale + other_scale * other_scale)
    wide = scale > tau
    step = (scale == 0) & (tau == 0)
    t = tl.where(wide | step, 1.0, tau)
    narrow, slope, bend, heat = _over_normal(tl.where(wide, 0.0, gap), tl.where(wide, 0.0, scale), t)
    s = tl.where(wide, scale, 1.0)
    r = s / tl.maximum(tl.where(wide, tau, 1.0), s / _SHARPEST)
    series, slope_2, bend_2, heat_2 = _by_series(ratio_ptr, weight_ptr, tl.where(wide, gap, 0.0) / s, r)
    log_small = tl.where(wide, series, narrow)
    log_small = tl.where(step, tl.where(gap == 0, -_LOG_2, -float("inf")), log_small)
    in_mean = tl.where(wide, slope_2 / s, slope / t)
    in_scale = tl.where(wide, bend_2 / s / s, bend / t / t)
    in_tau = tl.where(tau > 0, tl.where(wide, heat_2, heat) / tl.where(tau > 0, tau, 1.0), 0.0)
    # The other probability, 1 - S, and its log without cancellation where S is small.
    small = tl.exp(log_small)
    little = -small * (1 + small * (0.5 + small * (1.0 / 3 + 0.25 * small)))
    large = tl.where(small < 1e-4, little, tl.log(1 - small))
    less = ahead <= 0
    share = tl.where(less, 1.0, small / (1 - small))
    log_p = tl.where(less, log_small, large)
    flat = step | (counts == 0)
    slope = tl.where(flat, 0.0, share * in_mean)
    turned = tl.where(flat, 0.0, tl.where(less, share, -share))
    log_p = tl.where(counts, log_p, 0.0)
    known = tl.where(log_p < -1e30, 0.0, tl.abs(log_p))
    tl.store(log_p_ptr + row, log_p.to(tl.float32), mask=live)
    tl.store(error_ptr + row, tl.where(counts, known * _ROUNDING + _LEAST, 0.0).to(tl.float32), mask=live)
    kind = d_mean_ptr.dtype.element_ty
    tl.store(d_mean_ptr + own, slope.to(tl.float32).to(kind), mask=live)
    tl.store(d_mean_ptr + other, (-slope).to(tl.float32).to(kind), mask=live)
    tl.store(d_scale_ptr + own, (turned * in_scale * own_scale).to(tl.float32).to(kind), mask=live)
    tl.store(d_scale_ptr + other, (turned * in_scale * other_scale).to(tl.float32).to(kind), mask=live)
    tl.store(d_tau_ptr + row, (turned * in_tau).to(tl.float32), mask=live & (heated > 0))


@lru_cache(maxsize=8)
def series(device: torch.device) -> tuple[Tensor, Tensor]:
    """Chebyshev coefficients of Mills' ratio, and the weights of an alternating series, in float64."""
    degree, fold = _DEGREE.value, _FOLD.value
    angle = (torch.arange(64, dtype=torch.float64) + 0.5) * (math.pi / 64)
    z = fold * (1 + angle.cos()) / (1 - angle.cos())
    values = (z + fold) * torch.special.erfcx(z * math.sqrt(0.5)) * math.sqrt(math.pi / 2)
    orders = torch.arange(degree + 1, dtype=torch.float64)
    coefficients = (orders[:, None] * angle).cos() @ values / 32
    coefficients[0] /= 2
    return coefficients.to(device), torch.tensor(_two.weights(), dtype=torch.float64, device=device)


_run = Launcher(pair_kernel)


def nll(
    mean: Tensor, scale: Tensor, temperature: Tensor, target: Tensor, ignore: int = -1, heat: bool = True
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """As `triton_quadrature.nll`, for mean and scale (B, 2)."""
    rows = len(mean)
    log_p, error = (torch.empty(rows, dtype=torch.float32, device=mean.device) for _ in range(2))
    d_tau = torch.empty(rows, 1, dtype=torch.float32, device=mean.device) if heat else error
    d_mean, d_scale = torch.empty_like(mean), torch.empty_like(scale)
    stride = 1 if temperature.numel() > 1 else 0
    found = (log_p, error, d_mean, d_scale, d_tau)
    rest = (*series(mean.device), *found, rows, stride, ignore, 1 if heat else 0)
    _run(-(-rows // ROWS), (mean, scale, target, temperature), rest, (ROWS,), WARPS)
    return found
