"""Whole subjects in one fold: `--groups`."""

from __future__ import annotations

import numpy as np
import pytest
from product_tables import NAMES, blobs, dubito, write

from dubito._product import comparing
from dubito._product.reading import read
from dubito._product.sources import find, from_plain
from dubito._product.tasks import FitJob, fit
from dubito.data import read_npz
from dubito.data._alike import GROUP
from dubito.errors import DubitoError

QUICK = ("--method", "ce", "--epochs", "2", "--folds", "3", "--device", "cpu")


@pytest.fixture
def table(tmp_path):
    """120 rows of 40 patients, three each, in any order."""
    b = blobs(120)
    patient = np.random.default_rng(0).permutation(np.arange(120) % 40)
    rows = [(*x, f"p{p}", NAMES[k]) for x, p, k in zip(b.x, patient, b.given)]
    return write(tmp_path / "t.csv", ["a", "b", "patient", "label"], rows), patient


def test_a_run_and_its_update_cut_no_group(table, tmp_path):
    path, patient = table
    run = tmp_path / "run"
    said = dubito("fit", path, "--out", run, "--groups", "patient", *QUICK).splitlines()
    assert "  groups: 40 (kept in one fold each)" in said
    assert any("groups = patient" in line for line in said)
    assert not any("not used" in line for line in said)
    fold = read_npz(run / "out_of_fold.npz")["fold"]
    assert all(len(set(fold[patient == p])) == 1 for p in range(40))
    gold = write(tmp_path / "gold.csv", ["id", "gold"], [(1, NAMES[0])])
    dubito("fit", run, "--gold", gold)
    dubito("audit", run)


def test_comparisons_cut_no_group_either(table, tmp_path, monkeypatch):
    path, _ = table
    seen = []
    real = comparing.fold_numbers
    monkeypatch.setattr(
        comparing, "fold_numbers", lambda d, **o: (real(d, **o), seen.append(d.extra[GROUP]))[0]
    )
    dubito("compare", path, "--groups", "patient", "--methods", "ce", "--seeds", "1", "--epochs", "1")
    assert len(seen[0].unique()) == 40


def test_folders_have_no_groups(tmp_path):
    (tmp_path / "masks").mkdir()
    (tmp_path / "photos").mkdir()
    with pytest.raises(DubitoError, match="--groups is not for masks"):
        fit(FitJob(tmp_path / "photos", tmp_path / "run", masks=tmp_path / "masks", groups="p"), print)


def test_of_a_crowd_the_first_row_counts(tmp_path):
    rows = [(i, w, f"p{i // 3}", 0.1 * i, NAMES[i % 2]) for w in ("ann", "bob") for i in range(12)]
    path = write(tmp_path / "c.csv", ["item", "worker", "patient", "a", "label"], rows)
    data, source = read(find(FitJob(path, tmp_path, groups="patient")))
    assert data.extra[GROUP].tolist() == [i // 3 for i in range(12)]
    assert source.features == ("a",)
    assert from_plain(source.plain()).groups == "patient"


def test_arrays_have_groups_too(tmp_path):
    b = blobs(60)
    path = tmp_path / "a.npz"
    np.savez(path, x=b.x, y=b.given, patient=np.arange(60) // 5, short=np.arange(3))
    data, _ = read(find(FitJob(path, tmp_path, groups="patient")))
    assert data.extra[GROUP].tolist() == [i // 5 for i in range(60)]
    with pytest.raises(DubitoError, match="one entry per item"):
        read(find(FitJob(path, tmp_path, groups="short")))
    with pytest.raises(DubitoError, match="no array 'patients'"):
        find(FitJob(path, tmp_path, groups="patients"))


def test_what_is_refused_and_what_stays(table, tmp_path):
    path, _ = table
    with pytest.raises(DubitoError, match="no column 'patients'"):
        find(FitJob(path, tmp_path, groups="patients"))
    with pytest.raises(DubitoError, match="no column of groups"):
        find(FitJob(tmp_path, tmp_path, groups="patient"))
    gap = write(
        tmp_path / "g.csv", ["a", "p", "label"], [(i, "x" if i else "", NAMES[i % 2]) for i in range(9)]
    )
    with pytest.raises(DubitoError, match="no group given"):
        read(find(FitJob(gap, tmp_path, groups="p")))
    assert "groups" not in find(FitJob(path, tmp_path)).plain()  # older runs are what they were
