"""Every channel keeps the exported contract, and refuses what it should."""

from __future__ import annotations

import pytest
import torch

from dubito import DubitoError
from dubito.channels import AnnotatorConfusion, FixedTransition, LearnedTransition, PooledConfusion
from dubito.testing import check_channel

K, R = 4, 3


def stochastic(*shape, seed=0, zeros=False):
    T = torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    if zeros:
        T = T * (T > 0.5) + torch.eye(shape[-1])
    return T / T.sum(-1, keepdim=True)


def shaken(channel):
    """The channel away from its start, where all rows are alike."""
    source = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for p in channel.parameters():
            p.add_(torch.randn(p.shape, generator=source))
    return channel


SINGLE = {
    "fixed": lambda: FixedTransition(stochastic(K, K)),
    "fixed with zeros": lambda: FixedTransition(stochastic(K, K, zeros=True)),
    "identity": lambda: FixedTransition(torch.eye(K)),
    "learned": lambda: shaken(LearnedTransition(K)),
    "learned at start": lambda: LearnedTransition(K, init="paper"),
}
CROWD = {
    "annotators": lambda: shaken(AnnotatorConfusion(R, K)),
    "annotators at start": lambda: AnnotatorConfusion(R, K, init="paper"),
    "many annotators": lambda: shaken(AnnotatorConfusion(50, K)),
    "sparse": lambda: shaken(AnnotatorConfusion(R, K, sparse=True)),
    "pooled": lambda: shaken(PooledConfusion(R, K)),
    "pooled rank 2": lambda: shaken(PooledConfusion(R, K, rank=2)),
}


@pytest.mark.rel
@pytest.mark.parametrize("name", SINGLE)
def test_single(name):
    """Scorecard 1, 2, 4, 6, 11, 12, 24 for one matrix."""
    assert check_channel(SINGLE[name](), K)["finite"] >= 100


@pytest.mark.rel
@pytest.mark.parametrize("name", CROWD)
def test_crowd(name):
    """Scorecard 1, 2, 4, 6, 11, 12, 24 for one matrix per annotator."""
    channel = CROWD[name]()
    assert check_channel(channel, K, channel.num_annotators)["finite"] >= 100


def test_per_annotator_flag():
    assert not FixedTransition(torch.eye(2)).per_annotator
    assert not LearnedTransition(2).per_annotator
    assert AnnotatorConfusion(2, 2).per_annotator
    assert PooledConfusion(2, 2).per_annotator


def test_contract_catches_a_transposed_channel():
    class Transposed(FixedTransition):
        def log_matrices(self):
            return self.matrix.log().T

    with pytest.raises(AssertionError, match="q = p T"):
        check_channel(Transposed(stochastic(K, K)), K)


def test_contract_allows_idle_parameters():
    class Idle(FixedTransition):
        def __init__(self, T):
            super().__init__(T)
            self.idle = torch.nn.Parameter(torch.zeros(2))

        def forward(self, log_p):
            log_q = super().forward(log_p)
            return log_q + 0 * self.idle.sum() if log_p.dtype == torch.float64 else log_q

    assert check_channel(Idle(stochastic(K, K)), K)["finite"] >= 100


def test_contract_catches_probability_space():
    class Probabilities(FixedTransition):
        def forward(self, log_p):
            return (log_p.exp() @ self.matrix.to(log_p.dtype)).log()

    with pytest.raises(AssertionError, match="finite"):
        check_channel(Probabilities(torch.eye(K)), K)


@pytest.mark.rel
@pytest.mark.parametrize(
    ("T", "words"),
    [
        (torch.ones(2, 3) / 3, "square"),
        (torch.ones(3), "square"),
        (torch.tensor([[0.5, 0.4], [0.5, 0.5]]), "not stochastic at row 0: expected a sum of 1, got 0.9"),
        (torch.tensor([[0.9, 0.1], [0.5, 0.5]]).T, "not stochastic"),
        (torch.tensor([[1.5, -0.5], [0.5, 0.5]]), "negative"),
        (torch.tensor([[float("nan"), 1.0], [0.5, 0.5]]), "not finite"),
        (torch.eye(2).long(), "floating"),
        (torch.eye(2).expand(3, 2, 2), "one matrix"),
    ],
)
def test_bad_matrices(T, words):
    """Scorecard 15: matrices not square, not stochastic, negative, NaN are refused."""
    with pytest.raises(DubitoError, match=words):
        FixedTransition(T)


def start(init):
    return AnnotatorConfusion(2, 3, init=init)


@pytest.mark.rel
@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: LearnedTransition(3)(torch.zeros(2, 4)), "expected 3 classes, got 4"),
        (lambda: LearnedTransition(3)(torch.zeros(2, 3).long()), "floating"),
        (lambda: start("default")(torch.zeros(2, 3), torch.zeros(2).long()), "unknown init"),
        (lambda: start(torch.eye(2)), "wrong number of classes"),
        (lambda: start(torch.eye(3).expand(4, 3, 3)), "one per annotator: expected 2, got 4"),
        (lambda: start(torch.ones(3, 3)), "not stochastic"),
        (lambda: AnnotatorConfusion(2, 3, diagonal=1.0), "strictly between 0 and 1"),
        (lambda: AnnotatorConfusion(0, 3), "num_annotators is too small"),
        (lambda: PooledConfusion(2, 1), "two classes"),
        (lambda: PooledConfusion(2, 3, rank=0), "rank is too small"),
        (lambda: PooledConfusion(2, 3, diagonal=0.0), "strictly between 0 and 1"),
    ],
)
def test_refusals(call, words):
    """Scorecard 13: wrong sizes and starts are refused in a sentence."""
    with pytest.raises(DubitoError, match=words):
        call()


@pytest.mark.rel
@pytest.mark.parametrize("make", [AnnotatorConfusion, PooledConfusion])
def test_bad_annotators(make):
    """Scorecard 14: unknown ids are refused, with their place."""
    channel, log_p = make(2, 3), torch.zeros(2, 3).log_softmax(-1)
    with pytest.raises(DubitoError, match=r"unknown annotator at annotators\[1\]: expected 0 to 1, got 2"):
        channel(log_p, torch.tensor([0, 2]))
    with pytest.raises(DubitoError, match=r"annotators\[0\]: expected 0 to 1, got -1"):
        channel(log_p, torch.tensor([-1, 0]))
    for dtype in (torch.float32, torch.bool):
        with pytest.raises(DubitoError, match="integers"):
            channel(log_p, torch.zeros(2, dtype=dtype))
