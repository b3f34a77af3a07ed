"""What the Triton kernels of the nine-layer network must do, on a GPU and in Triton's interpreter."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from dubito._fused.grouped import Channels, How, Plain
from dubito._fused.triton_grouped import Kernels

# Tiles that are full, cut and only one; channels of a group from one up.
SMALL = ((2, 8, 5, 3, 2), (3, 4, 1, 1, 2), (1, 2, 7, 2, 2), (2, 512, 3, 3, 1), (1, 64, 33, 17, 2))
# The layers of both readings, with an odd number of images.
LAYERS = tuple(
    (35, channels, side, side, 2)
    for channels, side in (
        (128, 32), (256, 16), (512, 8), (256, 8), (128, 8),
        (128, 28), (256, 14), (512, 5), (256, 3), (128, 1),
    )
)  # fmt: skip


def near(found, expected, kind):
    """Within the rounding of what was written, and what float32 makes of a sum."""
    found, expected, rounding = found.double(), expected.double(), 1e-5
    if kind == torch.bfloat16:  # of eight bits: to the nearest, and in the interpreter cut off
        rounding = 2.0**-8 if found.is_cuda else 2.0**-7
    allowed = rounding * expected.abs() + 1e-5 * (1 + expected.abs().max())
    return bool(((found - expected).abs() <= allowed).all())


def check_norms(sizes, last, kind, device="cpu"):
    """Each size; and one whose mean is many deviations from 0."""
    for size in sizes:
        check_norm(size, last, kind, device)
    check_norm(sizes[0], last, kind, device, mean=30.0)


def check_norm(size, last, kind, device, mean=0.0):
    """Values and gradients against float64; the same bits twice."""
    *size, groups = size
    g, ops, how = torch.Generator(device).manual_seed(0), Kernels(), How(groups, 0.01, 1e-3, last)
    y, grad = (torch.randn(size, generator=g, device=device).to(kind) for _ in range(2))
    by = Channels(*torch.randn(3, size[1], generator=g, device=device))
    y = torch.where((y + mean + by.bias[:, None, None]).abs() < 1e-3, y + mean + 1, y + mean)  # see `grad`
    y, exact = y.to(kind, memory_format=torch.channels_last), Channels(*(t.double() for t in by))
    z, record = ops.norm(y, by, how)
    expected, moments = Plain().norm(y.double(), exact, how)
    assert z.dtype == kind
    assert z.is_contiguous(memory_format=torch.channels_last)
    assert near(z, expected, kind), (size, last)
    assert near(record, moments, torch.float32), (size, last)
    grad *= expected.abs() > 1e-4  # nearer to 0 the sign, and so the slope, is one of rounding
    d, sums = ops.norm_back(grad, y, record, by, how)
    d_exact, sums_exact = Plain().norm_back(grad.double(), y.double(), moments, exact, how)
    assert near(d, d_exact, kind), (size, last)
    for found, right in zip(sums, sums_exact):
        assert float((found - right).abs().max()) < 1e-3 * d[:, 0].numel() ** 0.5, (size, last)
    again = ops.norm(y, by, how), ops.norm_back(grad, y, record, by, how)
    assert torch.equal(again[0][0], z)
    assert torch.equal(again[1][0], d)
    assert all(torch.equal(a, b) for a, b in zip(again[1][1], sums))


def check_pool(size, kind, device="cpu"):
    """The same numbers as torch, those of equal ones in a window too."""
    g = torch.Generator(device).manual_seed(0)
    x = torch.randint(-3, 3, size, generator=g, device=device).to(kind).requires_grad_()
    found, expected = Kernels().pool(x), F.max_pool2d(x, 2)
    assert torch.equal(found, expected)
    weight = torch.randn(found.shape, generator=g, device=device).to(kind)
    ours, theirs = (torch.autograd.grad((p * weight).sum(), x)[0] for p in (found, expected))
    assert torch.equal(ours, theirs)


def check_image(device="cpu"):
    """Three channels and five of zeros."""
    x = torch.randn(2, 3, 4, 5, device=device)
    found = Kernels().image(x)
    assert found.shape == (2, 8, 4, 5)
    assert found.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(found[:, :3], x.bfloat16())
    assert not found[:, 3:].any()
