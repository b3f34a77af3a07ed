"""Numbered results of tanno2019, checked on the library's functions."""

from __future__ import annotations

import math

import pytest
import torch

import dubito
from dubito import metrics, noise, penalties


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def stochastic(shape, seed):
    A = torch.rand(*shape, generator=seeded(seed), dtype=torch.float64)
    return A / A.sum(-1, keepdim=True)


def dominant(K, seed, R=None):
    """Random matrices whose mean is dominant: mixed with the identity until it is."""
    A = stochastic((R or 1, K, K), seed)
    for mix in range(1, 100):
        mixed = A * (1 - mix / 100) + torch.eye(K) * mix / 100
        if noise.is_dominant(mixed.mean(0)):
            return mixed if R else mixed[0]
    raise AssertionError


def crowd(N, R, K, seed=0):
    """Logits, a channel in float64 and a table of labels with gaps (-1)."""
    logits = torch.randn(N, K, generator=seeded(seed), dtype=torch.float64)
    channel = dubito.AnnotatorConfusion(R, K, init="paper").double()
    with torch.no_grad():
        channel.weight += torch.randn(R, K, K, generator=seeded(seed + 1), dtype=torch.float64)
    labels = torch.randint(-1, K, (N, R), generator=seeded(seed + 2))
    return logits, channel, labels


def data_term(logits, channel, labels):
    """Mean over items of the sum over their given labels."""
    R = labels.shape[1]
    log_q = channel(logits.log_softmax(-1).unsqueeze(1), torch.arange(R))
    return dubito.nll(log_q, labels, ignore_index=-1, reduction="sum") / len(logits)


@pytest.mark.paper(
    "tanno2019 eq. 3", "tanno2019 eq. 4", "tanno2019 listing 1", "tanno2019 listing 2", "tanno2019 listing 3"
)
def test_total_loss_equals_the_listings_in_plain_loops():
    logits, channel, labels = crowd(6, 3, 4)
    W, p = channel.weight.detach(), logits.softmax(-1)
    A = torch.log1p(W.exp())
    A = A / A.sum(-1, keepdim=True)
    total = 0.0
    for n in range(6):
        for r in range(3):
            if labels[n, r] >= 0:
                total -= math.log(sum(float(p[n, i] * A[r, i, labels[n, r]]) for i in range(4)))
    assert float(data_term(logits, channel, labels).detach()) == pytest.approx(total / 6, rel=1e-10)
    traces = [sum(float(A[r, i, i]) for i in range(4)) for r in range(3)]
    assert float(penalties.trace(channel, weight=0.01).detach()) == pytest.approx(
        0.01 * sum(traces) / 3, rel=1e-10
    )
    # Sums over items and annotators, as printed in the text, are N times this loss with lambda N/R.
    printed = total + 0.01 * 6 / 3 * sum(traces)
    ours = data_term(logits, channel, labels) + penalties.trace(channel, weight=0.01)
    assert float(6 * ours.detach()) == pytest.approx(printed, rel=1e-10)


@pytest.mark.paper("tanno2019 listing 2")
@pytest.mark.parametrize(("K", "diagonal"), [(2, 0.995), (8, 0.965), (10, 0.956), (20, 0.911), (100, 0.664)])
def test_the_start_of_the_listing(K, diagonal):
    channel = dubito.AnnotatorConfusion(2, K, init="paper")
    assert torch.equal(channel.weight.detach()[0], 6 * torch.eye(K) - 5)
    assert channel.skills().tolist() == pytest.approx([diagonal] * 2, abs=6e-4)


@pytest.mark.paper("tanno2019 eq. 1", "tanno2019 eq. 2")
def test_given_the_truth_annotators_are_independent():
    A, n = noise.pairwise_flippers(2, 3, 0.6, seeded(1)), 30_000
    _, _, labels = noise.simulate(torch.zeros(n, dtype=torch.long), A, seeded(2))
    pairs = labels.view(n, 2)
    joint = torch.bincount(pairs[:, 0] * 3 + pairs[:, 1], minlength=9).view(3, 3).double() / n
    expected = torch.outer(A[0, 0], A[1, 0])
    assert bool(((joint - expected).abs() <= 4 * (expected * (1 - expected) / n).sqrt() + 1e-12).all())


@pytest.mark.paper("tanno2019 eq. 5", "tanno2019 lemma 1")
@pytest.mark.parametrize("K", [2, 3, 6])
def test_one_annotator_the_true_matrix_has_the_least_trace(K):
    """A = P A_hat with P the network's confusion: every diagonal entry of a dominant A_hat is at least A's."""
    for seed in range(50):
        estimate = dominant(K, seed)
        P = stochastic((K, K), seed + 1000)
        A = P @ estimate
        assert bool((A.diagonal() < estimate.diagonal()).all())
        assert float(penalties.trace(A)) < float(penalties.trace(estimate))
        # Equality for a perfect network only.
        near = 0.999 * torch.eye(K).double() + 0.001 * P
        gap = float(penalties.trace(estimate, weight=1.0) - penalties.trace(near @ estimate, weight=1.0))
        assert 0 < gap < 0.01 * K


@pytest.mark.paper("tanno2019 theorem 1")
def test_many_annotators_the_true_matrices_have_the_least_mean_trace():
    """Single annotators need not be dominant as long as their mean is."""
    loose = 0
    for seed in range(50):
        estimates = dominant(4, seed, R=5)
        loose += not all(noise.is_dominant(one) for one in estimates)
        A = stochastic((4, 4), seed + 1000) @ estimates
        assert float(penalties.trace(A)) < float(penalties.trace(estimates))
    assert loose > 25


@pytest.mark.paper("tanno2019 alg. 1", "tanno2019 fig. 2")
def test_joint_training_recovers_network_and_matrices_from_single_labels():
    """Three well-separated clusters, three annotators, one label each: start near identity, minimise with trace."""
    K, N = 3, 3_000
    truth = torch.arange(N) % K
    x = torch.eye(K)[truth] * 4 + torch.randn(N, K, generator=seeded(3))
    A = noise.pairwise_flippers(3, K, 0.75, seeded(4), dominant=True)
    items, annotators, labels = noise.simulate(truth, A, seeded(5), 1)
    net, channel = torch.nn.Linear(K, K), dubito.AnnotatorConfusion(3, K, init="paper")
    with torch.no_grad():
        net.weight.copy_(0.1 * torch.eye(K))
        net.bias.zero_()
    before = metrics.confusion_error(A, channel.matrices().detach())
    optimiser = torch.optim.Adam([*net.parameters(), *channel.parameters()], lr=0.05)
    for _ in range(300):
        log_q = channel(net(x)[items].log_softmax(-1), annotators)
        loss = dubito.nll(log_q, labels) + penalties.trace(channel, weight=0.01)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert metrics.confusion_error(A, channel.matrices().detach()) < 0.02 < before
    assert metrics.accuracy(net(x).detach(), truth) > 0.95
