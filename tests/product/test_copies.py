"""Copies of an item, as in tables that were joined or upsampled, do not vouch for each other's labels."""

from __future__ import annotations

import numpy as np
from product_tables import NAMES, blobs, dubito, read, write

from dubito.data import read_npz


def test_copies_are_kept_in_one_fold_and_counted(tmp_path):
    b = blobs(90)
    rows = [(*x, NAMES[k]) for x, k in zip(b.x, b.given)]
    order = np.random.default_rng(0).permutation([*range(90), *range(30)])
    table = write(tmp_path / "t.csv", ["a", "b", "label"], [rows[i] for i in order])
    run = tmp_path / "run"
    options = ("--method", "ce", "--epochs", "150", "--folds", "3", "--device", "cpu")
    said = dubito("fit", table, "--out", run, *options)
    assert "  items alike: 60 in 30 groups (kept in one fold each)" in said.splitlines()
    fold = read_npz(run / "out_of_fold.npz")["fold"]
    assert all(len(set(fold[order == i])) == 1 for i in range(90))
    assert np.ptp(np.bincount(fold)) <= 2
    copied = np.bincount(order)[order] == 2
    wrong = (b.given != b.true)[order]
    doubt = np.array([float(r["p_wrong"]) for r in read(run / "label_quality.csv")])
    # Learned by heart, a copied label would be beyond doubt.
    assert np.median(doubt[copied & wrong]) > 0.5 > np.median(doubt[copied & ~wrong])
