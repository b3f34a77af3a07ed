"""Updates after labels were replaced, removed or moved, not only appended."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dubito.crowd import CrowdLabels, aggregate, update
from dubito.crowd._warm import changed_part

MATRIX = ("hierarchical", "dawid-skene", "one-coin", "skill")


def rows(crowd):
    """(items, annotators, labels) as ids."""
    return [
        ids[codes.numpy()]
        for ids, codes in (
            (crowd.item_ids, crowd.item),
            (crowd.annotator_ids, crowd.annotator),
            (crowd.classes, crowd.label),
        )
    ]


def agrees(crowd, more, method="hierarchical", gold=None):
    """update and aggregate tell the same about `more`; the updated counts are those of its labels."""
    old = aggregate(crowd, method, gold=gold)
    new, full = update(old, more), aggregate(more, method, start=old, gold=gold)
    assert (new.codes == full.codes).double().mean() > 0.98
    n = len(old.annotators)
    torch.testing.assert_close(new.skills[:n], full.skills[:n], atol=0.03, rtol=0)
    expected = more.labels_per_annotator().double()
    torch.testing.assert_close(new.state.layout.by_annotator(new.state.counts).sum(1), expected)
    torch.testing.assert_close(new.state.items.sum(), full.state.items.sum())
    return old, new, full


@pytest.mark.parametrize("method", MATRIX)
def test_a_replaced_label_counts(simulate, method):
    crowd, truth, _ = simulate(2, items=300, annotators=12, each=4)
    at = np.arange(20)
    wrong = (truth[at] + 1) % 3
    items, people = np.repeat(at, 4), crowd.annotator[:80].numpy()
    more = crowd.append(items, people, np.repeat(wrong, 4), duplicates="last")
    assert len(more) == len(crowd)
    old, new, full = agrees(crowd, more, method)
    torch.testing.assert_close(new.probabilities[:20], full.probabilities[:20], atol=2e-2, rtol=0)
    assert (new.codes[:20] != old.codes[:20]).any()
    assert torch.equal(new.probabilities[20:], old.probabilities[20:])


def test_the_first_label_kept_is_no_change(simulate):
    crowd, truth, _ = simulate(2)
    old = aggregate(crowd)
    same = crowd.append([0], [int(crowd.annotator[0])], [int(truth[0] + 1) % 3], duplicates="first")
    assert update(old, same) is old


@pytest.mark.parametrize("method", MATRIX)
def test_replaced_removed_and_new_in_any_order(simulate, method):
    crowd, truth, _ = simulate(6, items=300, annotators=12, each=4)
    gone = torch.ones(len(crowd), dtype=torch.bool)
    gone[[8, 9, 10, 11, 500]] = False  # item 2 loses all labels
    more = crowd.select(gone).append(
        [0, "new", "new", 7], [int(crowd.annotator[0]), 3, "she", "she"], [1, 2, 2, int(truth[7])],
        duplicates="last",
    )  # fmt: skip
    order = torch.from_numpy(np.random.default_rng(0).permutation(len(more)))
    _, new, _ = agrees(crowd, more, method)
    _, mixed, _ = agrees(crowd, more.select(order), method)
    torch.testing.assert_close(mixed.probabilities, new.probabilities)
    torch.testing.assert_close(mixed.skills, new.skills)
    torch.testing.assert_close(new.probabilities[2], new.class_prior)


def test_only_changed_items_are_touched(simulate):
    crowd, *_ = simulate(6, items=50)
    old = aggregate(crowd)
    order = torch.from_numpy(np.random.default_rng(1).permutation(len(crowd)))
    moved = crowd.select(order)
    assert changed_part(old, moved) is None
    keep = torch.arange(len(crowd)) != 20  # one label of item 5
    assert changed_part(old, crowd.select(keep)).touched.tolist() == [5]
    other = moved.append([9], [int(crowd.annotator[36])], [(int(crowd.label[36]) + 1) % 3], duplicates="last")
    assert changed_part(old, other).touched.tolist() == [9]


def test_repeated_labels_are_counted():
    twice = CrowdLabels([0, 0, 1], ["a", "a", "b"], [0, 0, 1], duplicates="keep")
    once = twice.select(torch.tensor([0, 2]))
    assert changed_part(aggregate(twice), once).touched.tolist() == [0]


def test_known_classes_stay_known_when_labels_are_replaced(simulate):
    crowd, truth, _ = simulate(5, items=200, annotators=8, each=4)
    gold = {0: int(truth[0]), 3: int(truth[3])}
    who = int(crowd.annotator[0])
    more = crowd.append([0, "z"], [who, 3], [(int(truth[0]) + 1) % 3, 1], duplicates="last")
    _, new, full = agrees(crowd, more, gold=gold)
    assert float(new.probabilities[0, truth[0]]) == 1.0
    assert float(new.probabilities[3, truth[3]]) == 1.0
    torch.testing.assert_close(new.state.gold, full.state.gold)


def test_an_annotator_without_labels_joins(simulate):
    crowd, *_ = simulate(5)
    items, people, labels = rows(crowd)
    more = CrowdLabels(items, people, labels, classes=3, annotator_ids=[*range(7), "new"])
    _, new, _ = agrees(crowd, more)
    assert len(new.skills) == 8
