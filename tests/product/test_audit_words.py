"""What `dubito audit` says is true of the labels that it counts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from product_tables import NAMES, blobs, dubito, write

from dubito._audit import Estimate, audit
from dubito._product.auditing import summary
from dubito._product.findings import Findings
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
    assert "kind of noise: none - There is hardly any label noise" in words(0.01)


def test_labels_of_checked_items_are_counted_once(trained_crowd, three, tmp_path):
    gold = write(tmp_path / "g.csv", ["item", "gold"], [(f"i{i}", NAMES[three.true[i]]) for i in range(10)])
    said = dubito("audit", trained_crowd, "--gold", gold, "--out", tmp_path / "a")
    assert "360 labels, 20 of them on 10 checked items, 3 classes" in said
