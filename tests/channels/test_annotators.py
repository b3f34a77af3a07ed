"""One confusion matrix per annotator: start, gathering, the papers' equations, row-sparse gradients."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch.nn import functional as F

from dubito.channels import AnnotatorConfusion, LearnedTransition
from dubito.errors import DubitoError
from dubito.penalties import trace

R, K = 3, 4


def source(seed=0):
    return torch.Generator().manual_seed(seed)


def log_probs(*shape, seed=0):
    return (3 * torch.randn(*shape, generator=source(seed), dtype=torch.float64)).log_softmax(-1)


def shaken(channel, seed=3):
    channel = channel.double()
    with torch.no_grad():
        channel.weight.add_(torch.randn(channel.weight.shape, generator=source(seed), dtype=torch.float64))
    return channel


@pytest.mark.rel
@pytest.mark.paper("tanno2019 listing 2")
@pytest.mark.parametrize(
    ("classes", "diagonal"),
    [(2, 0.995), (8, 0.965), (10, 0.956), (20, 0.911), (100, 0.664), (1000, 0.164)],
)
def test_start_of_the_paper(classes, diagonal):
    """Scorecard 1: W = 6 I - 5 exactly; its diagonal fades with the number of classes."""
    channel = AnnotatorConfusion(2, classes, init="paper")
    assert torch.equal(channel.weight[1], 6 * torch.eye(classes) - 5)
    assert channel.skills().detach().tolist() == pytest.approx([diagonal] * 2, abs=6e-4)


@pytest.mark.parametrize("classes", [2, 10, 100, 1000])
@pytest.mark.parametrize("diagonal", [0.3, 0.9, 0.99])
def test_start_keeps_its_diagonal(classes, diagonal):
    channel = AnnotatorConfusion(2, classes, diagonal=diagonal)
    assert torch.equal(channel.weight.detach().diagonal(dim1=1, dim2=2), torch.ones(2, classes))
    assert channel.skills().detach().tolist() == pytest.approx([diagonal] * 2, abs=1e-5)
    off = channel.matrices()[0, 0, 1:].detach()
    assert off.std(correction=0) < 1e-7


def test_start_from_matrices():
    A = log_probs(R, K, K, seed=5).exp()
    torch.testing.assert_close(AnnotatorConfusion(R, K, init=A).matrices().double(), A, rtol=1e-4, atol=1e-5)
    one = AnnotatorConfusion(R, K, init=torch.eye(K))
    assert one.weight.isfinite().all()  # zeros of the given matrices can still be learned away
    torch.testing.assert_close(one.matrices(), torch.eye(K).expand(R, K, K), rtol=0, atol=1e-5)
    assert AnnotatorConfusion(2, 1).matrices().tolist() == [[[1.0]], [[1.0]]]


@pytest.mark.rel
@pytest.mark.paper("tanno2019 eq. 2", "tanno2019 listing 2")
def test_transcription():
    """Scorecard 1: A = softplus(W) / row sums, q_j = sum_i p_i A[r, i, j], orientation included."""
    channel, log_p, ids = shaken(AnnotatorConfusion(R, K)), log_probs(5, K), torch.tensor([2, 0, 2, 1, 1])
    W = channel.weight.detach()
    for n, r in enumerate(ids.tolist()):
        for j in range(K):
            total = 0.0
            for i in range(K):
                row = torch.log1p(torch.exp(W[r, i]))
                total += float(log_p[n, i].exp() * row[j] / row.sum())
            assert channel(log_p, ids)[n, j].exp().item() == pytest.approx(total, rel=1e-10)
    torch.testing.assert_close(channel.skills(), channel.matrices().diagonal(dim1=1, dim2=2).mean(-1))


@pytest.mark.rel
@pytest.mark.paper("tanno2019 eq. 1", "tanno2019 eq. 2", "tanno2019 eq. 3")
def test_likelihood_of_several_labels():
    """Scorecard 1: annotators are independent given the image: the product over r of sum_y A_r[y, label] p(y)."""
    channel, log_p, labels = shaken(AnnotatorConfusion(R, K)), log_probs(K), torch.tensor([1, 3, 0])
    A, p = channel.matrices(), log_p.exp()
    likelihood = 1.0
    for r in range(R):
        likelihood *= sum((A[r, y, labels[r]] * p[y]).item() for y in range(K))
    log_q = channel(log_p, torch.arange(R))
    assert F.nll_loss(log_q, labels, reduction="sum").item() == pytest.approx(
        -torch.tensor(likelihood).log().item(), rel=1e-6
    )


@pytest.mark.rel
@pytest.mark.paper("tanno2019 eq. 4", "tanno2019 listing 1", "tanno2019 listing 3")
def test_paper_objective():
    """Scorecard 1: eq. 4 by loops over items and annotators, and the scaling of the listings."""
    channel, log_p = shaken(AnnotatorConfusion(R, K)), log_probs(5, K)
    labels = torch.tensor([[0, -1, 2], [3, 1, -1], [-1, -1, 0], [2, 2, 2], [-1, 0, -1]])
    A, p, lam = channel.matrices(), log_p.exp(), 0.01
    data = sum(
        -float((p[n] @ A[r])[labels[n, r]].log()) for n in range(5) for r in range(R) if labels[n, r] >= 0
    )
    traces = sum(float(A[r, i, i]) for r in range(R) for i in range(K))
    item, annotator = (labels >= 0).nonzero(as_tuple=True)
    log_q = channel(log_p[item], annotator)
    nll = F.nll_loss(log_q, labels[item, annotator], reduction="sum")
    equation_4 = nll + R * trace(channel, weight=lam)
    assert equation_4.item() == pytest.approx(data + lam * traces, rel=1e-10)
    listing = nll / 5 + trace(channel, weight=lam)
    assert listing.item() == pytest.approx(data / 5 + lam * traces / R, rel=1e-10)
    table = channel(log_p.unsqueeze(1), torch.arange(R))
    assert table.shape == (5, R, K)
    torch.testing.assert_close(table[item, annotator], log_q, rtol=1e-12, atol=0)


@pytest.mark.rel
def test_one_annotator_is_a_learned_transition():
    """Scorecard 3: with one annotator the channel is LearnedTransition, in value and gradient."""
    one, learned, log_p = shaken(AnnotatorConfusion(1, K)), LearnedTransition(K).double(), log_probs(5, K)
    with torch.no_grad():
        learned.weight.copy_(one.weight[0])
    a, b = one(log_p, torch.zeros(5).long()), learned(log_p)
    torch.testing.assert_close(a, b, rtol=1e-12, atol=0)
    a[:, 1].sum().backward()
    b[:, 1].sum().backward()
    torch.testing.assert_close(one.weight.grad[0], learned.weight.grad, rtol=1e-10, atol=1e-14)


def test_gathering_order_changes_nothing():
    """Normalising before or after gathering, few annotators or many: the same numbers."""
    many, log_p = shaken(AnnotatorConfusion(40, K)), log_probs(50, K)
    ids = torch.randint(40, (50,), generator=source(1))
    whole = many(log_p, ids)
    parts = torch.cat([many(log_p[n : n + 5], ids[n : n + 5]) for n in range(0, 50, 5)])
    torch.testing.assert_close(whole, parts, rtol=1e-12, atol=0)
    torch.testing.assert_close(many(log_p, ids.int()), whole, rtol=1e-12, atol=0)
    torch.testing.assert_close(many.diagonals(ids), many.diagonals()[ids], rtol=1e-12, atol=0)


@pytest.mark.rel
def test_sparse_gradient_equals_dense():
    """Scorecard 2: row-sparse gradients hold exactly the rows that occur, with the dense values."""
    dense = shaken(AnnotatorConfusion(100, K))
    sparse = AnnotatorConfusion(100, K, sparse=True).double()
    sparse.load_state_dict(copy.deepcopy(dense.state_dict()))
    log_p, ids = log_probs(6, K), torch.tensor([7, 3, 7, 99, 0, 3])
    for channel in (dense, sparse):
        channel(log_p, ids)[:, 2].sum().backward()
    gradient = sparse.weight.grad.coalesce()
    assert gradient.indices().tolist() == [[0, 3, 7, 99]]
    torch.testing.assert_close(gradient.to_dense(), dense.weight.grad, rtol=1e-10, atol=1e-14)


def test_sparse_step_leaves_the_others_alone():
    channel = AnnotatorConfusion(1000, K, sparse=True)
    optimizer = torch.optim.SparseAdam(channel.parameters(), lr=0.1)
    before = channel.weight.detach().clone()
    ids, counts = torch.tensor([5, 5, 400]), torch.full((1000,), 2)
    loss = -channel(log_probs(3, K).float(), ids)[:, 0].mean()
    loss = loss + trace(channel, weight=0.01, annotators=ids, counts=counts, fraction=0.1)
    loss.backward()
    optimizer.step()
    moved = (channel.weight.detach() != before).flatten(1).any(1).nonzero().flatten()
    assert moved.tolist() == [5, 400]


def test_pixels_share_a_matrix_per_mask():
    """(N, H, W, K) with (N, 1, 1): one annotator per mask."""
    channel, log_p, ids = shaken(AnnotatorConfusion(R, K)), log_probs(2, 3, 5, K), torch.tensor([2, 0])
    found = channel(log_p, ids[:, None, None])
    assert found.shape == log_p.shape
    torch.testing.assert_close(found[1, 2, 4], channel(log_p[1, 2, 4], ids[1]), rtol=1e-12, atol=0)


@pytest.mark.parametrize("sparse", [False, True])
def test_given_labels_alone(sparse):
    """The likelihood of the labels is what all classes give at them, in value and gradient; extreme rows too."""
    g = torch.Generator().manual_seed(3)
    channel = AnnotatorConfusion(50, K, sparse=sparse).double()
    with torch.no_grad():
        channel.weight += torch.randn(channel.weight.shape, generator=g, dtype=torch.float64)
        channel.weight[7] = -200.0  # all of a row far below
    who, y = torch.randint(0, 50, (40,), generator=g), torch.randint(0, K, (40,), generator=g)
    who[:3] = 7
    log_p = torch.randn(40, K, generator=g, dtype=torch.float64).log_softmax(-1).requires_grad_()
    found, gradients = [], []
    for call in (
        lambda: channel.log_given(log_p, who, y),
        lambda: channel(log_p, who).gather(1, y.unsqueeze(1)).squeeze(1),
    ):
        value = call()
        made = torch.autograd.grad((value * torch.arange(40)).sum(), (log_p, channel.weight))
        found.append(value)
        gradients.append([t.to_dense() if t.is_sparse else t for t in made])
    torch.testing.assert_close(*found)
    for a, b in zip(*gradients):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("low", [-5.0, -200.0])
def test_labels_and_trace_of_one_reading(low):
    """Within `sharing` loss and trace read the rows once: value and gradient are the dense ones."""
    g = torch.Generator().manual_seed(4)
    dense, sparse = AnnotatorConfusion(30, K), AnnotatorConfusion(30, K, sparse=True)
    with torch.no_grad():
        dense.weight += torch.randn(dense.weight.shape, generator=g)
        dense.weight[7] = low
    sparse.load_state_dict(dense.state_dict())
    who, y = torch.randint(0, 30, (25,), generator=g), torch.randint(0, K, (25,), generator=g)
    who[:4] = 7
    log_p = torch.randn(25, K, generator=g).log_softmax(-1)
    counts, found = torch.bincount(who, minlength=30), []
    for channel in (dense, sparse):
        with channel.sharing(who):
            loss = -channel.log_given(log_p, who, y).sum()
            loss = loss + trace(channel, weight=0.5, annotators=who, counts=counts, fraction=0.25)
        loss.backward()
        found.append((loss.detach(), channel.weight.grad.to_dense()))
    assert found[1][1].isfinite().all()
    assert found[1][1][7].any()
    for a, b in zip(*found):
        torch.testing.assert_close(b, a, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("sparse", [False, True])
def test_labels_given_to_one_prediction_and_to_none(sparse):
    """Many labels of one item, whose prediction is broadcast; and a batch in which nobody gave a label."""
    channel = AnnotatorConfusion(3, 4, sparse=sparse, diagonal=0.6)
    A = channel.matrices().detach()
    log_p = torch.tensor([[0.1, 0.7, -0.4, 0.3]]).log_softmax(-1).requires_grad_()
    who, y = torch.tensor([0, 2, 2]), torch.tensor([3, 1, 0])
    found = channel.log_given(log_p, who, y)
    p = log_p.detach().exp()[0]
    wanted = [math.log(float((p @ A[r])[k])) for r, k in zip(who.tolist(), y.tolist())]
    assert found.tolist() == pytest.approx(wanted, abs=1e-5)
    found.sum().backward()
    share = sum(p * A[r, :, k] / (p @ A[r])[k] for r, k in zip(who.tolist(), y.tolist()))
    torch.testing.assert_close(log_p.grad[0], share)
    nobody = channel.log_given(log_p.detach()[:0], who[:0], y[:0])
    assert nobody.shape == (0,)
    assert nobody.sum().item() == 0


@pytest.mark.parametrize("label", [-1, 4])
def test_labels_that_are_no_class_are_refused(label):
    channel = AnnotatorConfusion(2, 4)
    log_p = torch.zeros(3, 4).log_softmax(-1)
    with pytest.raises(DubitoError, match=rf"unknown label at labels\[1\]: expected 0 to 3, got {label}"):
        channel.log_given(log_p, torch.tensor([0, 1, 0]), torch.tensor([0, label, 1]))
