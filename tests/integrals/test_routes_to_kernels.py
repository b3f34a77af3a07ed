"""The way to the fused kernels and back, with kernels written out in plain torch: shapes, axes, scaling, groups.

What the kernels themselves compute is tested on a GPU and in Triton's interpreter.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from dubito import integrals
from dubito.errors import DubitoError
from dubito.integrals import (
    expected_log_softmax,
    expected_softmax_nll,
    fused,
    nll,
    quadrature,
    quick,
    sampled_log_softmax,
    sampling,
)

MEAN = torch.tensor([[0.5, -1.0, 0.2], [2.0, 0.0, -0.5], [0.1, 0.3, 0.0], [1.0, 1.0, -2.0]])
SCALE = torch.tensor([[0.5, 1.0, 0.7], [1.0, 0.2, 2.0], [0.1, 0.3, 1.0], [1.5, 0.4, 0.6]])
TARGET = torch.tensor([0, 2, 1, 0])


def by_autograd(work: Any, inputs: tuple[Any, ...], grad: Tensor | None = None) -> tuple[Tensor, list[Any]]:
    """A value and its gradients in the inputs that are tensors of floats."""
    with torch.enable_grad():
        given = [x.detach().clone().requires_grad_() if isinstance(x, Tensor) else x for x in inputs]
        value = work(*given)
        wanted = [x for x in given if isinstance(x, Tensor)]
        found = iter(torch.autograd.grad((value * (1 if grad is None else grad)).sum(), wanted))
    return value.detach(), [next(found) if isinstance(x, Tensor) else None for x in given]


def over_bank(mean: Tensor, scale: Tensor, tau: Tensor, bank: Tensor) -> Tensor:
    """log of the softmax averaged over a bank (S, K) shared by the rows."""
    u = mean + scale * bank.unsqueeze(1).to(mean)
    return (u / tau).softmax(-1).mean(0).log()


def draws() -> ModuleType:
    made: Any = ModuleType("dubito.integrals.triton_draws")
    made.MOST_CLASSES, made.MOST_FACTORS = 8, 4

    def average(mean, scale, factors, tau, noise, shared):
        u = mean.unsqueeze(1) + scale.unsqueeze(1) * noise.unsqueeze(2)
        if factors is not None:
            u = u + torch.einsum("gbkr,gsr->gsbk", factors, shared)
        return (u / tau.unsqueeze(1).unsqueeze(-1)).softmax(-1).mean(1).log()

    def backward(mean, scale, factors, tau, noise, shared, log_p, grad):
        body = lambda m, s, f, t: average(m, s, f, t, noise, shared)  # noqa: E731
        return by_autograd(body, (mean, scale, factors, tau), grad)[1]

    made.forward, made.backward = average, backward
    return made


def qmc() -> ModuleType:
    made: Any = ModuleType("dubito.integrals.triton_qmc")
    made.MOST_CLASSES = 8

    def of_target(mean, scale, tau, target, bank):
        body = lambda m, s, t: over_bank(m, s, t, bank).gather(-1, target.unsqueeze(-1)).squeeze(-1)  # noqa: E731
        log_p, gradients = by_autograd(body, (mean, scale, tau.expand(len(mean), 1)))
        return log_p, *gradients

    def backward(mean, scale, tau, bank, log_p, grad):
        return by_autograd(lambda m, s, t: over_bank(m, s, t, bank), (mean, scale, tau), grad)[1]

    made.nll, made.forward, made.backward = of_target, over_bank, backward
    return made


def all_classes() -> ModuleType:
    made: Any = ModuleType("dubito.integrals.triton_all")
    made.forward = lambda mean, scale, tau, nodes: quick._forward(nodes, mean, scale, tau)
    made.backward = lambda *given: quick._backward(given[-1], *given[:-1])
    return made


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every tensor is said to be ready for the kernels, and these are the ones above."""
    for made in (draws(), qmc(), all_classes()):
        monkeypatch.setitem(sys.modules, made.__name__, made)
        monkeypatch.setattr(integrals, made.__name__.rpartition(".")[2], made, raising=False)
    for module in (fused, sampling, nll):
        monkeypatch.setattr(module, "ready", lambda *tensors: True)


def graded(work: Any, *inputs: Tensor) -> list[Tensor]:
    """A value, and its gradients under unequal weights."""
    given = [x.clone().requires_grad_() for x in inputs]
    value = work(*given)
    weights = torch.linspace(0.5, 1.5, value.numel()).reshape(value.shape)
    return [value.detach(), *torch.autograd.grad((value * weights).sum(), given)]


def both_ways(work: Any, *inputs: Tensor, request: pytest.FixtureRequest) -> None:
    plain = graded(work, *inputs)
    request.getfixturevalue("kernels")
    for found, wanted in zip(graded(work, *inputs), plain):
        torch.testing.assert_close(found, wanted, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("rank", [0, 2])
@pytest.mark.parametrize("lead", [(), (2, 2)])
def test_given_draws(rank: int, lead: tuple[int, ...], request: pytest.FixtureRequest) -> None:
    g = torch.Generator().manual_seed(0)
    ones = (1,) * max(len(lead), 1)
    noise = torch.randn(5, *ones, 3, generator=g)
    shared = torch.randn(5, *ones, rank, generator=g) if rank else None
    factors = torch.randn(*(lead or (4,)), 3, rank, generator=g) if rank else None
    mean, scale = (x.reshape(*(lead or (4,)), 3) for x in (MEAN, SCALE))

    def work(m: Tensor, s: Tensor, t: Tensor) -> Tensor:
        return sampled_log_softmax(m, s, noise, factors=factors, factor_noise=shared, temperature=t)

    both_ways(work, mean, scale, torch.tensor(0.7), request=request)
    found = sampled_log_softmax(mean, scale, noise, factors=factors, factor_noise=shared, temperature=0.7)
    torch.testing.assert_close(found, work(mean, scale, torch.tensor(0.7)))


def test_given_draws_of_several_runs(kernels: None) -> None:
    """Under vmap each run has its own draws, or all share them."""
    noise = torch.randn(2, 5, 1, 3, generator=torch.Generator().manual_seed(1))
    means = torch.stack([MEAN, MEAN + 1])
    for axis in (0, None):
        bank = noise if axis == 0 else noise[0]
        mapped = torch.vmap(lambda m, n: sampled_log_softmax(m, SCALE, n), (0, axis))(means, bank)
        for i in range(2):
            one = sampled_log_softmax(means[i], SCALE, bank[i] if axis == 0 else bank)
            torch.testing.assert_close(mapped[i], one)


def test_draws_that_the_kernels_cannot_take(kernels: None) -> None:
    from dubito.integrals import draws as route

    noise = torch.zeros(5, 1, 3)
    assert route.fit(MEAN, SCALE, noise, None, None)
    assert not route.fit(MEAN.double(), SCALE, noise, None, None)
    assert not route.fit(MEAN, SCALE, torch.zeros(5, 4, 3), None, None), "draws of each row"
    assert not route.fit(MEAN, SCALE[:1], noise, None, None)
    assert not route.fit(torch.zeros(4, 9), torch.zeros(4, 9), torch.zeros(5, 1, 9), None, None)
    assert not route.fit(MEAN, SCALE, noise, torch.zeros(4, 3, 5), torch.zeros(5, 1, 5))


@pytest.mark.parametrize("shape", [(4,), (2, 2)])
def test_quasi_random_points(shape: tuple[int, ...], request: pytest.FixtureRequest) -> None:
    mean, scale, target = MEAN.reshape(*shape, 3), SCALE.reshape(*shape, 3), TARGET.reshape(shape)

    def likelihood(m: Tensor, s: Tensor, t: Tensor) -> Tensor:
        options = {"method": "qmc", "samples": 64, "generator": torch.Generator().manual_seed(2)}
        return expected_softmax_nll(m, s, target, temperature=t, reduction="none", **options)

    def everything(m: Tensor, s: Tensor, t: Tensor) -> Tensor:
        source = torch.Generator().manual_seed(2)
        return expected_log_softmax(m, s, temperature=t, method="qmc", samples=64, generator=source)

    inputs = mean, scale, torch.full((*shape, 1), 0.8)
    plain = [graded(work, *inputs) for work in (likelihood, everything)]
    request.getfixturevalue("kernels")
    for work, wanted in zip((likelihood, everything), plain):
        for a, b in zip(graded(work, *inputs), wanted):
            torch.testing.assert_close(a, b, rtol=2e-4, atol=2e-5)


def test_ignored_rows_are_not_read_on_a_device(request: pytest.FixtureRequest) -> None:
    target = torch.tensor([0, -100, 1, 0])

    def work(m: Tensor, s: Tensor) -> Tensor:
        options = {"method": "qmc", "samples": 64, "generator": torch.Generator().manual_seed(2)}
        return expected_softmax_nll(m, s, target, **options)

    both_ways(work, MEAN, SCALE, request=request)


def test_all_classes_by_the_quick_rule(request: pytest.FixtureRequest) -> None:
    inputs = MEAN, SCALE, torch.full((4, 1), 0.9)
    both_ways(lambda m, s, t: quick.QuickClasses.apply(m, s, t, 64)[0], *inputs, request=request)


def exact(hard: Tensor) -> ModuleType:
    """The quadrature, which says of some rows that it has failed."""
    made: Any = ModuleType("dubito.integrals.triton_quadrature")
    made.ALLOWED = 3e-7

    def of_target(mean, scale, tau, target, tol):
        found, _ = quadrature.solve(
            mean.double(), scale.double(), tau.double().expand(len(mean), 1), target, 1e-9
        )
        parts = [
            x.float() for x in (found.log_p, found.error, found.d_mean, found.d_scale, found.d_temperature)
        ]
        for i, part in enumerate(parts):
            part[hard] = torch.inf if i == 1 else 7.0
        return *parts, hard.sum()

    made.nll = of_target
    return made


@pytest.mark.parametrize("hard", [[False] * 4, [False, True, True, False]], ids=["all easy", "two hard"])
@pytest.mark.parametrize("own", [False, True], ids=["one temperature", "one each"])
def test_quadrature_and_the_rows_it_leaves(
    hard: list[bool], own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(m: Tensor, s: Tensor, t: Tensor) -> Tensor:
        return expected_softmax_nll(m, s, TARGET, temperature=t, reduction="none")

    inputs = MEAN, SCALE, torch.tensor([[0.8], [0.5], [1.0], [2.0]]) if own else torch.tensor(0.8)
    plain = graded(work, *inputs)
    made = exact(torch.tensor(hard))
    monkeypatch.setitem(sys.modules, made.__name__, made)
    monkeypatch.setattr(integrals, "triton_quadrature", made, raising=False)
    for module in (fused, nll):
        monkeypatch.setattr(module, "ready", lambda *tensors: all(x.dtype == torch.float32 for x in tensors))
    for found, wanted in zip(graded(work, *inputs), plain):
        torch.testing.assert_close(found, wanted, rtol=2e-4, atol=2e-5)


def test_the_mean_loss_of_plain_inputs_is_one_call(monkeypatch: pytest.MonkeyPatch, kernels: None) -> None:
    calls: list[Any] = []
    monkeypatch.setattr(nll, "plain", lambda *given: True)
    monkeypatch.setattr(nll, "mean_loss", lambda *given: calls.append(given) or torch.tensor(1.0))
    expected_softmax_nll(MEAN, SCALE, TARGET, temperature=0.5, ignore_index=-1, tol=1e-3)
    expected_softmax_nll(MEAN, SCALE, TARGET, temperature=0.5, method="qmc", samples=50)
    assert [call[3:6] for call in calls] == [(0.5, -1, 1e-3), (0.5, -100, None)]
    assert calls[0][6] is None
    assert calls[1][6].shape == (64, 3)
    wide = torch.zeros(4, 9)
    made = expected_softmax_nll(wide, torch.ones(4, 9), TARGET, method="qmc", samples=16)
    assert len(calls) == 2, "too many classes for the kernel"
    assert float(made) == pytest.approx(2.197, abs=0.5)


def test_bounds_and_refusals_of_the_likelihood(monkeypatch: pytest.MonkeyPatch) -> None:
    g = torch.Generator().manual_seed(0)
    factors = torch.randn(4, 3, 4, generator=g)
    with pytest.raises(DubitoError, match="fixed rule"):
        expected_softmax_nll(MEAN, SCALE, TARGET, factors=factors, method="fixed")
    for method in ("fixed", "quadrature"):
        with pytest.raises(DubitoError, match="normal noise"):
            expected_softmax_nll(MEAN, SCALE, TARGET, method=method, noise="gumbel")
    monkeypatch.setattr(nll, "_MANY", 64)
    reports: list[Any] = []
    source = torch.Generator().manual_seed(1)
    expected_softmax_nll(
        MEAN, SCALE, TARGET, factors=factors, tol=1e-12, samples=16, generator=source, report=reports.append
    )
    assert reports[0].points == 64
    assert quadrature._elements(torch.zeros(2, 3, device="meta")) == quadrature._ELEMENTS
    given = MEAN.double(), SCALE.double(), torch.full((4, 1), 0.8, dtype=torch.float64), TARGET
    best = quadrature._thorough_part(*given, tol=0.0)
    assert float(best.error.max()) < 1e-9, "the last level is what there is"
    none = best._replace(settled=torch.zeros(0, dtype=torch.bool))
    assert quadrature._merge(none, torch.arange(4), best).settled.numel() == 0
