"""Sums over labels in blocks, votes as a start, and what aggregates say of their own certainty, in loops."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from scipy.stats import beta

from dubito.crowd import CrowdLabels, aggregate
from dubito.crowd._layout import bag_sum, e_step, lay_out, vote_shares
from dubito.errors import DubitoError


def problem(simulate, gold=False, block=None, turned=False):
    crowd, *_ = simulate(11, items=17, annotators=5, classes=3, each=3)
    crowd = crowd.select((crowd.item != 5) | (crowd.annotator == crowd.annotator[crowd.item == 5][0]))
    if turned:  # labels in another order than by item
        crowd = crowd.select(torch.arange(len(crowd)).flip(0))
    crowd.item_ids = np.arange(19)  # two items without a label
    known = torch.full((19,), -1)
    known[[0, 3, 18]] = torch.tensor([0, 2, 1])
    layout = lay_out(crowd, dtype=torch.float64, gold=known if gold else None, block=block)
    return crowd, layout, known.tolist() if gold else [-1] * 19


def sums_of(crowd, layout, q):
    """Counts and squares at the keys."""
    found = np.zeros((2, 5, 3, 3))
    for n, r, y in zip(crowd.item.tolist(), crowd.annotator.tolist(), crowd.label.tolist()):
        found[0, r, :, y] += q[n]
        found[1, r, :, y] += q[n] ** 2
    return found[:, layout.key_annotator.numpy(), :, layout.key_label.numpy()].swapaxes(0, 1)


@pytest.mark.parametrize("gold", [False, True])
@pytest.mark.parametrize("block", [None, 1, 7])
@pytest.mark.parametrize("each", [False, True])
def test_posteriors_and_their_sums(simulate, gold, block, each):
    crowd, layout, known = problem(simulate, gold, block, turned=block == 7)
    g = torch.Generator().manual_seed(1)
    table = torch.randn(len(layout.key_label), 3, generator=g, dtype=torch.float64)
    prior = torch.randn(*((19, 3) if each else (3,)), generator=g, dtype=torch.float64).log_softmax(-1)
    keys = {key: u for u, key in enumerate(zip(layout.key_annotator.tolist(), layout.key_label.tolist()))}
    scores = np.broadcast_to(prior.numpy(), (19, 3)).copy()
    for n, r, y in zip(crowd.item.tolist(), crowd.annotator.tolist(), crowd.label.tolist()):
        scores[n] += table[keys[r, y]].numpy()
    joint = np.exp(scores)
    for n, k in enumerate(known):
        if k >= 0:
            joint[n] *= np.eye(3)[k]
    q = joint / joint.sum(1, keepdims=True)
    found = e_step(layout, table, prior, keep=True, squares=True)
    np.testing.assert_allclose(found.posterior, q, atol=1e-12)
    np.testing.assert_allclose(found.prior, q.sum(0), atol=1e-11)
    assert found.log_likelihood == pytest.approx(np.log(joint.sum(1)).sum(), abs=1e-10)
    counts, squares = sums_of(crowd, layout, q)
    np.testing.assert_allclose(found.counts, counts, atol=1e-11)
    np.testing.assert_allclose(found.squares, squares, atol=1e-11)
    plain = e_step(layout, table, prior)
    assert (len(plain.posterior), plain.squares.numel()) == (0, 0)
    assert plain.counts.shape == found.counts.shape


@pytest.mark.parametrize("gold", [False, True])
@pytest.mark.parametrize("block", [None, 4])
def test_votes_to_begin_with(simulate, gold, block):
    crowd, layout, known = problem(simulate, gold, block)
    q = np.zeros((19, 3))
    for n, y in zip(crowd.item.tolist(), crowd.label.tolist()):
        q[n, y] += 1
    for n in range(19):
        q[n] = q[n] / q[n].sum() if q[n].sum() else 1 / 3
        q[n] = np.eye(3)[known[n]] if known[n] >= 0 else q[n]
    found = vote_shares(layout, keep=True)
    np.testing.assert_allclose(found.posterior, q, atol=1e-12)
    np.testing.assert_allclose(found.counts, sums_of(crowd, layout, q)[0], atol=1e-11)
    np.testing.assert_allclose(found.prior, q.sum(0), atol=1e-11)
    assert found.log_likelihood == 0


@pytest.mark.parametrize("block", [None, 1, 5])
def test_blocks_cover_every_label_once(simulate, block):
    crowd, layout, _ = problem(simulate, block=block)
    edges = [(b.start, b.stop) for b in layout.blocks]
    assert edges[0][0] == 0
    assert edges[-1][1] == 19
    assert all(a[1] == b[0] for a, b in itertools.pairwise(edges))
    assert sum(len(b.keys) for b in layout.blocks) == len(crowd)
    if block:
        assert max(len(b.keys) for b in layout.blocks) < block + 3  # an item is never cut
    else:
        assert len(layout.blocks) == 1


def test_keys_that_occur_and_those_kept_besides():
    crowd = CrowdLabels([0, 0, 1], [0, 2, 2], [1, 0, 0], classes=2, annotator_ids=3)
    layout = lay_out(crowd, dtype=torch.float64)
    assert list(zip(layout.key_annotator.tolist(), layout.key_label.tolist())) == [(0, 1), (2, 0)]
    present = torch.tensor([False, False, True, False, False, False])
    more = lay_out(crowd, dtype=torch.float64, present=present)
    assert list(zip(more.key_annotator.tolist(), more.key_label.tolist())) == [(0, 1), (1, 0), (2, 0)]
    assert present.sum() == 1
    many = CrowdLabels([0, 0, 1], [700, 2, 2], [1, 0, 0], classes=2, annotator_ids=5000)
    sparse = lay_out(many, dtype=torch.float64)
    assert list(zip(sparse.key_annotator.tolist(), sparse.key_label.tolist())) == [(2, 0), (700, 1)]
    assert sparse.by_annotator(torch.ones(2)).sum() == 2
    assert bag_sum(torch.zeros(0).long(), torch.ones(4, 2), torch.zeros(4).int()).tolist() == [[0.0, 0.0]] * 3


@pytest.mark.parametrize("method", ["dawid-skene", "one-coin"])
def test_intervals_from_what_labels_are_worth(simulate, method):
    """Jeffreys' beta with the labels discounted by how well it is known which of them are right."""
    crowd, *_ = simulate(12, items=40, annotators=4, each=3)
    crowd = crowd.append([0], [9], [1])  # an annotator with one label
    result = aggregate(crowd, method)
    q, s = result.probabilities.numpy(), result.state.strength
    A = result.confusion_matrices.numpy()
    right: list[list[float]] = [[] for _ in range(5)]
    n = np.zeros((5, 3))
    for i, r, y in zip(crowd.item.tolist(), crowd.annotator.tolist(), crowd.label.tolist()):
        right[r].append(q[i, y])
        n[r] += q[i]
    shares = [np.mean(v) for v in right]
    for r in range(5):
        v, a, m = np.array(right[r]), shares[r], len(right[r])
        f = (((v - a) ** 2).sum() + 1) / (m * a * (1 - a) + 1)
        worth = np.full(3, m * f**1.5) if method == "one-coin" else n[r] * f**2
        np.testing.assert_allclose(result.worth()[r], worth, rtol=1e-9)
        size = worth + s
        diagonal = np.diag(A[r])
        middle = (diagonal * size + 0.5) / (size + 1)
        spread = middle * (1 - middle) / (size + 2)
        mean, variance = middle.mean(), spread.mean() / 3 + (np.std(shares) * (s / size).mean()) ** 2
        if method == "one-coin":
            mean, variance = middle[0], spread[0]
        total = mean * (1 - mean) / variance - 1
        low, high = beta.ppf([0.05, 0.95], mean * total, (1 - mean) * total)
        assert result.skill_intervals(0.9)[r].tolist() == pytest.approx([low, high], abs=1e-8)
        middle = (A[r] * size[:, None] + 0.5) / (size[:, None] + 1)
        entry = beta.ppf(0.9, middle * (size[:, None] + 1), (1 - middle) * (size[:, None] + 1))
        np.testing.assert_allclose(result.confusion_intervals(0.8)[r, :, :, 1], entry, atol=1e-8)


def test_intervals_of_the_hierarchical_model(simulate):
    """The skill in the prior is uncertain too: its spread is common to an annotator's rows."""
    crowd, *_ = simulate(13, items=40, annotators=5, each=3)
    result = aggregate(crowd)
    hyper, worth = result.state.fitted.hyper, result.worth().numpy()
    e, b, s = (hyper[name].numpy() for name in ("easiness", "ability", "strength"))
    A, B = result.confusion_matrices.numpy(), hyper["pattern"].numpy()
    for r in range(5):
        a = 1 / (1 + np.exp(-(e + b[r])))
        known = (worth[r] * (s + 1) / (worth[r] + s) * a * (1 - a)).sum() + 1
        common = s / (worth[r] + s) * a * (1 - a) / np.sqrt(known)
        size = (worth[r] + s)[:, None]
        middle = (A[r] * size + 0.5) / (size + 1)
        variance = middle * (1 - middle) / (size + 2)
        mean, spread = np.diag(middle).mean(), np.diag(variance).mean() / 3 + common.mean() ** 2
        total = mean * (1 - mean) / spread - 1
        low, high = beta.ppf([0.05, 0.95], mean * total, (1 - mean) * total)
        assert result.skill_intervals(0.9)[r].tolist() == pytest.approx([low, high], abs=1e-8)
        variance = variance + (common[:, None] * (B + np.eye(3))) ** 2
        total = np.maximum(middle * (1 - middle) / variance - 1, 1e-2)
        wanted = [beta.ppf(p, middle * total, (1 - middle) * total) for p in (0.1, 0.9)]
        np.testing.assert_allclose(result.confusion_intervals(0.8)[r].movedim(-1, 0), wanted, atol=1e-8)


def test_who_gave_no_label_widens_nobodys_interval(simulate):
    crowd, *_ = simulate(14, items=30, annotators=4)
    more = CrowdLabels(
        crowd.item.numpy(), crowd.annotator.numpy(), crowd.label.numpy(), classes=3, annotator_ids=5
    )
    found = aggregate(more, "dawid-skene").skill_intervals()
    torch.testing.assert_close(
        found[:4], aggregate(crowd, "dawid-skene").skill_intervals(), atol=1e-6, rtol=0
    )
    assert bool(found.isfinite().all())
    for bad in ((0, 1, 2), "ab", 7):
        with pytest.raises(DubitoError):
            aggregate(crowd, gold=bad)


@pytest.mark.parametrize("method", ["vote", "soft-vote", "hierarchical"])
def test_confidence_is_that_of_the_consensus(simulate, method):
    crowd, *_ = simulate(15)
    result = aggregate(crowd, method)
    assert torch.equal(result.skill_intervals(), result.skill_intervals(0.95))
    assert torch.equal(result.confusion_intervals(), result.confusion_intervals(0.95))
    wanted = [float(result.probabilities[n, k]) for n, k in enumerate(result.codes.tolist())]
    assert result.confidence.tolist() == wanted
