"""The halves of EM with a network, against loops over labels."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from dubito.data._labelled import Triplets
from dubito.procedures.posterior import count_matrices, log_evidence, posterior, vote_shares, weigh_model

N, R, K = 7, 4, 3


def crowd() -> Triplets:
    """Annotator 3 gave no label, item 6 has none and item 5 one."""
    item = torch.tensor([0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 4, 5])
    who = torch.tensor([0, 1, 2, 0, 1, 1, 2, 0, 2, 0, 1, 2, 1])
    return Triplets(item, who, torch.tensor([0, 0, 2, 1, 1, 2, 1, 0, 1, 2, 2, 0, 2]))


def rows() -> list[tuple[int, int, int]]:
    return list(zip(*(part.tolist() for part in crowd()[:3])))


def test_shares_of_votes() -> None:
    found = vote_shares(crowd(), N, K)
    for n in range(N):
        mine = [y for i, _, y in rows() if i == n]
        wanted = [mine.count(k) / len(mine) if mine else 1 / K for k in range(K)]
        assert found[n].tolist() == pytest.approx(wanted, abs=1e-7)


@pytest.mark.parametrize("strength", [0.0, 0.4, 3.0])
@pytest.mark.parametrize("scale", [1.0, 1e-3])
def test_matrices_from_posteriors(strength: float, scale: float) -> None:
    q = scale * torch.rand(N, K, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    q[[0, 1, 3, 4], 1] = 0.0  # annotator 0 met no item of class 1
    C = np.zeros((R, K, K))
    for n, r, y in rows():
        C[r, :, y] += q[n].numpy()
    P = C.sum(0) + 0.01 * np.eye(K)
    P /= P.sum(1, keepdims=True)
    found = count_matrices(q, crowd(), R, strength=strength)
    for r, k in np.ndindex(R, K):
        total = C[r, k].sum() + strength
        wanted = (C[r, k] + strength * P[k]) / total if total else np.full(K, 1 / K)
        np.testing.assert_allclose(found[r, k], wanted, atol=1e-12)
    if strength == 0:
        assert torch.equal(count_matrices(q, crowd(), R), found)


@pytest.mark.parametrize("each", [False, True])
def test_evidence_and_posterior(each: bool) -> None:
    g = torch.Generator().manual_seed(1)
    A = torch.rand(R, K, K, generator=g, dtype=torch.float64).softmax(-1)
    A[0, 0] = torch.tensor([1.0, 0.0, 0.0])
    log_p = torch.rand(*((N, K) if each else (K,)), generator=g, dtype=torch.float64).log_softmax(-1)
    evidence = log_evidence(A, crowd(), N)
    least = math.log(torch.finfo(torch.float32).tiny)
    for n in range(N):
        logs = [sum(max(math.log(a), least) if (a := float(A[r, k, y])) else least for i, r, y in rows() if i == n)
                for k in range(K)]  # fmt: skip
        ruled_out = [any(i == n and A[r, k, y] == 0 for i, r, y in rows()) for k in range(K)]
        logs = [-1e30 if gone else log for gone, log in zip(ruled_out, logs)]
        assert evidence[n].tolist() == pytest.approx(logs, abs=1e-12)
        joint = np.exp(np.array(logs) + (log_p[n] if each else log_p).numpy())
        np.testing.assert_allclose(posterior(log_p, evidence)[n], joint / joint.sum(), atol=1e-12)


def test_a_class_that_is_ruled_out_loses_to_any_other() -> None:
    """One label per item and people who never err: the label is the class, whatever the network says."""
    label = torch.tensor([0, 1, 2])
    alone = Triplets(torch.arange(3), torch.zeros(3, dtype=torch.int64), label)
    A = torch.eye(3, requires_grad=True).unsqueeze(0)
    log_p = torch.full((3, 3), -120.0) + 120 * torch.eye(3)[[1, 2, 0]]
    assert torch.equal(posterior(log_p, log_evidence(A, alone, 3)), torch.eye(3))
    assert torch.equal(
        weigh_model(log_p, log_evidence(A.detach(), alone, 3)).isfinite(), torch.ones(3, 3).bool()
    )
    two = Triplets(torch.tensor([0, 0, 1]), torch.zeros(3, dtype=torch.int64), torch.tensor([0, 1, 1]))
    found = posterior(torch.zeros(2, 3), log_evidence(A, two, 2))
    torch.testing.assert_close(found[0], torch.tensor([0.5, 0.5, 0.0]))  # none is possible: fewer zeros win
    torch.testing.assert_close(found[1], torch.tensor([0.0, 1.0, 0.0]))
    (gradient,) = torch.autograd.grad(found[:, 1].sum(), A)
    assert bool(gradient.isfinite().all())


@pytest.mark.parametrize("sharpness", [0.15, 1.0, 6.0, 60.0])
def test_the_weight_of_a_network_is_the_likeliest_of_the_grid(sharpness: float) -> None:
    rng = np.random.default_rng(2)
    truth = rng.integers(K, size=200)
    said = np.where(rng.random(200) < 0.8, truth, rng.integers(K, size=200))
    seen = np.where(rng.random(200) < 0.7, truth, rng.integers(K, size=200))
    log_p = torch.from_numpy(sharpness * np.eye(K)[said]).log_softmax(-1)
    evidence = torch.from_numpy(np.log(np.where(np.eye(K)[seen] > 0, 0.7, 0.15)))
    best, wanted = -math.inf, None
    for b in [0.125 * 2 ** (i / 2) for i in range(11)]:
        p = np.exp(b * log_p.numpy())
        p /= p.sum(1, keepdims=True)
        fit = np.log((p * np.exp(evidence.numpy())).sum(1)).sum()
        if fit > best:
            best, wanted = fit, p
    np.testing.assert_allclose(weigh_model(log_p, evidence).exp(), wanted, atol=1e-12)
