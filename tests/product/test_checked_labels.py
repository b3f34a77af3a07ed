"""Labels that people have checked go back in: into a run, or beside anyone's probabilities."""

from __future__ import annotations

import json
import shutil

import numpy as np
from product_tables import FAST, NAMES, blobs, dubito, read, single_table, write


def spot_gold(path, sample, truth):
    """The sample that a run asks for, filled in by someone who knows the truth."""
    return write(path, ["id", "given", "gold"], [(r["id"], r["given"], truth[r["id"]]) for r in sample])


def test_a_run_asks_for_a_sample_and_takes_it_in(trained, three, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    truth = {f"row {i}": NAMES[k] for i, k in enumerate(three.true)}
    sample = read(run / "spot_check.csv")
    assert list(sample[0]) == ["id", "given", "gold"], "no suggestion that could sway who checks"
    assert len(sample) == 45, "a quarter of few labels"
    said = dubito("audit", run, "--gold", spot_gold(tmp_path / "gold.csv", sample, truth), "--out", tmp_path)
    assert "135 labels" in said
    assert not (run / "gold.csv").exists(), "an audit leaves the run as it was"
    dubito("fit", run, "--gold", tmp_path / "gold.csv")
    metrics = json.loads((run / "metrics.json").read_text())
    wrong = (three.true != three.given)[[f"row {i}" not in {r["id"] for r in sample} for i in range(180)]]
    assert metrics["checked"] == 45
    assert metrics["noise_rate"]["low"] <= wrong.mean() <= metrics["noise_rate"]["high"]
    left = {r["id"] for r in read(run / "spot_check.csv")}
    assert not left & {r["id"] for r in sample}, "what was checked is not asked for again"


def test_the_first_command_again_does_not_undo_checked_labels(trained, table, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    gold = write(tmp_path / "gold.csv", ["id", "gold"], [("row 1", "ant"), ("row 2", "bee")])
    dubito("fit", run, "--gold", gold)

    def files():
        return {p: p.read_bytes() for p in run.rglob("*") if p.is_file() and not p.name.startswith(".")}

    before = files()
    again = ["fit", table, "--out", run, "--method", "gce", *FAST]
    said = dubito(*again, ok=False)
    assert "the run holds 2 checked labels" in said
    assert f"`dubito fit {run} --gold FILE`, or give another --out" in said
    assert files() == before
    (run / "gold.csv").unlink()  # as a command leaves it that was killed before the last file
    assert "the run holds checked labels" in dubito(*again, ok=False)
    dubito("fit", run, "--gold", gold)
    assert len(read(run / "gold.csv")) == 2


def test_every_label_may_be_checked(trained, three, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    rows = [(f"row {i}", NAMES[k]) for i, k in enumerate(three.true)]
    said = dubito("fit", run, "--gold", write(tmp_path / "gold.csv", ["id", "gold"], rows))
    assert "Every label was checked." in said
    assert "0 labels" in dubito("audit", run)


def test_checks_beside_anyones_probabilities(tmp_path):
    b = blobs()
    labels = single_table(tmp_path / "labels.csv", b)
    p = np.full((180, 3), 0.1)
    p[np.arange(180), b.true] = 0.8
    probs = write(tmp_path / "p.csv", NAMES, p.tolist())
    gold = write(tmp_path / "gold.csv", ["id", "gold"], [(f"row {i}", NAMES[b.true[i]]) for i in range(30)])
    said = dubito("audit", labels, "--probs", probs, "--gold", gold, "--out", tmp_path / "a")
    assert "150 labels" in said
    assert {r["id"] for r in read(tmp_path / "a" / "audit.csv")} == {f"row {i}" for i in range(30, 180)}
    bad = write(tmp_path / "bad.csv", ["id", "gold"], [("row 3", "ant"), ("row 4", "aunt")])
    said = dubito("audit", labels, "--probs", probs, "--gold", bad, ok=False)
    assert f"{bad}, line 3, column 'gold': got 'aunt'; did you mean 'ant'?" in said


def test_rows_of_probabilities_are_named_by_file_and_line(tmp_path):
    labels = single_table(tmp_path / "labels.csv", blobs())
    rows = [[0.8, 0.1, 0.1]] * 179 + [[7, 0.1, 0.1]]
    said = dubito("audit", labels, "--probs", write(tmp_path / "p.csv", NAMES, rows), ok=False)
    assert f"{tmp_path / 'p.csv'}, line 181: expected numbers from 0 that sum to 1, got ant 7" in said


def test_spreadsheets_of_other_countries(trained, three, tmp_path):
    """Semicolons and decimal commas, in training and in prediction; rows that share an id."""
    german = tmp_path / "g.csv"
    lines = [f"row {i};{x:.3f};{y:.3f};{NAMES[k]}" for i, ((x, y), k) in enumerate(zip(three.x, three.given))]
    german.write_text("\n".join(["name;width;height;label", *lines]).replace(".", ","), encoding="utf-8")
    said = dubito("fit", german, "--delimiter", ";", "--out", tmp_path / "run", ok=False)
    assert "write decimal points, not commas, as in line 2, column 'width'" in said
    new = tmp_path / "new.csv"
    new.write_text("height;width\n0.5;1.0\n", encoding="utf-8")
    out = tmp_path / "p.csv"
    assert "pass --delimiter ';'" in dubito("predict", trained, new, "--out", out, ok=False)
    dubito("predict", trained, new, "--delimiter", ";", "--out", out)
    assert len(read(out)) == 1
    (tmp_path / "lacks.csv").write_text("width,note\n1,x\n", encoding="utf-8")
    said = dubito("predict", trained, tmp_path / "lacks.csv", "--out", out, ok=False)
    assert "no column 'height'" in said
    assert "mean 'width'" not in said, "a column that has its own role is not proposed"
    twice = write(tmp_path / "twice.csv", ["id", "x", "label"], [("a", i, "xy"[i % 2]) for i in range(8)])
    said = dubito("fit", twice, "--out", tmp_path / "twice", "--method", "ce", *FAST)
    assert "ids that occur again: 7 (told apart by a number: a (2))" in said


def test_a_path_that_is_not_there_is_refused_before_anything_is_said(tmp_path):
    said = dubito("audit", tmp_path / "gone", ok=False)
    assert said.strip() == f"no such file or folder at {tmp_path / 'gone'}"
