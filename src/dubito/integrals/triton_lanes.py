# mypy: disable-error-code="no-untyped-def, untyped-decorator, misc, no-untyped-call"
"""Sums over the 32 lanes of a warp, several at a time. Imported only where Triton is.

A sum over lanes takes five exchanges. For four sums at once, the first exchanges halve the number of vectors
instead of the length of each: lanes 0 to 7 end up with the first sum, 8 to 15 with the second, and so on.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .triton_launch import PTX

LANES = tl.constexpr(32)


@triton.jit
def exp(x):
    """The exponential by the processor's own instruction, to 2e-7; 0 below -87."""
    if PTX:
        return tl.inline_asm_elementwise(
            "ex2.approx.ftz.f32 $0, $1;",
            "=f,f",
            [x * 1.4426950408889634],
            dtype=tl.float32,
            is_pure=True,
            pack=1,
        )
    else:
        return tl.exp(x)


@triton.jit
def log(x):
    """The logarithm by the processor's own instruction, to 2e-7, of numbers above 1e-37."""
    if PTX:
        return 0.6931471805599453 * tl.inline_asm_elementwise(
            "lg2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        return tl.log(x)


@triton.jit
def pick(column, j):
    """One lane's number for all lanes; j, a number or (lanes,), says which lane."""
    return tl.gather(column, tl.zeros([LANES], tl.int32) + j, 0)


@triton.jit
def swapped(x, BIT: tl.constexpr):
    """The value of the lane whose number differs in one bit."""
    return tl.gather(x, tl.arange(0, LANES) ^ BIT, 0)


@triton.jit
def mix(a, b, BIT: tl.constexpr):
    """Sums of a over pairs of lanes where the bit is 0, of b where it is 1."""
    first = (tl.arange(0, LANES) & BIT) == 0
    return tl.where(first, a, b) + swapped(tl.where(first, b, a), BIT)


@triton.jit
def four(a, b, c, d):
    """Four vectors, each summed over lanes 8 and 16 apart, in lanes 0-7, 8-15, 16-23 and 24-31."""
    return mix(mix(a, c, 16), mix(b, d, 16), 8)


@triton.jit
def _highest(a, b, BIT: tl.constexpr):
    first = (tl.arange(0, LANES) & BIT) == 0
    return tl.maximum(tl.where(first, a, b), swapped(tl.where(first, b, a), BIT))


@triton.jit
def four_highest(a, b, c, d):
    """The largest number of each of four vectors, in lanes 0-7, 8-15, 16-23 and 24-31."""
    x = _highest(_highest(a, c, 16), _highest(b, d, 16), 8)
    x = tl.maximum(x, swapped(x, 4))
    x = tl.maximum(x, swapped(x, 2))
    return tl.maximum(x, swapped(x, 1))


@triton.jit
def four_sums(a, b, c, d):
    """Sums of four vectors over even lanes, in even lanes of 0-7, 8-15, ..., and over odd ones in the odd lanes."""
    x = four(a, b, c, d)
    x += swapped(x, 4)
    return x + swapped(x, 2)


@triton.jit
def twelve_sums(a, b, c, d, e, f, g, h, i, j, k, m):
    """Sums over even and odd lanes of three times four vectors: lanes 0 and 1, 4 and 5, 2 and 3 of each eight."""
    first, second, third = four(a, b, c, d), four(e, f, g, h), four(i, j, k, m)
    return mix(mix(first, second, 4), third + swapped(third, 4), 2)


@triton.jit
def dealt(x, start, place, before):
    """Classes start to start + 3 take the values of the lanes `place` of each eight; others keep their own."""
    lane = tl.arange(0, LANES)
    return tl.where(lane // 4 == start // 4, tl.gather(x, (lane % 4) * 8 + place, 0), before)
