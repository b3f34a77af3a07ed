"""Labels of one item that err together: posteriors and intervals stay honest."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest
import torch

from dubito.crowd import CrowdLabels, aggregate, update
from dubito.crowd._dependence import GRID, RATE


def ambiguous(seed, *, alike, items=600, annotators=25, each=12, skill=0.8):
    """Two classes; an item's chance of a right label varies over items, with this intraclass correlation."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(2, size=items)
    size = 1 / alike - 1 if alike else 1e9
    right = rng.beta(skill * size, (1 - skill) * size, size=items)
    who = np.concatenate([rng.choice(annotators, each, replace=False) for _ in range(items)])
    item = np.repeat(np.arange(items), each)
    given = np.where(rng.random(len(item)) < right[item], truth[item], 1 - truth[item])
    return CrowdLabels(item, who, given, classes=2, item_ids=items, annotator_ids=annotators), truth


def loss(probabilities, truth):
    return float(-np.log(np.clip(probabilities.numpy()[np.arange(len(truth)), truth], 1e-12, 1)).mean())


def gap(result, truth):
    """How much surer the consensus is than it is right."""
    return float(result.confidence.mean()) - float((result.codes.numpy() == truth).mean())


def test_it_is_as_sure_as_it_is_right_where_items_are_ambiguous():
    """As independent witnesses the labels make it .985 sure, and right for .887."""
    results = [(aggregate(crowd), truth) for crowd, truth in (ambiguous(s, alike=0.2) for s in range(3))]
    assert all(0.15 <= r.dependence <= 0.3 for r, _ in results)
    assert all(abs(gap(r, truth)) < 0.06 for r, truth in results)


def test_independent_labels_are_taken_for_independent():
    results = [aggregate(ambiguous(s, alike=0.0)[0]) for s in range(3)]
    assert all(r.dependence <= 0.05 for r in results)


def test_a_crowd_without_three_labels_on_an_item_says_nothing_about_dependence():
    crowd, _ = ambiguous(0, alike=0.4, each=2)
    assert aggregate(crowd).dependence == 0
    assert aggregate(CrowdLabels([0, 1, 2], [0, 0, 1], [0, 1, 1])).dependence == 0


def test_skills_are_covered_where_items_are_ambiguous():
    """The skill of all annotators is .8 on a new item; multiplied as independent, labels cover .73 of them."""
    covered = []
    for seed in range(4):
        low, high = aggregate(ambiguous(seed, alike=0.2)[0]).skill_intervals().T
        covered += ((low <= 0.8) & (high >= 0.8)).tolist()
    assert np.mean(covered) > 0.9


def test_other_models_stay_as_their_papers_have_them():
    crowd, _ = ambiguous(0, alike=0.4)
    for method in ("dawid-skene", "one-coin", "skill", "vote", "glad"):
        assert aggregate(crowd, method).dependence == 0


def transcribed(crowd, result, counts, q, rho, gold=()):
    """Posteriors and the worth of a rho, label by label, from what EM ended with."""
    hyper, N, K = result.state.fitted.hyper, crowd.num_items, crowd.num_classes
    s, pattern = hyper["strength"].numpy(), hyper["pattern"].numpy()
    prior = result.class_prior.numpy()
    labels = [
        (int(n), int(r), int(y)) for n, r, y in zip(crowd.item, crowd.annotator, crowd.label, strict=True)
    ]

    def alpha(r, k, y):
        a = 1 / (1 + math.exp(-float(hyper["easiness"][k] + hyper["ability"][r])))
        return s[k] * (a if y == k else (1 - a) * pattern[k, y])

    def entry(n, r, y, k):
        row = sum(counts[r, k]) - q[n, k] + s[k]
        return (counts[r, k, y] - q[n, k] + alpha(r, k, y)) / row

    entries = [[entry(n, r, y, k) for k in range(K)] for n, r, y in labels]
    each = [[e for (n, _, _), e in zip(labels, entries) if n == item] for item in range(N)]

    def posterior(some):
        m = len(some)
        b = 1 / (1 + rho * max(m - 1, 0))
        p = np.array([prior[k] * math.prod(e[k] ** b for e in some) for k in range(K)])
        return p / p.sum()

    value = -RATE * rho
    for n in range(N):
        if len(each[n]) < 3 or n in gold:
            continue
        for i, e in enumerate(each[n]):
            value += math.log(float(posterior(each[n][:i] + each[n][i + 1 :]) @ np.array(e)))
    return np.stack([posterior(some) for some in each]), value


@pytest.mark.parametrize("gold", [{}, {3: 1, 4: 0}])
def test_a_transcription_label_by_label(monkeypatch, gold):
    from dubito.crowd import _dependence

    crowd, _ = ambiguous(5, alike=0.5, items=40, annotators=6, each=4)
    seen = {}

    def spy(layout, rule, result, **options):
        seen["result"] = result
        return _dependence_settle(layout, rule, result, **options)

    _dependence_settle = _dependence.settle
    monkeypatch.setattr(sys.modules["dubito.crowd.aggregate"], "settle", spy)
    monkeypatch.setattr(_dependence, "CELLS", 60)  # several pieces
    result = aggregate(crowd, gold=gold or None)
    q = seen["result"].sums.posterior.numpy()
    counts = np.zeros((6, 2, 2))
    for n, r, y in zip(crowd.item.numpy(), crowd.annotator.numpy(), crowd.label.numpy()):
        counts[r, :, y] += q[n]
    values = [transcribed(crowd, result, counts, q, rho, gold)[1] for rho in GRID]
    assert result.dependence == GRID[int(np.argmax(values))] > 0
    expected, _ = transcribed(crowd, result, counts, q, result.dependence)
    for n, k in gold.items():
        expected[n] = np.eye(2)[k]
    np.testing.assert_allclose(result.probabilities.numpy(), expected, rtol=1e-9, atol=1e-12)


def test_matrices_follow_the_new_posteriors():
    crowd, _ = ambiguous(2, alike=0.4, items=80, annotators=5, each=4)
    result = aggregate(crowd)
    p, s = result.probabilities.numpy(), result.state.fitted.hyper["strength"].numpy()
    for r in range(5):
        mine = crowd.annotator.numpy() == r
        rows = p[crowd.item.numpy()[mine]]
        n = rows.sum(0)
        right = [rows[crowd.label.numpy()[mine] == k, k].sum() for k in range(2)]
        ability, easiness = (result.state.fitted.hyper[x].numpy() for x in ("ability", "easiness"))
        a = 1 / (1 + np.exp(-(easiness + ability[r])))
        np.testing.assert_allclose(
            result.confusion_matrices[r].diagonal().numpy(), (right + s * a) / (n + s), rtol=1e-9
        )


def test_an_update_keeps_the_dependence_and_agrees_with_a_new_start():
    crowd, truth = ambiguous(1, alike=0.4)
    before = aggregate(crowd)
    more = crowd.append([0] * 3, ["x", "y", "z"], [int(truth[0])] * 3)
    after, anew = update(before, more), aggregate(more)
    assert after.dependence == before.dependence
    torch.testing.assert_close(after.probabilities, anew.probabilities, atol=0.02, rtol=0)
    torch.testing.assert_close(after.skills[:25], anew.skills[:25], atol=0.01, rtol=0)


def test_a_sample_of_a_large_crowd_tells_the_same(monkeypatch):
    crowd, _ = ambiguous(3, alike=0.4, items=2000)
    whole = aggregate(crowd)
    monkeypatch.setattr("dubito.crowd._dependence.ENOUGH", 6000)
    monkeypatch.setattr("dubito.crowd._dependence.SAMPLE", 600)
    sampled = aggregate(crowd)
    assert abs(GRID.index(sampled.dependence) - GRID.index(whole.dependence)) <= 1
