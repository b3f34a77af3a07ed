"""The quadrature kernel in Triton's interpreter, on a CPU: the same numbers as the float64 path. Needs Triton."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from interpreted import run

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed"),
]

PROGRAM = """
import softmax_rows, torch
from dubito.integrals import triton_quadrature
from dubito.integrals.quadrature import solve
from dubito.integrals.triton_mean import mean_of

for kind, tau, classes in (("ordinary", 1.0, 21), ("ordinary", 0.2, 33), ("far", 1.0, 21), ("lognormal", 0.3, 10)):
    mean, scale, temperature, target = softmax_rows.rows(kind, tau, classes, 8)
    inputs = [x.float() for x in (mean, scale, temperature)]
    log_p, error, d_mean, d_scale, _ = triton_quadrature.nll(*inputs, target)
    truth, _ = solve(*(x.double() for x in inputs), target, 1e-8)
    good = error <= 2e-5 + triton_quadrature.ALLOWED * log_p.abs()
    facts = mean_of(log_p, target, -1, error, 2e-5, triton_quadrature.ALLOWED)[1]
    assert int(facts[1]) == int((~good).sum())
    assert int(good.sum()) >= 5, (kind, good)
    assert float((log_p - truth.log_p).abs()[good].max()) < 5e-5, kind
    for got, right in ((d_mean, truth.d_mean), (d_scale, truth.d_scale)):
        off = (got - right).abs().amax(-1) / (right.abs().amax(-1) + 1e-3)
        assert float(off[good].max()) < 1e-4, kind
"""

KEPT = """
import softmax_rows, torch
from dubito.integrals import triton_quadrature as q
from dubito.integrals.quadrature import solve

# Up to 32 classes in registers and nothing else: 32 nodes, and those in between for rows that need them.
for kind, tau, classes, most, least in (
    ("ordinary", 1.0, 21, 31, 6), ("lognormal", 0.3, 10, 248, 6), ("lognormal", 0.3, 10, 31, 0),
    ("far", 1.0, 32, 62, 6),
):
    q.KEPT = most
    mean, scale, temperature, target = softmax_rows.rows(kind, tau, classes, 8)
    inputs = [x.float() for x in (mean, scale, temperature)]
    target[0] = -1
    log_p, error, *gradients = q.nll(*inputs, target)
    assert all(float(x[0].abs().max()) == 0 for x in (log_p, error, *gradients))
    truth, _ = solve(*(x.double() for x in inputs), target.clamp(min=0), 1e-8)
    good = error <= 2e-5 + q.ALLOWED * log_p.abs()
    good[0] = False
    assert int(good.sum()) >= least, (kind, error)
    assert kind != "lognormal" or most == 248 or int(good.sum()) < 7
    assert float(((log_p - truth.log_p).abs() - error)[good].max()) < 0, kind
    for got, right in zip(gradients, (truth.d_mean, truth.d_scale, truth.d_temperature)):
        off = (got - right).abs().amax(-1) / (right.abs().amax(-1) + 1e-3)
        assert float(off[good].max()) < 1e-4, kind
"""

PAIR = """
import torch
from dubito.integrals import triton_quadrature
from dubito.integrals.two_classes import two_log_likelihood

g = torch.Generator().manual_seed(0)
mean = torch.randn(130, 2, generator=g) * torch.tensor([0.1, 1.0, 10.0])[torch.arange(130) % 3, None]
scale = torch.tensor([0.0, 1e-3, 0.02, 0.3, 1.0, 8.0, 50.0])[torch.randint(7, (130, 2), generator=g)]
tau = torch.tensor([0.0, 0.01, 0.05, 0.3, 1.0, 5.0, 100.0])[torch.randint(7, (130, 1), generator=g)]
scale[:3], tau[:3], mean[0, 0] = 0.0, 0.0, mean[0, 1]  # a tie, and points
target = torch.randint(2, (130,), generator=g)
target[7] = -1
kept = target >= 0
for dtype in (torch.float32, torch.bfloat16):
    inputs = mean.to(dtype), scale.to(dtype), tau
    log_p, error, *gradients = triton_quadrature.nll(*inputs, target)
    truth = two_log_likelihood(*(x.double() for x in inputs), target.clamp(min=0))
    torch.testing.assert_close(log_p[kept].double(), truth.log_p[kept], rtol=1e-7, atol=1e-30)
    assert bool(((log_p - truth.log_p).abs() <= error)[kept & log_p.isfinite()].all())
    for got, right in zip(gradients, (truth.d_mean, truth.d_scale, truth.d_temperature)):
        rounding = 1e-7 if got.dtype == torch.float32 else 8e-3
        torch.testing.assert_close(got[kept].double(), right[kept], rtol=rounding, atol=1e-13)
    assert all(float(x[7].abs().max()) == 0 for x in (log_p, error, *gradients))
    one = torch.full((1, 1), 0.3)
    some, _, d_mean, _, _ = triton_quadrature.nll(*inputs[:2], one, target, heat=False)
    truth = two_log_likelihood(*(x.double() for x in inputs[:2]), one.double().expand(130, 1), target.clamp(min=0))
    torch.testing.assert_close(some[kept].double(), truth.log_p[kept], rtol=1e-7, atol=1e-30)
"""


def test_two_classes():
    run(PAIR)


def test_against_float64():
    run(PROGRAM)


def test_classes_kept_in_registers():
    run(KEPT)
