"""`dubito compare`: the same splits for all, paired tests, one table in three forms."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pytest
from product_tables import FAST, dubito

from dubito._product import training
from dubito._product.commands import _methods
from dubito._product.comparing import lines, render
from dubito.metrics import holm, paired_t_test

QUICK = [w for w in FAST if w not in ("--folds", "2")]


def record(accuracy: float) -> dict[str, object]:
    return {"accuracy": accuracy, "log_likelihood": -accuracy, "seconds": 1.0, "chosen": ""}


def test_tests_are_paired_by_seed_and_corrected():
    ce, a, b = [0.70, 0.72, 0.71], [0.75, 0.78, 0.75], [0.71, 0.71, 0.70]
    table = lines({"ce": [record(v) for v in ce], "a": [record(v) for v in a], "b": [record(v) for v in b]})
    assert [line.method for line in table] == ["a", "ce", "b"]
    by = {line.method: line for line in table}
    p = [paired_t_test(a, ce).p, paired_t_test(b, ce).p]
    assert by["a"].p == p[0]
    assert [by["a"].p_holm, by["b"].p_holm] == holm(p)
    assert by["a"].difference == pytest.approx(np.mean(a) - np.mean(ce))
    assert by["ce"].p is None
    assert by["a"].accuracy_sd == pytest.approx(np.std(a, ddof=1))


def test_three_forms_say_the_same():
    table = lines({"ce": [record(0.7), record(0.8)], "a": [record(0.9), record(0.85)]})
    from_json = json.loads(render(table, "json"))
    from_csv = list(csv.DictReader(io.StringIO(render(table, "csv"))))
    assert [r["method"] for r in from_json] == [r["method"] for r in from_csv] == ["a", "ce"]
    assert float(from_csv[0]["accuracy"]) == from_json[0]["accuracy"]
    text = render(table, "text").splitlines()
    assert len({len(line) for line in text[1:3]}) == 1
    assert text[1].startswith("a ")
    assert "0.8750" in text[1]


def test_methods_with_parameters_and_commas():
    assert _methods("ce,ln:temperature=0.5,lam=1.0,gce") == ("ce", "ln:temperature=0.5,lam=1.0", "gce")


def test_command_prints_json_alone_and_resumes(table, tmp_path, monkeypatch):
    words = ["compare", table, "--methods", "ce,gce", "--seeds", "2", "--out", tmp_path / "c", *QUICK]
    text = dubito(*words)
    assert "paired t-tests over seeds" in text
    assert json.loads((tmp_path / "c" / "compare.json").read_text())[0]["seeds"] == 2
    before = (tmp_path / "c" / "compare.csv").read_bytes()
    monkeypatch.setattr(training, "_train", lambda *a: pytest.fail("trained again"))
    dubito(*words)
    assert (tmp_path / "c" / "compare.csv").read_bytes() == before, "seconds are those of the training"


def test_a_crowd_is_compared_by_its_labels(crowd):
    said = dubito("compare", crowd, "--methods", "ce,trace", "--seeds", "1", *QUICK)
    assert "more seeds give tests" in said


def test_bad_words_are_refused_with_the_nearest(table):
    assert "did you mean 'ln'" in dubito("compare", table, "--methods", "ce,lnn", ok=False)
    assert "choose from csv, json, text" in dubito("compare", table, "--format", "yaml", ok=False)
    assert "several annotators" in dubito("compare", table, "--methods", "ce,trace", ok=False)
    assert "different names" in dubito("compare", table, "--methods", "ce,ce", ok=False)
