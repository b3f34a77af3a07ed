"""The way to the fused kernels and back, with kernels written out in plain torch: shapes, axes, scaling, groups.

What the kernels themselves compute is tested on a GPU and in Triton's interpreter.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest
import torch
from plain_kernels import all_classes, draws, exact, means, qmc
from torch import Tensor

from dubito import integrals
from dubito.errors import DubitoError
from dubito.integrals import (
    expected_log_softmax,
    expected_softmax_nll,
    fused,
    fused_all,
    fused_mean,
    nll,
    quadrature,
    sampled_log_softmax,
    sampling,
)

MEAN = torch.tensor([[0.5, -1.0, 0.2], [2.0, 0.0, -0.5], [0.1, 0.3, 0.0], [1.0, 1.0, -2.0]])
SCALE = torch.tensor([[0.5, 1.0, 0.7], [1.0, 0.2, 2.0], [0.1, 0.3, 1.0], [1.5, 0.4, 0.6]])
TARGET = torch.tensor([0, 2, 1, 0])


def put(monkeypatch: pytest.MonkeyPatch, made: ModuleType) -> None:
    monkeypatch.setitem(sys.modules, made.__name__, made)
    monkeypatch.setattr(integrals, made.__name__.rpartition(".")[2], made, raising=False)


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every tensor is said to be ready for the kernels, and these are the ones above."""
    for made in (draws(), qmc(), all_classes(), means()):
        put(monkeypatch, made)
    for module in (fused, fused_all, sampling, nll):
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


@pytest.mark.parametrize("shape", [(4,), (2, 2)])
@pytest.mark.parametrize("hard", [[False] * 4, [False, True, True, False]], ids=["all easy", "two hard"])
def test_all_classes_and_the_rows_that_are_left(
    shape: tuple[int, ...], hard: list[bool], request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = MEAN.reshape(*shape, 3), SCALE.reshape(*shape, 3), torch.full((*shape, 1), 0.9)
    plain = graded(lambda m, s, t: expected_log_softmax(m, s, temperature=t), *inputs)
    request.getfixturevalue("kernels")
    put(monkeypatch, all_classes(torch.tensor(hard)))
    reports: list[Any] = []
    given = {"report": reports.append}
    for found, wanted in zip(
        graded(lambda m, s, t: expected_log_softmax(m, s, temperature=t, **given), *inputs), plain
    ):
        torch.testing.assert_close(found, wanted, rtol=2e-4, atol=2e-5)
    assert reports[0].reached


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
    put(monkeypatch, made)
    put(monkeypatch, means())
    for module in (fused, nll):
        monkeypatch.setattr(module, "ready", lambda *tensors: all(x.dtype == torch.float32 for x in tensors))
    for found, wanted in zip(graded(work, *inputs), plain):
        torch.testing.assert_close(found, wanted, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("hard", [[False] * 4, [False, True, True, False]], ids=["all easy", "two hard"])
def test_the_mean_and_the_rows_that_are_left(hard: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    plain = graded(lambda m, s: expected_softmax_nll(m, s, TARGET, temperature=0.8), MEAN, SCALE)
    for made in (exact(torch.tensor(hard)), means()):
        put(monkeypatch, made)
    monkeypatch.setitem(sys.modules, "dubito.integrals.triton_qmc", ModuleType("none"))
    monkeypatch.setattr(integrals, "triton_qmc", None, raising=False)
    monkeypatch.setattr(fused, "missed", lambda log_p, error, tol: ~(error <= tol))
    work = lambda m, s: fused_mean.mean_loss(m, s, TARGET, 0.8, -100, None, None)  # noqa: E731
    for found, wanted in zip(graded(work, MEAN, SCALE), plain):
        torch.testing.assert_close(found, wanted, rtol=2e-4, atol=2e-5)


def test_the_mean_loss_of_plain_inputs_is_one_call(monkeypatch: pytest.MonkeyPatch, kernels: None) -> None:
    calls: list[Any] = []
    monkeypatch.setattr(fused_mean, "plain", lambda *given: True)
    monkeypatch.setattr(fused_mean, "mean_loss", lambda *given: calls.append(given) or torch.tensor(1.0))
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
