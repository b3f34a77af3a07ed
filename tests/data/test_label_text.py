"""Labels as people write them: the rules, one by one."""

from __future__ import annotations

import logging

import numpy as np
import pandas as pd
import pytest

from dubito import DubitoError
from dubito.data.labels import Coder, in_order, label_text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("007", "007"),
        ("7", "7"),
        ("NA", "NA"),
        ("None", "None"),
        ("nan", "nan"),
        ("null", "null"),
        (1, "1"),
        (1.0, "1"),
        ("1.0", "1"),
        ("1.000", "1"),
        ("-2.0", "-2"),
        ("01.0", "01.0"),
        ("3.5", "3.5"),
        (3.5, "3.5"),
        (np.int8(4), "4"),
        (np.float32(4.0), "4"),
        (True, "True"),
        (np.bool_(False), "False"),
        ("  cat\t", "cat"),
        ("\ufeffcat", "cat"),
        ("猫", "猫"),
        ("قطة", "قطة"),
        ("e\u0301te\u0301", "été"),
        (b"caf\xc3\xa9", "café"),
        ("=1+1", "=1+1"),
        ("<script>", "<script>"),
        ("١", "١"),
        ("", None),
        ("   ", None),
        (None, None),
        (float("nan"), None),
        (np.float64("nan"), None),
        (pd.NA, None),
        (pd.NaT, None),
    ],
)
def test_one_label(value, text):
    assert label_text(value) == text


@pytest.mark.parametrize("value", [float("inf"), [1], {"a": 1}, object()])
def test_what_is_no_label(value):
    with pytest.raises(DubitoError, match="a label must be text or a number"):
        label_text(value)


def code(values, **more):
    coder = Coder(**more)
    coder.extend(values, lambda i: f"row {i}")
    numbers, names = coder.finish()
    return numbers.tolist(), names


def test_classes_are_numbered_by_size_or_by_letter():
    assert code(["10", "9", "10"]) == ([1, 0, 1], ("9", "10"))
    assert code(["b10", "b9"]) == ([0, 1], ("b10", "b9"))
    assert code([1, 1.0, "1.0", "1", "2"]) == ([0, 0, 0, 0, 1], ("1", "2"))
    assert code(["01", "1"]) == ([0, 1], ("01", "1"))
    assert in_order(["9" * 5000, "1"]) == ["1", "9" * 5000]


def test_given_classes_keep_their_order_and_refuse_others():
    assert code(["cat", "dog"], classes=["dog", "cat", "cow"]) == ([1, 0], ("dog", "cat", "cow"))
    with pytest.raises(DubitoError, match="not one of the classes at row 1: got 'dgo'; did you mean 'dog'"):
        code(["dog", "dgo"], classes=["dog", "cat"])
    with pytest.raises(DubitoError, match="classes must be different names"):
        Coder(classes=["1", 1.0])


def test_missing_labels_are_refused_or_kept():
    with pytest.raises(DubitoError, match="no label given at row 1"):
        code(["a", ""])
    assert code(["b", None, "a"], missing="keep") == ([1, -1, 0], ("a", "b"))
    assert code([], missing="keep") == ([], ())
    with pytest.raises(DubitoError, match="unknown treatment"):
        Coder(missing="drop")


def test_true_labels_share_the_classes():
    observed = Coder()
    true = Coder(like=observed, missing="keep")
    observed.extend(["b", "c"], str)
    true.extend(["a", None], str)
    assert observed.finish()[1] == true.finish()[1] == ("a", "b", "c")
    assert observed.finish()[0].tolist() == [1, 2]
    assert true.finish()[0].tolist() == [0, -1]


def test_classes_that_differ_in_case_only_are_mentioned(caplog):
    with caplog.at_level(logging.WARNING, "dubito"):
        code(["Cat", "cat", "dog"])
    assert "'Cat' and 'cat' differ in case only" in caplog.text
