"""The fused kernels against the float64 reference path. Needs a CUDA device and Triton."""

from __future__ import annotations

import pytest
import softmax_rows as families
import torch

from dubito.integrals import expected_log_softmax, expected_softmax_nll
from dubito.integrals.quadrature import solve
from dubito.integrals.two_classes import two_log_likelihood

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]

KINDS = [
    *[("ordinary", tau, classes) for tau in (0.05, 0.5, 5.0) for classes in (2, 10, 21, 33, 100, 1000)],
    *[("lognormal", tau, 10) for tau in (0.02, 0.3)],
    *[("extreme", tau, 10) for tau in (0.01, 0.3, 1.0)],
    ("far", 1.0, 21),
    ("shifted", 0.5, 21),
    ("ordinary", 0.0, 10),
]


def relative(a: torch.Tensor, b: torch.Tensor, floor: float = 1e-3) -> float:
    a, b = a.double().cpu(), b.double().cpu()
    return float(((a - b).abs().amax(-1) / (b.abs().amax(-1) + floor)).max())


@pytest.mark.parametrize(("kind", "tau", "classes"), KINDS)
def test_quadrature_against_float64(kind, tau, classes):
    """log p to 1e-4 and gradients to 1e-4 of their size, easy rows by the kernel and hard ones by the fallback."""
    mean, scale, temperature, target = (x.cuda() for x in families.rows(kind, tau, classes, 64))
    inputs = [x.float().requires_grad_() for x in (mean, scale, temperature)]
    loss = expected_softmax_nll(*inputs[:2], target, temperature=inputs[2], reduction="none")
    grads = torch.autograd.grad(-loss.sum(), inputs)
    truth, _ = solve(*(x.detach().double().cpu() for x in inputs), target.cpu(), 1e-8)
    off = (-loss.detach().double().cpu() - truth.log_p).abs()
    assert float((off / (1 + truth.log_p.abs() / 100)).max()) < 1e-4
    assert relative(grads[0], truth.d_mean) < 3e-4
    assert relative(grads[1], truth.d_scale) < 3e-4
    # A sum over classes that may cancel, in units of the narrowest width.
    narrow = float(torch.hypot(inputs[1], 1.28 * inputs[2]).clamp(min=1e-6).min())
    assert relative(grads[2], truth.d_temperature, floor=1e-3 + 1e-5 / narrow) < 2e-3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_two_classes_are_exact(dtype):
    """Scales from 0 to 50, temperatures from 0 to 100: value and gradients to rounding, one by one."""
    g = torch.Generator().manual_seed(0)
    mean = torch.randn(600, 2, generator=g) * torch.tensor([0.1, 1.0, 10.0])[torch.arange(600) % 3, None]
    scale = torch.tensor([0.0, 1e-3, 0.02, 0.3, 1.0, 8.0, 50.0])[torch.randint(7, (600, 2), generator=g)]
    tau = torch.tensor([0.01, 0.05, 0.3, 1.0, 5.0, 100.0])[torch.randint(6, (600, 1), generator=g)]
    target = torch.randint(2, (600,), generator=g)
    inputs = [mean.to(dtype), scale.to(dtype), tau]
    truth = two_log_likelihood(*(x.double() for x in inputs), target)
    given = [x.cuda().requires_grad_() for x in inputs]
    said = []
    options = {"reduction": "none", "report": said.append}
    losses = expected_softmax_nll(*given[:2], target.cuda(), temperature=given[2], **options)
    torch.testing.assert_close(-losses.detach().cpu().double(), truth.log_p, rtol=2e-7, atol=1e-30)
    assert bool(((losses.detach().cpu() + truth.log_p).abs() <= said[0].error.cpu()).all())
    grads = torch.autograd.grad(-losses.sum(), given)
    for got, right in zip(grads, (truth.d_mean, truth.d_scale, truth.d_temperature)):
        rounding = 2e-7 if got.dtype == torch.float32 else 5e-3
        torch.testing.assert_close(got.cpu().double(), right, rtol=rounding, atol=1e-13)
    for tau in (0.05, 5.0):
        one = expected_softmax_nll(*given[:2], target.cuda(), temperature=tau)
        same = torch.full((600, 1), tau, device="cuda")
        wanted = expected_softmax_nll(*given[:2], target.cuda(), temperature=same, reduction="none").mean()
        torch.testing.assert_close(one, wanted)
        for a, b in zip(*(torch.autograd.grad(loss, given[:2]) for loss in (one, wanted))):
            torch.testing.assert_close(a, b)


@pytest.mark.parametrize("classes", [2, 10, 21, 40, 100, 1000, 5000])
@pytest.mark.parametrize("tau", [0.2, 1.0])
def test_qmc_against_float64(classes, tau):
    """The same bank, eager in float64 and fused in float32: likelihood, all classes, and gradients."""
    mean, scale, temperature, target = families.rows("ordinary", tau, classes, 37)
    weights = torch.randn(37, classes, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    slow = [x.requires_grad_() for x in (mean, scale, temperature)]
    fast = [x.detach().float().cuda().requires_grad_() for x in slow]
    options = {"method": "qmc", "samples": 64}
    for a, b in (
        (
            expected_softmax_nll(*slow[:2], target, temperature=slow[2], reduction="none", **options),
            expected_softmax_nll(*fast[:2], target.cuda(), temperature=fast[2], reduction="none", **options),
        ),
        (
            (weights * expected_log_softmax(*slow[:2], temperature=slow[2], **options)).sum(-1),
            (weights.float().cuda() * expected_log_softmax(*fast[:2], temperature=fast[2], **options)).sum(
                -1
            ),
        ),
    ):
        assert (
            float((a.detach() - b.detach().double().cpu()).abs().max() / (1 + a.detach().abs().max())) < 1e-4
        )
        for x, y in zip(torch.autograd.grad(a.sum(), slow), torch.autograd.grad(b.sum(), fast)):
            assert relative(y, x, floor=1e-2) < 2e-3


def test_bfloat16_inputs():
    mean, scale, _, target = families.rows("ordinary", 1.0, 21, 200)
    half = [x.bfloat16().cuda().requires_grad_() for x in (mean, scale)]
    for method in ("quadrature", "qmc"):
        loss = expected_softmax_nll(*half, target.cuda(), temperature=0.7, method=method, samples=1024)
        grads = torch.autograd.grad(loss, half)
        rounded = [x.detach().double().cpu().requires_grad_() for x in half]
        exact = expected_softmax_nll(*rounded, target, temperature=0.7)
        wanted = torch.autograd.grad(exact, rounded)
        assert loss.dtype == torch.float32
        assert abs(float(loss) - float(exact)) < (1e-4 if method == "quadrature" else 2e-2)
        for got, right in zip(grads, wanted):
            assert got.dtype == torch.bfloat16
            assert float((got.double().cpu() - right).norm() / right.norm()) < (
                1e-2 if method == "quadrature" else 0.1
            )


def test_hard_rows_are_found_and_fallen_back_on():
    mean, scale, tau, target = (x.cuda() for x in families.rows("extreme", 0.05, 10, 128))
    reports = []
    expected_softmax_nll(mean.float(), scale.float(), target, temperature=tau.float(), report=reports.append)
    assert "thorough" in reports[0].reason
    # Half of these rows have log p below -50, where float32 leaves more than the tolerance: that is said too.
    truth, _ = solve(*(x.float().double().cpu() for x in (mean, scale, tau)), target.cpu(), 1e-8)
    assert bool((reports[0].error.cpu() <= 2e-5 + 4e-7 * (14 + truth.log_p.abs())).all())


def test_points_ties_and_ignored_rows():
    mean = torch.tensor([[1.0, 1.0, 0.0], [2.0, 0.0, 1.0]], device="cuda", requires_grad=True)
    y = torch.tensor([0, -100], device="cuda")
    loss = expected_softmax_nll(mean, torch.zeros(2, 3, device="cuda"), y, temperature=0.0)
    loss.backward()
    assert float(loss) == pytest.approx(0.6931472, abs=1e-5)
    assert float(mean.grad.abs().max()) == 0.0
    p = expected_log_softmax(
        mean, torch.zeros(2, 3, device="cuda"), temperature=0.0, method="qmc", samples=8
    ).exp()
    torch.testing.assert_close(p.cpu(), torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]]))


def test_memory_does_not_grow_with_the_work():
    """Peak extra memory at most four times the inputs."""
    mean = torch.randn(40_000, 21, device="cuda").requires_grad_()
    scale = torch.rand(40_000, 21, device="cuda").requires_grad_()
    y = torch.randint(21, (40_000,), device="cuda")
    for method in ("quadrature", "qmc"):
        torch.autograd.grad(expected_softmax_nll(mean, scale, y, method=method, samples=128), (mean, scale))
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        torch.autograd.grad(expected_softmax_nll(mean, scale, y, method=method, samples=128), (mean, scale))
        torch.cuda.synchronize()
        extra = torch.cuda.max_memory_allocated() - before
        assert extra <= 4 * (mean.numel() + scale.numel()) * 4, (method, extra)


@pytest.mark.parametrize("method", ["quadrature", "qmc"])
@pytest.mark.parametrize("classes", [21, 100])
def test_the_mean_is_that_of_the_rows(method, classes):
    """The mean loss, which has kernels of its own, against the rows one by one; ignored rows weigh nothing."""
    mean, scale, _, target = (x.cuda() for x in families.rows("lognormal", 0.5, classes, 300))
    target[::7] = -100
    mean, scale = mean.float().requires_grad_(), scale.float().requires_grad_()
    settings = {"temperature": 0.5, "method": method, "samples": 64}
    rows = expected_softmax_nll(mean, scale, target, reduction="none", **settings)
    wanted = rows.sum() / (target != -100).sum()
    found = expected_softmax_nll(mean, scale, target, **settings)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)
    for a, b in zip(*(torch.autograd.grad(2 * loss, (mean, scale)) for loss in (found, wanted))):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-7)
        assert float(a[::7].abs().max()) == 0.0
    shaped = expected_softmax_nll(
        mean.reshape(3, 100, classes), scale.reshape(3, 100, classes), target.reshape(3, 100), **settings
    )
    torch.testing.assert_close(shaped, found)
