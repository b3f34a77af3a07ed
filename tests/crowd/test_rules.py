"""Every M-step against loops over annotators, classes and labels, in double precision."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from dubito.crowd import CrowdLabels
from dubito.crowd._hierarchical import Hierarchical
from dubito.crowd._layout import Layout, lay_out
from dubito.crowd._rules import Full, OneCoin, Skill, _newton, matrices, rasch


def some_counts(K: int, seed: int = 0) -> tuple[Layout, torch.Tensor]:
    """Expected counts at random; annotator 3 gave none, 1 hardly any, 0 none to the last class."""
    rng = np.random.default_rng(seed)
    item, who = np.repeat(np.arange(12), 3), np.tile([0, 1, 2], 12)
    label = np.where(who == 1, 0, rng.integers(K, size=36))
    crowd = CrowdLabels(item, who, label, classes=K, annotator_ids=4)
    layout = lay_out(crowd, dtype=torch.float64)
    counts = torch.from_numpy(rng.gamma(1.0, 3.0, size=(len(layout.key_label), K)))
    counts[layout.key_annotator == 0, -1] = 0.0
    counts[layout.key_annotator == 1] *= 0.01
    return layout, counts


def dense(layout: Layout, counts: torch.Tensor) -> np.ndarray:
    """C[r, true, given]."""
    C = np.zeros((layout.num_annotators, layout.num_classes, layout.num_classes))
    for row, r, j in zip(counts.tolist(), layout.key_annotator.tolist(), layout.key_label.tolist()):
        C[r, :, j] = row
    return C


def pooled(C: np.ndarray) -> np.ndarray:
    P = C.sum(0) + 0.01
    return P / P.sum(1, keepdims=True)


def same(found: object, wanted: object) -> None:
    np.testing.assert_allclose(np.asarray(found), np.asarray(wanted), rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("s", [0.0, 0.3, 4.0])
def test_full_matrices(K: int, s: float) -> None:
    layout, counts = some_counts(K)
    C, P = dense(layout, counts), pooled(dense(layout, counts))
    n = C.sum(2, keepdims=True)
    fitted = Full(s).fit(layout, counts, None, burning=False)
    with np.errstate(invalid="ignore"):
        wanted = np.where(n + s > 0, (C + s * P) / (n + s), 1 / K)
    same(matrices(layout, fitted), wanted)
    same(matrices(layout, fitted, torch.tensor([3, 0])), wanted[[3, 0]])
    at_keys = wanted[layout.key_annotator.numpy(), :, layout.key_label.numpy()]
    same(fitted.mean, at_keys)
    same(fitted.table, np.log(np.maximum(at_keys, 1e-300)))
    density = (
        sum(s * P[k, j] * math.log(A[k, j]) for A in wanted for k in range(K) for j in range(K)) if s else 0
    )
    assert fitted.penalty == pytest.approx(density, rel=1e-11)
    same(fitted.weight, np.full((4, K), s))
    assert not fitted.shared


@pytest.mark.parametrize("rule", [Full(2.0), OneCoin(2.0)])
def test_the_prior_follows_the_crowd_while_burning_and_then_stays(rule: Full | OneCoin) -> None:
    layout, counts = some_counts(3)
    first = rule.fit(layout, counts, None, burning=True)
    other = some_counts(3, seed=1)[1][: len(counts)] + 0.5
    anew = rule.fit(layout, other, None, burning=True)
    name = "pooled" if isinstance(rule, Full) else "share"
    same(rule.fit(layout, other, first, burning=True).hyper[name], anew.hyper[name])
    kept = rule.fit(layout, other, first, burning=False)
    same(kept.hyper[name], first.hyper[name])
    assert (kept.mean - anew.mean).abs().max() > 1e-3


@pytest.mark.parametrize("rule", [Full, OneCoin])
def test_without_a_prior_nothing_has_to_settle(rule: type[Full] | type[OneCoin]) -> None:
    assert rule(0.0).burn_in == 0
    assert rule(0.5).burn_in > 0
    assert (Skill(1.0).burn_in, Hierarchical(1.0).burn_in) == (0, 0)  # their priors follow at every step


@pytest.mark.parametrize("K", [1, 2, 4])
@pytest.mark.parametrize("s", [0.0, 5.0])
def test_one_coin(K: int, s: float) -> None:
    layout, counts = some_counts(K)
    C = dense(layout, counts) if K > 1 else dense(layout, counts + 1)
    counts = counts if K > 1 else counts + 1
    right, n = C.trace(axis1=1, axis2=2), C.sum((1, 2))
    share = right.sum() / n.sum()
    a = np.array([(right[r] + s * share) / (n[r] + s) if n[r] + s else share for r in range(4)])
    wanted = np.empty((4, K, K))
    for r, k, j in np.ndindex(4, K, K):
        wanted[r, k, j] = a[r] if k == j else (1 - a[r]) / (K - 1)
    fitted = OneCoin(s).fit(layout, counts, None, burning=False)
    same(matrices(layout, fitted), wanted)
    if K > 1:
        density = sum(s * (share * math.log(x) + (1 - share) * math.log(1 - x)) for x in a)
        assert fitted.penalty == pytest.approx(density, rel=1e-11)
    same(fitted.scale, np.repeat(1 - a[:, None], K, 1))
    same(fitted.weight, np.full((4, K), s))
    assert fitted.shared


def newton(x: float, right: np.ndarray, n: np.ndarray, offset: np.ndarray, precision: float) -> float:
    def value(v: float) -> float:
        eta = v + offset
        return float((right * eta - n * np.logaddexp(0, eta)).sum() - precision * v**2 / 2)

    s = 1 / (1 + np.exp(-(x + offset)))
    slope = (right - n * s).sum() - precision * x
    step = x + slope / ((n * s * (1 - s)).sum() + precision)
    safe = x + slope / (n.sum() / 4 + precision)
    return step if value(step) >= value(safe) else safe


def test_a_newton_step_equals_its_loops_and_never_loses() -> None:
    rng = np.random.default_rng(3)
    x, offset = rng.normal(0, 3, 1500), rng.normal(0, 1, 3)
    n = rng.gamma(1.0, 4.0, (1500, 3))
    right = n * rng.random((1500, 3)) ** rng.choice([0.1, 1, 9], (1500, 1))
    for precision in (0.05, 1.0, 30.0):
        found = _newton(*map(torch.from_numpy, (x, right, n, offset)), precision)
        same(found, [newton(x[i], right[i], n[i], offset, precision) for i in range(1500)])


def rasch_naive(C: np.ndarray, precision: float, last: tuple[np.ndarray, np.ndarray] | None) -> tuple:
    R, K = C.shape[:2]
    right, n = np.array([np.diag(c) for c in C]), C.sum(2)
    share = (right.sum(0) + 1) / (n.sum(0) + 2)
    easiness, ability = last or (np.log(share / (1 - share)), np.zeros(R))
    for _ in range(3):
        ability = np.array([newton(ability[r], right[r], n[r], easiness, precision) for r in range(R)])
        m = easiness.mean()
        easiness = m + np.array(
            [newton(e - m, right[:, k], n[:, k], ability + m, 100.0) for k, e in enumerate(easiness)]
        )
    B = (C.sum(0) + 0.01) * (1 - np.eye(K))
    B /= B.sum(1, keepdims=True)
    off = ~np.eye(K, dtype=bool)
    density = -precision / 2 * (ability**2).sum() - 50 * ((easiness - easiness.mean()) ** 2).sum()
    return easiness, ability, B, density + 0.01 * np.log(B[off]).sum()


@pytest.mark.parametrize("precision", [0.5, 2.0])
def test_abilities_and_easiness(precision: float) -> None:
    layout, counts = some_counts(3)
    C = dense(layout, counts)
    first = rasch(layout, counts, None, precision)
    for found, wanted in zip(first, rasch_naive(C, precision, None)):
        same(found, wanted)
    fitted = Skill(precision).fit(layout, counts, None, burning=False)
    easiness, ability, B, density = rasch_naive(C, precision, (first[0].numpy(), first[1].numpy()))
    again = Skill(precision).fit(layout, counts, fitted, burning=False)
    a = 1 / (1 + np.exp(-(easiness + ability[:, None])))
    wanted = np.array([np.diag(row) + (1 - row)[:, None] * B for row in a])
    same(matrices(layout, again), wanted)
    same(again.scale, 1 - a)
    same(again.weight, np.zeros((4, 3)))
    assert again.penalty == pytest.approx(density, rel=1e-11)
    assert again.shared
    same(again.table, torch.log(again.mean))
