"""Labels in .npz files: what is no label, matrices of annotators, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from product_tables import FAST, NAMES, dubito, read, write


def fit(folder, ok=True, **arrays):
    np.savez(folder / "d.npz", **arrays)
    return dubito("fit", folder / "d.npz", "--out", folder / "run", "--method", "ce", *FAST, ok=ok)


@pytest.mark.parametrize("kind", [np.int64, np.float32])
def test_minus_one_is_no_label_in_every_kind_of_array(three, tmp_path, kind):
    y, truth = three.given.astype(kind), three.true.astype(kind)
    y[:7], truth[:5] = -1, -1
    said = fit(tmp_path, x=three.x, y=y, truth=truth)
    assert "classes: 3 (0, 1, 2)" in said
    assert "items without a label: 7 (predicted, not learned from; in arrays -1, NaN and empty text" in said
    assert "true labels: of 175 items" in said


@pytest.mark.parametrize("kind", [np.int64, np.float64])
def test_classes_minus_and_plus_one_are_told_why_they_are_refused(three, tmp_path, kind):
    y = np.where(three.given == 0, -1, 1).astype(kind)
    said = fit(tmp_path, ok=False, x=three.x, y=y)
    assert "the labels hold one class" in said
    assert "-1 is no label in an array: write classes as 0, 1 or as text" in said
    said = fit(tmp_path, ok=False, x=three.x, y=y, item=np.arange(len(y)), annotator=np.zeros(len(y)))
    assert "no label given" in said, "triplets are given labels: one that is none is refused, not dropped"


def test_a_matrix_of_annotators_may_hold_text(three, tmp_path):
    y = np.stack([NAMES[three.given], NAMES[three.true]], 1)
    y[:50, 0] = y[:3, 1] = ""
    said = fit(tmp_path, x=three.x, y=y)
    assert "labels: 307 (in arrays -1, NaN and empty text are no label)" in said
    assert "annotators: 2" in said
    assert "items without a label: 3" in said
    assert len(read(tmp_path / "run" / "predictions.csv")) == len(y)


@pytest.mark.parametrize("y", [np.eye(3), np.eye(3, dtype=bool), np.full((3, 3), 1 / 3)])
def test_one_hot_rows_are_no_annotators(three, tmp_path, y):
    said = fit(tmp_path, ok=False, x=three.x, y=y[three.given])
    assert "each row is one label spread over the classes" in said
    assert "pass one label per item, y.argmax(1)" in said


def test_triplets_that_do_not_fit_are_refused(three, tmp_path):
    people = {"annotator": np.zeros(180), "x": three.x}
    for item in (np.array(["a"] * 180), np.arange(180) + 0.5, np.arange(179)):
        said = fit(tmp_path, ok=False, y=three.given, item=item, **people)
        assert "items are row numbers" in said


@pytest.mark.parametrize(
    ("y", "place"), [([0, 1, np.nan], "y[2]"), ([0, -1, 1], "y[1]"), (["a", "", "b"], "y[1]")]
)
def test_an_audit_does_not_make_a_class_of_no_label(tmp_path, y, place):
    np.savez(tmp_path / "l.npz", y=np.array(y))
    np.save(tmp_path / "p.npy", np.full((3, 2), 0.5))
    said = dubito(
        "audit", tmp_path / "l.npz", "--probs", tmp_path / "p.npy", "--out", tmp_path / "a", ok=False
    )
    assert f"no label given at {tmp_path / 'l.npz'}, {place}" in said
    np.savez(tmp_path / "l.npz", y=np.zeros((3, 2)))
    said = dubito(
        "audit", tmp_path / "l.npz", "--probs", tmp_path / "p.npy", "--out", tmp_path / "a", ok=False
    )
    assert "labels must be one per item" in said


def test_one_column_is_one_label_per_item(three, tmp_path):
    said = fit(tmp_path, x=three.x, y=three.given[:, None])
    assert "annotators" not in said
    assert "items: 180" in said
    table = write(tmp_path / "t.csv", ["a", "b"], three.x.tolist())
    said = dubito("predict", tmp_path / "run", table, "--out", tmp_path / "p.csv", ok=False)
    assert "trained on arrays, and knows no columns" in said
    assert "expected an .npz file with the array 'x'" in said


@pytest.mark.parametrize("people", [1, 2])
def test_lengths_are_told_in_the_order_of_their_names(three, tmp_path, people):
    y = np.stack([three.given[:100]] * people, 1)
    said = fit(tmp_path, ok=False, x=three.x, y=y)
    assert "inputs and labels differ in length" in said
    assert "got 180 and 100" in said
