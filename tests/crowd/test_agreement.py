"""Agreement statistics, against their definitions in loops."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from sklearn.metrics import cohen_kappa_score

from dubito.crowd import CrowdLabels, annotator_agreement, krippendorff_alpha, pairwise_kappa
from dubito.errors import DubitoError


def test_alpha_of_the_textbook():
    """Krippendorff's own nominal example: 4 observers, 12 units, gaps; alpha = 0.743."""
    gap = -1
    table = np.array(
        [
            [1, 2, 3, 3, 2, 1, 4, 1, 2, gap, gap, gap],
            [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, gap, 3],
            [gap, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, gap],
            [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, gap],
        ]
    ).T
    assert krippendorff_alpha(CrowdLabels.from_dense(table)) == pytest.approx(0.743, abs=5e-4)


def test_alpha_equals_pairs_in_loops(simulate):
    crowd, *_ = simulate(0)
    table = crowd.to_dense()
    units = [[v for v in row if v >= 0] for row in table]
    units = [u for u in units if len(u) > 1]
    values = [v for u in units for v in u]
    observed = sum(sum(a != b for a, b in itertools.permutations(u, 2)) / (len(u) - 1) for u in units)
    expected = sum(a != b for a, b in itertools.permutations(values, 2)) / (len(values) - 1)
    assert krippendorff_alpha(crowd) == pytest.approx(1 - observed / expected, abs=1e-12)


def test_alpha_without_pairs_is_not_a_number():
    assert math.isnan(krippendorff_alpha(CrowdLabels([0, 1], [0, 1], [0, 1])))
    assert math.isnan(krippendorff_alpha(CrowdLabels([0, 0], [0, 1], [1, 1])))


def test_agreement_with_the_rest(simulate):
    crowd, *_ = simulate(1)
    table = crowd.to_dense()
    found = annotator_agreement(crowd)
    for r in range(7):
        shares = []
        for row in table:
            others = [v for s, v in enumerate(row) if s != r and v >= 0]
            if row[r] >= 0 and others:
                shares.append(np.mean([v == row[r] for v in others]))
        assert float(found[r]) == pytest.approx(np.mean(shares), abs=1e-12)
    alone = annotator_agreement(CrowdLabels([0, 1], ["a", "b"], [0, 1]))
    assert bool(alone.isnan().all())


def test_kappa_of_all_pairs(simulate):
    crowd, *_ = simulate(2)
    table = crowd.to_dense()
    found = pairwise_kappa(crowd)
    seen = {}
    for a, b, shared, kappa in zip(found.first, found.second, found.shared, found.kappa):
        seen[int(a), int(b)] = (int(shared), float(kappa))
    for a, b in itertools.combinations(range(7), 2):
        both = (table[:, a] >= 0) & (table[:, b] >= 0)
        if both.sum() == 0:
            assert (a, b) not in seen
            continue
        shared, kappa = seen[a, b]
        assert shared == both.sum()
        assert kappa == pytest.approx(cohen_kappa_score(table[both, a], table[both, b]), abs=1e-12)
    many = pairwise_kappa(crowd, min_shared=15)
    assert set(many.shared.tolist()) == {s for s, _ in seen.values() if s >= 15}


def test_kappa_edges():
    alone = pairwise_kappa(CrowdLabels([0, 1], ["a", "b"], [0, 1]))
    assert alone.kappa.numel() == 0
    same = pairwise_kappa(CrowdLabels([0, 0], ["a", "b"], [1, 1]))
    assert bool(torch.isnan(same.kappa).all())
    with pytest.raises(DubitoError):
        pairwise_kappa(CrowdLabels([0], ["a"], [1]), min_shared=0)


def test_annotators_who_share_one_item_or_none():
    crowd = CrowdLabels.from_dense([[0, 0, -1, -1], [1, -1, -1, -1], [1, 0, 1, -1], [-1, -1, -1, 1]])
    found = annotator_agreement(crowd)
    assert found[:3].tolist() == [(1 + 0.5) / 2, (1 + 0) / 2, 0.5]
    assert math.isnan(float(found[3]))
    two = annotator_agreement(CrowdLabels.from_dense([[0, 0], [-1, 1]]))
    assert two.tolist() == [1.0, 1.0]


def test_kappa_of_few_pairs():
    """One shared item, equal labels throughout, labels of one annotator kept twice, and the order of the rows."""
    crowd = CrowdLabels([3, 1, 1, 3, 2, 2], [0, 1, 0, 1, 2, 1], [0, 1, 1, 1, 0, 0], annotator_ids=3)
    found = pairwise_kappa(crowd)
    assert (found.first.tolist(), found.second.tolist()) == ([0, 1], [1, 2])
    assert found.shared.tolist() == [2, 1]
    assert float(found.kappa[0]) == pytest.approx(cohen_kappa_score([0, 1], [1, 1]))
    assert math.isnan(float(found.kappa[1]))
    twice = CrowdLabels([0, 0, 0], ["a", "a", "b"], [0, 1, 0], duplicates="keep")
    assert pairwise_kappa(twice).shared.tolist() == [2]
    assert len(pairwise_kappa(crowd, min_shared=3).kappa) == 0
    assert len(pairwise_kappa(CrowdLabels([0], ["a"], [0])).kappa) == 0


def test_kappas_are_the_same_a_few_annotators_at_a_time(simulate, monkeypatch):
    crowd, *_ = simulate(4, items=60, annotators=9, each=5)
    crowd = crowd.append(crowd.item_ids[:4], [0] * 4, [0] * 4, duplicates="keep")  # some labels twice
    dense = [dict[int, list[int]]() for _ in range(9)]
    for n, r, y in zip(crowd.item.tolist(), crowd.annotator.tolist(), crowd.label.tolist(), strict=True):
        dense[r].setdefault(n, []).append(y)
    expected = {}
    for a in range(9):
        for b in range(a + 1, 9):
            said = [(x, y) for n in dense[a] for x in dense[a][n] for y in dense[b].get(n, [])]
            if said:
                agree = np.mean([x == y for x, y in said])
                chance = sum(
                    np.mean([x == k for x, _ in said]) * np.mean([y == k for _, y in said]) for k in range(3)
                )
                expected[a, b] = len(said), (agree - chance) / (1 - chance)
    for most in (1 << 22, 300, 1):
        monkeypatch.setattr("dubito.crowd.agreement.MOST", most)
        found = pairwise_kappa(crowd)
        assert list(zip(found.first.tolist(), found.second.tolist(), strict=True)) == list(expected)
        assert found.shared.tolist() == [n for n, _ in expected.values()]
        np.testing.assert_allclose(found.kappa.numpy(), [k for _, k in expected.values()], rtol=1e-12)


@pytest.mark.parametrize("wrong", ["2", 1.5, None, True])
def test_min_shared_of_another_kind(simulate, wrong):
    with pytest.raises(DubitoError, match="min_shared counts items"):
        pairwise_kappa(simulate(0)[0], min_shared=wrong)


def test_kappa_holds_some_annotators_at_a_time(simulate):
    """The largest tensors belong to a part: pairs of labels never stand side by side all at once."""
    from dubito.crowd import agreement

    crowd, *_ = simulate(1, items=200, annotators=30, each=20)
    whole = 200 * 20 * 19 // 2
    parts = [len(p.first) for p in agreement._pairs(crowd)]
    assert sum(parts) == whole
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(agreement, "MOST", 3 * 4000)
        parts = [len(p.first) for p in agreement._pairs(crowd)]
    assert sum(parts) == whole
    assert max(parts) <= 4000
    assert len(parts) > 5
