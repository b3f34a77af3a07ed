"""Annotators over a pool of confusions: transcription, size, and that it learns from few labels."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from dubito.channels import PooledConfusion

R, K, M = 3, 4, 2


def source(seed=0):
    return torch.Generator().manual_seed(seed)


def shaken(channel):
    channel = channel.double()
    with torch.no_grad():
        for p in channel.parameters():
            p.add_(torch.randn(p.shape, generator=source(3), dtype=torch.float64))
    return channel


def sigmoid(x):
    return 1 / (1 + float(torch.exp(-x)))


@pytest.mark.rel
def test_transcription_of_the_pool():
    """Scorecard 1: A = d I + (1 - d) E with E zero on its diagonal, d = sigmoid(skill + ease)."""
    channel = shaken(PooledConfusion(R, K))
    A, pool = channel.matrices().detach(), channel.pool.detach()
    for r in range(R):
        for i in range(K):
            d = sigmoid(channel.skill.detach()[r] + channel.ease.detach()[i])
            others = [float(pool[i, j].exp()) for j in range(K) if j != i]
            for j in range(K):
                wanted = d if i == j else (1 - d) * float(pool[i, j].exp()) / sum(others)
                assert float(A[r, i, j]) == pytest.approx(wanted, rel=1e-10)


@pytest.mark.rel
def test_transcription_with_a_rank():
    """Scorecard 1: A = d I + (1 - d) G_r H with stochastic G_r and H."""
    channel = shaken(PooledConfusion(R, K, rank=M))
    A = channel.matrices().detach()
    H = channel.shapes.detach().softmax(-1)
    for r in range(R):
        G = (channel.kinds.detach() + channel.tilt.detach()[r]).softmax(-1)
        d = torch.sigmoid(channel.skill.detach()[r] + channel.ease.detach())
        wanted = d.diag() + (1 - d)[:, None] * (G @ H)
        torch.testing.assert_close(A[r], wanted, rtol=1e-10, atol=0)
        assert torch.linalg.matrix_rank(wanted - d.diag(), rtol=1e-10) == M


@pytest.mark.parametrize("rank", [None, M])
def test_diagonals_without_matrices(rank):
    channel, ids = shaken(PooledConfusion(R, K, rank=rank)), torch.tensor([[2, 0], [1, 1]])
    wanted = channel.matrices().diagonal(dim1=1, dim2=2)
    torch.testing.assert_close(channel.diagonals(), wanted, rtol=1e-10, atol=0)
    torch.testing.assert_close(channel.diagonals(ids), wanted[ids], rtol=1e-10, atol=0)
    torch.testing.assert_close(channel.log_matrices(ids), channel.log_matrices()[ids], rtol=1e-10, atol=0)
    torch.testing.assert_close(channel.skills(), wanted.mean(-1), rtol=1e-10, atol=0)


@pytest.mark.parametrize("classes", [2, 10, 500])
def test_start(classes):
    channel = PooledConfusion(5, classes, diagonal=0.8)
    assert channel.skills().detach().tolist() == pytest.approx([0.8] * 5, abs=1e-6)
    ranked = PooledConfusion(5, classes, diagonal=0.8, rank=3)
    assert 0.8 < ranked.skills().min().item() < 0.8 + 0.2 * 2.0 / classes


def test_start_from_a_generator():
    first, again = (PooledConfusion(2, 5, rank=2, generator=source(1)) for _ in range(2))
    other = PooledConfusion(2, 5, rank=2, generator=source(2))
    assert torch.equal(first.kinds, again.kinds)
    assert not torch.equal(first.kinds, other.kinds)


@pytest.mark.rel
def test_many_classes_stay_small():
    """Scorecard 33: 1,000 classes and 200 annotators: no tensor of a step reaches classes^2 elements."""
    channel, largest = PooledConfusion(200, 1000, rank=4), [0]

    def note(x):
        largest[0] = max(largest[0], x.numel())
        return x

    log_p = torch.randn(16, 1000, generator=source()).log_softmax(-1).requires_grad_()
    ids = torch.randint(200, (16,), generator=source())
    with torch.autograd.graph.saved_tensors_hooks(note, lambda x: x):
        loss = F.nll_loss(channel(log_p, ids), torch.zeros(16).long())
    loss.backward()
    assert largest[0] <= 16 * 1000 * 4
    assert all(p.grad.isfinite().all() for p in channel.parameters())


def test_pool_learns_from_few_labels_each():
    """30 classes, 60 annotators with 40 labels each: the shared confusions and the skills are found."""
    classes, annotators, labels = 30, 60, 40
    skills = torch.linspace(0.3, 0.95, annotators)
    truth = torch.randint(classes, (annotators * labels,), generator=source(1))
    ids = torch.arange(annotators).repeat_interleave(labels)
    right = torch.rand(len(truth), generator=source(2)) < skills[ids]
    observed = torch.where(right, truth, (truth + 1) % classes)
    log_p = F.one_hot(truth, classes).float().mul(20).log_softmax(-1)
    channel = PooledConfusion(annotators, classes)
    optimizer = torch.optim.Adam(channel.parameters(), lr=0.1)
    for _ in range(100):
        optimizer.zero_grad()
        F.nll_loss(channel(log_p, ids), observed).backward()
        optimizer.step()
    shares = (right.float().reshape(annotators, labels)).mean(1)
    assert torch.corrcoef(torch.stack([channel.skills().detach(), shares]))[0, 1] > 0.95
    next_class = channel.matrices().detach().mean(0)
    error = next_class[torch.arange(classes), (torch.arange(classes) + 1) % classes]
    assert error.mean().item() == pytest.approx(1 - shares.mean().item(), abs=0.05)
