"""Models judged by labels they have not seen."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dubito.crowd import CrowdLabels, aggregate, compare, held_out
from dubito.errors import DubitoError


def test_held_out_against_a_naive_transcription(simulate):
    """One label at a time: posteriors and matrices of a fit without its fold, summed over true classes."""
    crowd, _, _ = simulate(0, items=30, annotators=5, each=3)
    found = held_out(crowd, "dawid-skene", folds=3, seed=4)
    # Which labels are held out together is not told: the value of each must be that of one of three fits.
    from dubito._random import permutation

    fold = permutation(len(crowd), 4, purpose="held-out") % 3
    for f in range(3):
        result = aggregate(crowd.select(fold != f), "dawid-skene")
        A, q = result.confusion_matrices, result.probabilities
        for i in (fold == f).nonzero().flatten()[:10].tolist():
            n, r, y = int(crowd.item[i]), int(crowd.annotator[i]), int(crowd.label[i])
            expected = sum(float(q[n, k]) * float(A[r, k, y]) for k in range(3))
            assert float(found[i]) == pytest.approx(np.log(expected), abs=1e-9)


def test_the_model_that_made_the_labels_is_found():
    """Annotators with permuted classes need matrices; one-coin annotators with few labels do better without."""
    rng = np.random.default_rng(0)
    truth = rng.integers(4, size=600)
    item, who = np.repeat(np.arange(600), 5), np.tile(np.arange(5), 600)
    swapped = np.where(who == 4, (truth[item] + 1) % 4, truth[item])
    label = np.where(rng.random(3000) < 0.85, swapped, rng.integers(4, size=3000))
    crowd = CrowdLabels(item, who, label)
    order = [score.method for score in compare(crowd, ("hierarchical", "dawid-skene", "one-coin"))]
    assert order[-1] == "one-coin"
    sparse = np.stack([rng.choice(200, 3, replace=False) for _ in range(400)])
    skill = rng.beta(4, 2, size=200)
    labels = np.where(
        rng.random(sparse.shape) < skill[sparse], truth[:400, None], rng.integers(4, size=sparse.shape)
    )
    crowd = CrowdLabels(np.repeat(np.arange(400), 3), sparse.ravel(), labels.ravel(), annotator_ids=200)
    scores = compare(crowd, ("hierarchical", "dawid-skene", "one-coin"))
    assert scores[-1].method == "dawid-skene"
    assert scores[0].log_likelihood >= scores[1].log_likelihood >= scores[2].log_likelihood
    assert all(0 < score.error < 0.2 for score in scores)


def test_labels_in_any_order_and_empty_places():
    """Items or annotators that lose all labels have the prior and the crowd's matrix; nothing is infinite."""
    crowd = CrowdLabels([0, 1, 2, 3], ["a", "b", "c", "d"], [0, 1, 0, 1])
    for method in ("auto", "dawid-skene", "skill", "one-coin", "glad"):
        assert bool(torch.isfinite(held_out(crowd, method, folds=2)).all())
    with pytest.raises(DubitoError, match="folds"):
        held_out(crowd, folds=1)
