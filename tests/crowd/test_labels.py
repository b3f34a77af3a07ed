"""Triplets: what is accepted, what is refused, and who is named."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dubito.crowd import METHODS, CrowdLabels, aggregate
from dubito.errors import DubitoError


def test_codes_and_tables():
    crowd = CrowdLabels(["b", "a", "b"], [7, 3, 3], ["no", "yes", "no"])
    assert crowd.item_ids.tolist() == ["a", "b"]
    assert crowd.annotator_ids.tolist() == [3, 7]
    assert crowd.classes.tolist() == ["no", "yes"]
    assert crowd.item.tolist() == [1, 0, 1]
    assert crowd.label.tolist() == [0, 1, 0]
    assert crowd.labels_per_item().tolist() == [1, 2]
    assert crowd.labels_per_annotator().tolist() == [2, 1]
    assert len(crowd) == 3


@pytest.mark.parametrize(
    "values", [[3, 1, 1], np.array([3, 1, 1], np.uint8), torch.tensor([3, 1, 1]), np.array([3.0, 1.0, 1.0])]
)
def test_integers_in_any_clothes(values):
    crowd = CrowdLabels(values, [0, 1, 2], [0, 1, 1])
    assert crowd.item_ids.tolist() == [1, 3]
    assert crowd.item.tolist() == [1, 0, 0]


def test_large_and_negative_integer_ids():
    crowd = CrowdLabels([10**15, -5, 10**15], [0, 1, 2], [0, 1, 1])
    assert crowd.item_ids.tolist() == [-5, 10**15]


def test_text_stays_what_was_written():
    labels = ["01", "1", "1.0", "NA", "None", "nan", "да", "猫"]
    crowd = CrowdLabels(range(8), range(8), labels)
    assert crowd.num_classes == 8
    assert crowd.classes[crowd.label.numpy()].tolist() == labels


def test_one_true_and_text_one_are_three_ids():
    crowd = CrowdLabels([1, "1", True], [0, 0, 0], [0, 1, 0])
    assert crowd.num_items == 3


@pytest.mark.rel
def test_refused_or_documented():
    """Scorecard 14: empty rows and annotators, duplicates, unknown ids, lengths, gaps: culprits are named."""
    cases = {
        "one length": lambda: CrowdLabels([0, 1], [0], [0, 1]),
        "item 1, annotator 5, rows \\[1, 2\\]": lambda: CrowdLabels([0, 1, 1], [5, 5, 5], [0, 1, 0]),
        "unknown class 'cot' at row 1": lambda: CrowdLabels(
            [0, 1], [0, 0], ["cat", "cot"], classes=["cat", "dog"]
        ),
        "did you mean 'cat'": lambda: CrowdLabels([0, 1], [0, 0], ["cat", "cot"], classes=["cat", "dog"]),
        "unknown item 9 at row 0": lambda: CrowdLabels([9], [0], [0], item_ids=[1, 2]),
        "unknown annotator 'bob'": lambda: CrowdLabels([9], ["bob"], [0], annotator_ids=["ann"]),
        "negative label": lambda: CrowdLabels([0, 1], [0, 0], [1, -1]),
        "row 1 and 1 more": lambda: CrowdLabels([0, 1, 2], [0, 0, 0], np.array([0.0, np.nan, np.nan])),
        "labels must be integers or text at row 1": lambda: CrowdLabels([0, 1], [0, 0], ["a", None]),
        "got 0.5": lambda: CrowdLabels([0], [0], np.array([0.5])),
        "repeated entry: got 'a'": lambda: CrowdLabels([0], [0], ["a"], classes=["a", "b", "a"]),
        "no classes": lambda: CrowdLabels([], [], []),
        "flat column": lambda: CrowdLabels(np.zeros((2, 2), int), [0, 1], [0, 1]),
        "column of ids": lambda: CrowdLabels("abc", [0, 1, 2], [0, 1, 0]),
        "confidence must give one number per label": lambda: CrowdLabels([0], [0], [0], confidence=[1, 2]),
        "confidence must be finite at row 0": lambda: CrowdLabels([0], [0], [0], confidence=[np.inf]),
        "time must be numbers": lambda: CrowdLabels([0], [0], [0], time=["noon"]),
        "did you mean 'last'": lambda: CrowdLabels([0], [0], [0], duplicates="lasst"),
        "items as rows": lambda: CrowdLabels.from_dense([0, 1]),
        "row 1, column 0: got 0.5": lambda: CrowdLabels.from_dense(np.array([[0.0], [0.5]])),
        "item_ids must match": lambda: CrowdLabels.from_dense([[0, 1]], item_ids=["a", "b"]),
    }
    for message, call in cases.items():
        with pytest.raises(DubitoError, match=message):
            call()
    # Documented, not refused: an item and an annotator without labels, one annotator, one label per item.
    crowd = CrowdLabels.from_dense([[0, 1, -1], [-1, -1, -1], [1, 1, -1]])
    assert crowd.labels_per_item().tolist() == [2, 0, 2]
    result = aggregate(crowd)
    torch.testing.assert_close(result.probabilities[1], result.class_prior)
    assert bool(result.confusion_of(2).isfinite().all())


@pytest.mark.rel
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("items", "people", "labels"),
    [
        ([0, 1, 2, 3], ["ann"] * 4, [0, 1, 1, 0]),
        ([0, 1, 2, 3], [0, 1, 2, 0], [0, 1, 1, 0]),
        (["x-ray 1", "x-ray 1", "x-ray 2", "Ж"], ["ann", "bob", "ann", "猫"], ["no", "yes", "yes", "no"]),
        (["x"], ["ann"], ["no"]),
    ],
    ids=["one annotator", "one label per item", "string ids", "one label in all"],
)
def test_small_and_oddly_named_tables(method, items, people, labels):
    """Scorecard 14: one annotator, one label per item, string ids: documented, finite, and in their own names."""
    crowd = CrowdLabels(items, people, labels, classes=["no", "yes"] if "no" in labels else 2)
    result = aggregate(crowd, method)
    assert sorted(map(str, result.items)) == sorted({str(i) for i in items})
    assert sorted(map(str, result.annotators)) == sorted({str(p) for p in people})
    torch.testing.assert_close(
        result.probabilities.sum(1), torch.ones(crowd.num_items).to(result.probabilities)
    )
    assert bool(result.confusion_matrices.isfinite().all())
    if method == "vote" and len(set(items)) == len(items):
        assert [str(crowd.classes[c]) for c in result.codes] == [str(v) for v in labels]


def test_duplicates_on_request():
    columns = [0, 0, 1], ["a", "a", "a"], [0, 1, 1]
    assert CrowdLabels(*columns, duplicates="first").label.tolist() == [0, 1]
    assert CrowdLabels(*columns, duplicates="last").label.tolist() == [1, 1]
    assert len(CrowdLabels(*columns, duplicates="keep")) == 3


def test_append_keeps_codes_and_the_original():
    crowd = CrowdLabels(["m", "m"], ["x", "y"], ["no", "yes"], confidence=[0.5, 0.75], time=[1, 2])
    more = crowd.append(["a", "m"], ["y", "b"], ["yes", "yes"], confidence=[1, 1], time=[3, 4])
    assert len(crowd) == 2
    assert crowd.item_ids.tolist() == ["m"]
    assert more.item_ids.tolist() == ["m", "a"]
    assert more.annotator_ids.tolist() == ["x", "y", "b"]
    assert more.item.tolist() == [0, 0, 1, 0]
    assert more.confidence is not None
    assert more.confidence.tolist() == [0.5, 0.75, 1, 1]
    with pytest.raises(DubitoError, match="more than once"):
        more.append(["a"], ["y"], ["no"], confidence=[1], time=[5])
    with pytest.raises(DubitoError, match="new_classes=True"):
        crowd.append(["z"], ["x"], ["perhaps"], confidence=[1], time=[5])
    with pytest.raises(DubitoError, match="for all labels or for none"):
        crowd.append(["z"], ["x"], ["no"])
    wider = crowd.append(["z"], ["x"], ["maybe"], confidence=[1], time=[5], new_classes=True)
    assert wider.classes.tolist() == ["no", "yes", "maybe"]


def test_append_equals_building_at_once(simulate):
    crowd, *_ = simulate(0)
    columns = [c.numpy() for c in (crowd.item, crowd.annotator, crowd.label)]
    half = CrowdLabels(*(c[:100] for c in columns), classes=3, item_ids=60, annotator_ids=7)
    whole = half.append(*(c[100:] for c in columns))
    assert torch.equal(whole.item, crowd.item)
    torch.testing.assert_close(aggregate(whole).probabilities, aggregate(crowd).probabilities)


def test_nothing_is_items_times_annotators():
    """200,000 items by as many annotators: a dense table would have 4 x 10^10 cells."""
    n = 200_000
    item = np.concatenate([np.arange(n), np.arange(n)])
    who = np.concatenate([np.arange(n), (np.arange(n) + 1) % n])
    crowd = CrowdLabels(item, who, (item % 3 == 0).astype(int))
    result = aggregate(crowd, "dawid-skene", iterations=1)
    assert result.codes.tolist()[:4] == [1, 0, 0, 1]


@pytest.mark.parametrize("empty", ["", " ", "\t\u00a0", np.str_(" ")])
def test_empty_text_is_no_id_and_no_class(empty):
    for place, name in enumerate(("items", "annotators", "labels")):
        columns = [["a", "b"], ["a", "b"], ["a", "b"]]
        columns[place] = ["a", empty]
        with pytest.raises(DubitoError, match=f"empty text among the {name} at row 1"):
            CrowdLabels(*columns)
        crowd = CrowdLabels(["a"], ["a"], ["a"])
        with pytest.raises(DubitoError, match=f"empty text among the {name} at row 1"):
            crowd.append(*columns, duplicates="last", new_classes=True)
    for name in ("classes", "item_ids", "annotator_ids"):
        with pytest.raises(DubitoError, match=f"empty text among the {name} at row 1"):
            CrowdLabels(["a"], ["a"], ["a"], **{name: ["a", empty]})
    with pytest.raises(DubitoError, match="an empty label at row 1, column 0"):
        CrowdLabels.from_dense([["a", "b"], [empty, "b"]])
    assert len(CrowdLabels.from_dense([["a", "b"], [empty, "b"]], missing=empty)) == 3
    with pytest.raises(DubitoError):
        CrowdLabels([0], [0], ["\ufeff"]).spelled()


@pytest.mark.parametrize(
    "ids", [np.array([1234567890123456789.0, 5.0]), np.array([2**24 + 2, 1], dtype=np.float32), [2e19, "a"]]
)
def test_ids_that_lost_their_last_digits_are_refused(ids):
    with pytest.raises(DubitoError, match="more digits than a decimal number holds"):
        CrowdLabels(ids, [1, 2], [0, 1])


def test_large_ids_that_floats_hold_are_taken():
    crowd = CrowdLabels(np.array([2.0**53, 2.0**53 - 1]), [1, 2], [0, 1])
    assert crowd.item_ids.tolist() == [2**53 - 1, 2**53]


def test_items_in_the_order_of_a_table():
    crowd = CrowdLabels(["p2", "p10", "p10"], ["ann", "ann", "bob"], [0, 1, 0])
    assert crowd.rows_in_doubt
    moved = crowd.in_order(["p2", "p10"])
    assert not moved.rows_in_doubt
    assert moved.to_long().values.tolist() == crowd.to_long().values.tolist()
    assert moved.to_dense().tolist() == [[0, -1], [1, 0]]
    assert len(crowd.in_order(["p2", "x", "p10"]).labels_per_item()) == 3  # one more item, without labels
    with pytest.raises(DubitoError, match="unknown item 'p2'"):
        crowd.in_order(["p10"])


@pytest.mark.parametrize("ids", [[2, 0, 1], ["a", "b", "c"], ["p1", "p2", "p10"]])
def test_when_rows_are_in_doubt(ids):
    """Numbers that count the rows, and ids that come in their sorted order, are not; text sorted otherwise is."""
    assert CrowdLabels(ids, ["ann"] * 3, [0, 1, 0]).rows_in_doubt == (ids[0] == "p1")
    assert not CrowdLabels(ids, ["ann"] * 3, [0, 1, 0], item_ids=ids).rows_in_doubt
