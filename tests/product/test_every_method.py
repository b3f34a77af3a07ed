"""Every method by name through fit, predict and gold."""

from __future__ import annotations

import json

import pytest
from product_tables import blobs, crowd_table, dubito, read, single_table, write

from dubito.checkpoint import load_latest
from dubito.methods import METHODS

pytestmark = pytest.mark.nightly
QUICK = ["--epochs", "4", "--folds", "2", "--device", "cpu"]
SINGLE = [name for name, method in METHODS.items() if "single" in method.valid]
CROWD = [name for name, method in METHODS.items() if "crowd" in method.valid and name != "oracle"]


@pytest.mark.parametrize(
    ("name", "crowd"), [*((n, False) for n in SINGLE), *((n, True) for n in CROWD), ("smooth", True)]
)
def test_method(name, crowd, tmp_path):
    b = blobs(90)
    table = (crowd_table if crowd else single_table)(tmp_path / "labels.csv", b)
    run = tmp_path / "run"
    method = {"coteaching": "coteaching:rate=0.2", "mentornet": "mentornet:rate=0.2"}.get(name, name)
    dubito("fit", table, "--out", run, "--method", method, *QUICK)
    dubito("predict", run, table, "--out", tmp_path / "p.csv")
    assert (tmp_path / "p.csv").read_bytes() == (run / "predictions.csv").read_bytes()
    some = [(row["id"], row["suggested"]) for row in read(run / "relabel.csv")][:1]
    dubito("fit", run, "--gold", write(tmp_path / "gold.csv", ["id", "gold"], some))
    assert json.loads((run / "metrics.json").read_text())["checked"] == 1
    assert load_latest(run / "model").step == 1
