"""Which columns are learned from: never a copy of the label, the truth or the number of a row, unless named."""

from __future__ import annotations

import numpy as np
import pytest
from product_tables import FAST, NAMES, blobs, dubito, write

from dubito._product.features import counts_up
from dubito._product.sources import find
from dubito._product.tasks import FitJob
from dubito.errors import DubitoError

B = blobs(60)


def table(path, **more):
    """Two features and the label, with further columns before them."""
    head = [*more, "a", "b", "label"]
    extra = list(zip(*more.values())) if more else [()] * 60
    return write(path, head, [(*e, *x, NAMES[k]) for e, x, k in zip(extra, B.x, B.given)])


def features(path, **options):
    return find(FitJob(path, path.parent / "run", **options)).features


@pytest.mark.parametrize(
    "name",
    [
        "target",
        "Target ",
        "CLASS",
        "y",
        "gold",
        "corrected",
        "True Label",
        "truth",
        "Unnamed: 0",
        "",
        "index",
    ],
)
def test_usual_names_of_labels_truth_and_rows_are_no_features(tmp_path, name):
    noise = np.random.default_rng(0).permutation(60)  # by their values they could be features
    path = table(tmp_path / "t.csv", **{"id": range(60), "clean": B.true, name: noise})
    assert features(path) == ("a", "b")
    if name not in ("", "truth"):  # the truth is for scoring, here before "clean"
        assert features(path, features=(name.strip(), "a")) == (name.strip(), "a")


def test_a_y_beside_an_x_is_a_coordinate(tmp_path):
    rows = [(*x, NAMES[k]) for x, k in zip(B.x, B.given)]
    assert features(write(tmp_path / "xy.csv", ["x", "y", "label"], rows)) == ("x", "y")


def test_a_code_of_the_label_is_no_feature(tmp_path):
    path = table(tmp_path / "t.csv", kind=B.given + 7)
    assert features(path) == ("a", "b")
    assert features(path, features=("kind",)) == ("kind",)
    assert features(table(tmp_path / "u.csv", kind=B.true + 7)) == (
        "kind",
        "a",
        "b",
    )  # noise tells them apart
    with pytest.raises(DubitoError, match="labels cannot be a feature too"):
        features(path, features=("label",))


@pytest.mark.parametrize("first", [0, 1])
def test_numbers_of_rows_are_no_feature(tmp_path, first):
    assert features(table(tmp_path / "t.csv", n=range(first, 60 + first))) == ("a", "b")
    assert features(table(tmp_path / "u.csv", n=range(first, 120 + first, 2))) == ("n", "a", "b")
    assert not counts_up([0, 1, 2])  # too few to tell


def test_numbers_of_items_are_no_feature(tmp_path):
    rows = [(f"i{i // 2}", f"w{i % 2}", i // 2, B.x[i // 2][0], NAMES[B.given[i // 2]]) for i in range(60)]
    path = write(tmp_path / "c.csv", ["item", "worker", "n", "a", "label"], rows)
    assert features(path) == ("a",)


def test_what_is_left_out_is_said_with_its_reason(tmp_path):
    path = table(tmp_path / "t.csv", target=B.given, gold=B.true, n=range(60), code=B.given)
    said = dubito("fit", path, "--out", tmp_path / "run", "--method", "ce", *FAST).splitlines()
    assert "  inputs: 2 numbers each: a, b" in said
    end = "; --features names it all the same)"
    assert "  not used: target (by its name a label" + end in said
    assert "  not used: gold (by its name the true labels" + end in said
    assert "  not used: n (it counts the rows" + end in said
    assert "  not used: code (one to one with the labels" + end in said


def test_a_table_of_nothing_but_copies_names_the_way_out(tmp_path):
    path = write(tmp_path / "t.csv", ["code", "label"], [(k, NAMES[k]) for k in B.given])
    with pytest.raises(DubitoError, match=r"'code' was left out: one to one with the labels; --features"):
        find(FitJob(path, tmp_path / "run"))


def test_a_code_with_an_underscore_is_no_number(tmp_path):
    path = table(tmp_path / "t.csv", code=[f"{i}_{i % 3}" for i in range(60)])
    assert features(path) == ("a", "b")


@pytest.mark.parametrize("count", [35, 60])
def test_measurements_are_no_classes(tmp_path, count):
    """A column of decimal fractions is refused, however often each of them occurs."""
    rows = [(*B.x[i % 60], 0.5 + i % count) for i in range(240)]
    path = write(tmp_path / "t.csv", ["a", "b", "label"], rows)
    said = dubito("fit", path, "--out", tmp_path / "run", *FAST, ok=False)
    assert said.startswith("these seem to be numbers, not classes")
    assert f"got {count} classes of 240 items" in said
    assert "--label" in said


def test_many_whole_numbers_are_classes(tmp_path):
    from dubito._product.reading import read

    rows = [(*B.x[i % 60], i % 35) for i in range(240)]
    path = write(tmp_path / "t.csv", ["a", "b", "label"], rows)
    assert read(find(FitJob(path, tmp_path / "run")))[0].num_classes == 35
