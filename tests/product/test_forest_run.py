"""Tables with thresholds: a forest is found by noisy labels, and goes on like any network."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
from product_tables import dubito, read, write

from dubito.sklearn import NoisyLabelClassifier


def rules(n: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Whether exactly one of two numbers is above its threshold, among six; a fifth of the labels wrong."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 6)) * 10.0 ** np.arange(-2, 4)
    true = ((x[:, 0] > 0.003) ^ (x[:, 1] > -0.02)).astype(int)
    return x, true, np.where(rng.random(n) < 0.2, 1 - true, true)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    place = tmp_path_factory.mktemp("rules")
    x, _, given = rules(500, 0)
    rows = [(f"r{i}", *x[i].round(7), "ab"[given[i]]) for i in range(500)]
    data = write(place / "labels.csv", ["id", *"uvwxyz", "label"], rows)
    said = dubito("fit", data, "--out", place / "run", "--folds", "3", "--epochs", "10", "--device", "cpu")
    return data, place / "run", said


def test_a_table_of_thresholds_gets_a_forest(run, tmp_path):
    data, folder, said = run
    assert "auto: gce:q=0.7 on a forest" in said
    facts = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    assert "gce:q=0.7 (forest)" in [e["method"] for e in facts["race"]]
    report = (folder / "report.html").read_text(encoding="utf-8")
    assert "The model (gce:q=0.7 on a forest) predicts" in report
    assert "The forest was better, so it was taken." in report
    dubito("predict", folder, data, "--out", tmp_path / "same.csv")
    assert read(tmp_path / "same.csv") == read(folder / "predictions.csv")
    x, true, _ = rules(500, 1)
    new = write(tmp_path / "new.csv", ["id", *"uvwxyz"], [(f"n{i}", *x[i].round(7)) for i in range(500)])
    dubito("predict", folder, new, "--out", tmp_path / "out.csv")
    found = [row["predicted"] for row in read(tmp_path / "out.csv")]
    assert np.mean([said == "ab"[k] for said, k in zip(found, true)]) > 0.9


def test_its_audit_finds_the_wrong_labels(run):
    _, folder, _ = run
    _, true, given = rules(500, 0)
    quality = {row["id"]: float(row["p_wrong"]) for row in read(folder / "label_quality.csv")}
    suspects = sorted(range(500), key=lambda i: -quality[f"r{i}"])[:80]
    assert (given != true)[suspects].mean() > 0.8


def test_checked_labels_grow_it_anew(run, tmp_path):
    """And the run is what it was but for them."""
    _, folder, _ = run
    _, true, given = rules(500, 0)
    wrong = np.flatnonzero(true != given)[:30]
    gold = write(tmp_path / "gold.csv", ["id", "gold"], [(f"r{i}", "ab"[true[i]]) for i in wrong])
    before = read(folder / "predictions.csv")
    assert "30 checked labels" in dubito("fit", folder, "--gold", gold, "--device", "cpu")
    after = read(folder / "predictions.csv")
    assert {row["predicted"] for row in after} == {"a", "b"}
    right = [np.mean([r["predicted"] == "ab"[k] for r, k in zip(rows, true)]) for rows in (before, after)]
    assert right[1] > right[0] - 0.02


def test_the_estimator_finds_it_too():
    x, _, given = rules(500, 0)
    new, true, _ = rules(500, 1)
    found = NoisyLabelClassifier(random_state=0, device="cpu", cv=3).fit(x, given)
    assert found.network_ == "forest"
    assert found.score(new, true) > 0.9
    slopes = NoisyLabelClassifier(random_state=0, device="cpu", weight_decay=0.01).fit(x, given)
    assert slopes.network_ == "perceptron"
    assert found.score(new, true) > slopes.score(new, true) + 0.05
    again = pickle.loads(pickle.dumps(found))
    assert (again.predict_proba(new) == found.predict_proba(new)).all()
    wrong = given != rules(500, 0)[1]
    assert found.label_quality_[wrong].mean() < 0.5 < found.label_quality_[~wrong].mean()


def test_a_smooth_table_keeps_its_network():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 6))
    y = (x.sum(1) > 0).astype(int)
    found = NoisyLabelClassifier(random_state=0, device="cpu").fit(
        x, np.where(rng.random(400) < 0.2, 1 - y, y)
    )
    assert found.network_ == "perceptron"


def test_a_forest_may_be_asked_for():
    x, _, given = rules(300, 0)
    x[::7, 3] = np.nan
    one, two = (NoisyLabelClassifier(backbone="forest", random_state=0).fit(x, given) for _ in range(2))
    assert one.network_ == "forest"
    assert (one.predict_proba(x) == two.predict_proba(x)).all()
