"""Penalties against transcriptions, and the papers' results on the trace."""

from __future__ import annotations

from functools import partial
from itertools import combinations

import pytest
import torch
from torch.autograd import gradcheck

from dubito import DubitoError, penalties
from dubito.channels import AnnotatorConfusion, FixedTransition, LearnedTransition, PooledConfusion

R, K = 3, 4


def source(seed=0):
    return torch.Generator().manual_seed(seed)


def stochastic(*shape, seed=0, sharpness=1.0):
    z = sharpness * torch.randn(*shape, generator=source(seed), dtype=torch.float64)
    return z.softmax(-1)


def dominant(A):
    """Column-wise: right labels of class c outnumber those of every other class called c."""
    off = A - torch.diag_embed(A.diagonal(dim1=-2, dim2=-1))
    return bool((A.diagonal(dim1=-2, dim2=-1) > off.amax(-2)).all())


def shaken(channel):
    channel = channel.double()
    with torch.no_grad():
        for p in channel.parameters():
            p.add_(torch.randn(p.shape, generator=source(3), dtype=torch.float64))
    return channel


@pytest.mark.rel
@pytest.mark.paper("tanno2019 listing 1")
def test_transcriptions():
    """Scorecard 1: mean over annotators of trace, squared entries and log |det|."""
    A = stochastic(R, K, K)
    traces = sum(float(A[r, i, i]) for r in range(R) for i in range(K)) / R
    squares = sum(float(A[r, i, j]) ** 2 for r in range(R) for i in range(K) for j in range(K)) / R
    volumes = sum(float(torch.linalg.det(A[r]).abs().log()) for r in range(R)) / R
    gram = sum(A[r].T @ A[r] for r in range(R)) / R + 0.01 * torch.eye(K, dtype=torch.float64)
    assert float(penalties.trace(A, weight=0.3)) == pytest.approx(0.3 * traces, rel=1e-10)
    assert float(penalties.frobenius(A, weight=0.3)) == pytest.approx(0.3 * squares, rel=1e-10)
    assert float(penalties.log_det(A, weight=0.3, ridge=0.0)) == pytest.approx(0.3 * volumes, rel=1e-9)
    stacked = penalties.log_det(A, weight=0.3, kind="stacked", ridge=0.01)
    assert float(stacked) == pytest.approx(-0.3 * float(torch.linalg.det(gram).log()), rel=1e-10)


@pytest.mark.rel
def test_gradcheck():
    """Scorecard 2: derivatives in the matrices."""
    A = stochastic(R, K, K).requires_grad_()
    for penalty in (penalties.trace, penalties.frobenius, penalties.log_det):
        assert gradcheck(partial(penalty, weight=1.0), (A,))
    assert gradcheck(partial(penalties.log_det, weight=1.0, kind="stacked"), (A,))


@pytest.mark.parametrize(
    "channel",
    [
        LearnedTransition(K),
        FixedTransition(stochastic(K, K)),
        AnnotatorConfusion(R, K),
        PooledConfusion(R, K),
        PooledConfusion(R, K, rank=2),
    ],
    ids=["learned", "fixed", "annotators", "pooled", "pooled rank 2"],
)
def test_channels_and_matrices_agree(channel):
    channel = shaken(channel)
    for penalty in (penalties.trace, penalties.frobenius, penalties.log_det):
        found, wanted = penalty(channel, weight=0.5), penalty(channel.matrices(), weight=0.5)
        assert found.item() == pytest.approx(wanted.item(), rel=1e-8)


@pytest.mark.rel
def test_known_values():
    """Scorecard 3: at the identity and at uniform rows."""
    eye, flat = torch.eye(K).expand(R, K, K), torch.full((R, K, K), 1 / K)
    assert penalties.trace(eye, weight=1.0).item() == K
    assert penalties.trace(flat, weight=1.0).item() == pytest.approx(1)
    assert penalties.frobenius(eye, weight=1.0).item() == K
    assert penalties.frobenius(flat, weight=1.0).item() == pytest.approx(1)
    for kind in penalties.KINDS:
        assert penalties.log_det(eye, weight=1.0, ridge=0.0, kind=kind).item() == pytest.approx(0)


@pytest.mark.rel
def test_log_det_of_a_singular_matrix():
    """Scorecard 4: the ridge bounds value and gradient where two classes look the same."""
    flat = torch.full((R, K, K), 1 / K, requires_grad=True)
    for kind in penalties.KINDS:
        value = penalties.log_det(flat, weight=1.0, kind=kind)
        (gradient,) = torch.autograd.grad(value, flat)
        assert value.isfinite()
        assert gradient.isfinite().all()


@pytest.mark.rel
def test_batch_trace_is_unbiased():
    """Scorecard 3: averaged over every batch of two items the estimate is the trace over all annotators."""
    channel = shaken(AnnotatorConfusion(R, K))
    labels = [(0, 0), (0, 1), (1, 1), (2, 1), (2, 2), (2, 0), (3, 1), (4, 2)]  # item, annotator
    counts = torch.tensor([2, 4, 2])
    batches = list(combinations(range(5), 2))
    total = 0.0
    for batch in batches:
        ids = torch.tensor([r for item, r in labels if item in batch])
        total += penalties.trace(channel, weight=0.01, annotators=ids, counts=counts, fraction=2 / 5).item()
    assert total / len(batches) == pytest.approx(penalties.trace(channel, weight=0.01).item(), rel=1e-10)


def test_batch_trace_of_nobody():
    nobody = torch.zeros(0, dtype=torch.long)
    found = penalties.trace(
        AnnotatorConfusion(R, K), annotators=nobody, counts=torch.ones(R), fraction=0.1, weight=1.0
    )
    assert found.item() == 0.0


@pytest.mark.rel
@pytest.mark.paper("tanno2019 lemma 1", "tanno2019 eq. 5")
def test_lemma_1():
    """Scorecard 3: A = P A_hat with dominant A and A_hat: each a_ii <= a_hat_ii, so tr(A) <= tr(A_hat)."""
    cases = 0
    for seed in range(400):
        A_hat, P = stochastic(K, K, seed=seed, sharpness=2), stochastic(K, K, seed=seed + 1000, sharpness=4)
        A_hat, P = (A_hat + torch.eye(K)) / 2, (P + torch.eye(K)) / 2
        A = P @ A_hat
        if not (dominant(A) and dominant(A_hat)):
            continue
        cases += 1
        assert (A.diagonal() <= A_hat.diagonal() + 1e-12).all()
        assert penalties.trace(A, weight=1.0) < penalties.trace(A_hat, weight=1.0)
    assert cases >= 100


@pytest.mark.rel
@pytest.mark.paper("tanno2019 theorem 1")
def test_theorem_1():
    """Scorecard 3: of all matrices that explain the labels as well, the true ones have the least mean trace.

    A classifier with confusion P explains the labels with A_hat_r = P^-1 A_r. Near the identity those are
    stochastic and their mean is dominant; every one of them has a larger mean trace, P = I excepted.
    """
    A = (stochastic(R, K, K, seed=1, sharpness=0.3) + torch.eye(K)) / 2
    assert dominant(A.mean(0))
    least, cases = penalties.trace(A, weight=1.0), 0
    for seed in range(300):
        P = 0.9 * torch.eye(K) + 0.1 * stochastic(K, K, seed=seed)
        A_hat = torch.linalg.solve(P, A)
        assert torch.allclose(A_hat.sum(-1), torch.ones(R, K, dtype=torch.float64))
        if (A_hat < 0).any() or not dominant(A_hat.mean(0)):
            continue
        cases += 1
        assert penalties.trace(A_hat, weight=1.0) > least + 1e-6
    assert cases >= 100
    assert torch.equal(penalties.trace(torch.linalg.solve(torch.eye(K).double(), A), weight=1.0), least)


@pytest.mark.paper("tanno2019 theorem 1")
def test_theorem_needs_dominance():
    """A classifier that permutes the classes explains perfect annotators with a smaller trace: not dominant."""
    A, P = torch.eye(K).double().expand(R, K, K), torch.eye(K).double().roll(1, 0)
    A_hat = torch.linalg.solve(P, A)
    assert not dominant(A_hat.mean(0))
    assert penalties.trace(A_hat, weight=1.0) == 0


@pytest.mark.rel
@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: penalties.trace(torch.eye(3), weight=-1.0), "at least 0"),
        (lambda: penalties.trace(torch.ones(2, 3)), "square"),
        (lambda: penalties.log_det(torch.eye(3), kind="area"), "volume or stacked"),
        (lambda: penalties.trace(AnnotatorConfusion(2, 3, sparse=True)), "row-sparse"),
        (lambda: penalties.frobenius(AnnotatorConfusion(2, 3, sparse=True)), "row-sparse"),
        (lambda: penalties.trace(AnnotatorConfusion(2, 3), annotators=torch.tensor([0])), "counts"),
        (
            lambda: penalties.trace(
                AnnotatorConfusion(2, 3), annotators=torch.tensor([0]), counts=torch.ones(2), fraction=0.0
            ),
            "positive fraction",
        ),
        (
            lambda: penalties.trace(
                LearnedTransition(3), annotators=torch.tensor([0]), counts=torch.ones(1), fraction=0.1
            ),
            "with annotators",
        ),
    ],
)
def test_refusals(call, words):
    """Scorecard 13: what has no meaning is refused in a sentence."""
    with pytest.raises(DubitoError, match=words):
        call()
