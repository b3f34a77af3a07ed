"""What `dubito audit` says is true of the labels that it counts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from product_tables import FAST, NAMES, blobs, dubito, write

from dubito._audit import Estimate, audit
from dubito._product.auditing import summary
from dubito._product.choice import Choice
from dubito._product.findings import Findings
from dubito._product.page import _summary
from dubito._report.audits import from_audit


def test_noise_of_no_known_kind_is_not_called_hardly_any():
    b = blobs(60, 0.0)
    found = audit(b.given.tolist(), np.eye(3)[b.true] * 0.9 + 0.1 / 3, bootstrap=0)
    found = replace(found, kind=replace(found.kind, name="none"))

    def words(rate: float) -> str:
        a = replace(found, noise_rate=Estimate(rate, rate, rate))
        made = from_audit(a)
        lines = summary(Findings(a, np.arange(60), a.probabilities, a.probabilities, np.full(60, -1)))
        return "\n".join([*lines, *map(str, made.summary), *(str(f.value) for f in made.noise)])

    assert "hardly any" not in words(0.05)
    assert "kind of noise: unclear - What kind of noise that is, these labels cannot tell" in words(0.05)
    assert "kind of noise: none - There is hardly any label noise that shows" in words(0.01)


def test_the_estimated_accuracy_has_its_interval_and_is_rough_where_a_note_says_so():
    b = blobs(60, 0.0)
    found = audit(b.given.tolist(), np.eye(3)[b.true] * 0.9 + 0.1 / 3, bootstrap=0)
    metrics = {
        "noisy_accuracy": {"value": 0.5, "low": 0.4, "high": 0.6},
        "estimated_accuracy": {"value": 0.606, "low": 0.31, "high": 0.902},
    }

    def said(*notes: str) -> str:
        a = replace(found, notes=notes)
        judged = Findings(a, np.arange(60), a.probabilities, a.probabilities, np.full(60, -1))
        return _summary(judged, metrics, Choice("ce", {}, (), ()), "")[1]

    assert said().endswith("and by our estimate 60.6 % of the true classes (31.0 to 90.2 %).")
    assert "by our estimate roughly 60.6 % of the true classes" in said("the model is weak")
    metrics["true_accuracy"] = {"value": 0.7, "low": 0.6, "high": 0.8}
    assert said("the model is weak").endswith("and 70.0 % of the true classes.")


def test_labels_of_checked_items_are_counted_once(trained_crowd, three, tmp_path):
    gold = write(tmp_path / "g.csv", ["item", "gold"], [(f"i{i}", NAMES[three.true[i]]) for i in range(10)])
    said = dubito("audit", trained_crowd, "--gold", gold, "--out", tmp_path / "a")
    assert "360 labels, 20 of them on 10 checked items, 3 classes" in said


def test_labels_given_twice_by_one_annotator_are_told_of(three, tmp_path):
    once = [(f"i{i}", f"w{r}", NAMES[three.true[i]], *three.x[i]) for i in range(60) for r in range(2)]
    other = [(*once[k][:2], NAMES[(three.true[k // 2] + 1) % 3], *once[k][3:]) for k in (0, 5)]
    table = write(tmp_path / "c.csv", ["item", "worker", "label", "a", "b"], [*once, *once[:6:2], *other])
    told = "repeated labels: 4 pairs of item and annotator (2 repeat one label, 2 contradict it; each label counts)"
    assert told in dubito("fit", table, "--out", tmp_path / "run", "--method", "ce", *FAST)
    assert f"note: {told}" in dubito("audit", tmp_path / "run", "--out", tmp_path / "a")
    p = np.full((60, 3), 0.1)
    p[np.arange(60), three.true[:60]] = 0.8
    np.save(tmp_path / "p.npy", p)
    said = dubito("audit", table, "--probs", tmp_path / "p.npy", "--out", tmp_path / "b")
    assert f"note: {told}" in said
