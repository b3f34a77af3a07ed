"""Data that is not what a run was made from, options that an update cannot heed, and output that nobody reads."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from product_tables import FAST, NAMES, blobs, dubito, read, single_table, write

from dubito._product import training
from dubito._product.comparing import lines
from dubito._product.reading import Scale
from dubito._product.stored import load
from dubito.data import LabelledData


@pytest.fixture
def moved(tmp_path, three):
    """A run of its own, whose table may be changed."""
    data = single_table(tmp_path / "labels.csv", three)
    dubito("fit", data, "--out", tmp_path / "run", "--method", "gce", *FAST)
    return data, tmp_path / "run"


def gold(path, three, separator=","):
    rows = [f"row {i}{separator}{NAMES[three.true[i]]}" for i in range(9)]
    path.write_text("\n".join([f"id{separator}gold", *rows]) + "\n")
    return path


def test_rows_in_another_order_are_other_data(moved, three, tmp_path):
    data, run = moved
    head, *rows = data.read_text().splitlines()
    data.write_text("\n".join([head, *reversed(rows)]) + "\n")
    for asked in (
        ("audit", run, "--out", tmp_path / "a"),
        ("fit", run, "--gold", gold(tmp_path / "g.csv", three)),
    ):
        assert "the data has changed since the run" in dubito(*asked, ok=False)
    data.write_text("\n".join([head, *rows[:-1]]) + "\n")
    assert "179 examples for 180" in dubito("audit", run, "--out", tmp_path / "a", ok=False)
    assert not (run / "gold.csv").exists()
    data.write_text("\n".join([head, *rows]) + "\n")
    assert "180 labels" in dubito("audit", run, "--out", tmp_path / "a")


def test_runs_whose_features_were_read_in_float32_go_on(three, tmp_path, monkeypatch):
    data = single_table(tmp_path / "labels.csv", three)

    def narrow(self, examples):
        return exact(self, replace(examples, inputs=examples.inputs.float()), torch.float32)

    exact = Scale.apply
    monkeypatch.setattr(Scale, "apply", narrow)
    dubito("fit", data, "--out", tmp_path / "run", "--method", "ce", *FAST)
    monkeypatch.undo()
    assert "180 labels" in dubito("audit", tmp_path / "run", "--out", tmp_path / "a")


def test_a_file_of_the_same_name_here_is_not_taken_for_the_runs(tmp_path, three, monkeypatch):
    monkeypatch.chdir(tmp_path)
    single_table(tmp_path / "labels.csv", three)
    dubito("fit", "labels.csv", "--out", "run", "--method", "gce", *FAST)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    single_table(tmp_path / "elsewhere" / "labels.csv", blobs(seed=1))
    assert load(tmp_path / "run").located().path == str(tmp_path / "labels.csv")
    assert "180 labels" in dubito("audit", "../run", "--out", "a")


def test_gold_names_its_column_and_any_separator_is_read(trained, table, three, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    assert "no column for the label" in dubito("fit", run, "--gold", table, ok=False)
    said = dubito("audit", run, "--gold", gold(tmp_path / "g.csv", three, ";"), "--out", tmp_path / "a")
    assert "171 labels" in said


@pytest.mark.parametrize(
    "option", ["--method=ln", "--epochs=3", "--folds=3", "--seed=5", "--backbone=linear"]
)
def test_an_update_refuses_options_of_a_new_run(trained, three, tmp_path, option):
    assert "is of a new run" in dubito(
        "fit", trained, "--gold", gold(tmp_path / "g.csv", three), option, ok=False
    )


def test_labels_are_no_features_and_sizes_are_of_images(tmp_path, three):
    rows = [(*three.x[i], three.given[i], three.true[i]) for i in range(60)]
    data = write(tmp_path / "n.csv", ["a", "b", "label", "true"], rows)
    for features in ("a,label", "a,true"):
        assert "labels cannot be a feature" in dubito(
            "fit", data, "--features", features, "--out", tmp_path / "run", ok=False
        )
    assert "--size is for images" in dubito("fit", data, "--size", "10", "--out", tmp_path / "run", ok=False)
    said = dubito("fit", data, "--out", tmp_path / "run", "--method", "ce", *FAST)
    assert "2 numbers each: a, b" in said, "a column of true classes is not an input"


def test_predictions_do_not_overwrite_their_data(trained, table, tmp_path):
    new = tmp_path / "new.csv"
    shutil.copy(table, new)
    assert "would overwrite" in dubito("predict", trained, new, "--out", new, ok=False)
    assert new.read_bytes() == table.read_bytes()


def test_equal_differences_are_no_proof():
    def runs(*accuracies):
        return [{"accuracy": a, "log_likelihood": 0.0, "seconds": 1.0, "chosen": ""} for a in accuracies]

    told = {line.method: line for line in lines({"ce": runs(85 / 120, 0.7), "gce": runs(0.7, 83 / 120)})}
    assert told["gce"].p is None
    assert told["gce"].difference == pytest.approx(-1 / 120)


def test_what_is_piped_to_head_is_written_all_the_same(trained, table, tmp_path):
    labels = [row["label"] for row in read(table)]
    probs = np.full((len(labels), 3), 0.1)
    probs[np.arange(len(labels)), [sorted(set(labels)).index(v) for v in labels]] = 0.8
    np.save(tmp_path / "p.npy", probs)
    script = "import sys; from dubito.cli import main; sys.argv[0] = 'dubito'; main()"
    asked = [sys.executable, "-c", script, "audit", str(table), "--probs", "p.npy", "--out", "a"]
    run = subprocess.Popen(asked, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    run.stdout.close()  # as `head -0` does
    assert run.wait(120) == 0, run.stderr.read().decode()
    assert {p.name for p in (tmp_path / "a").iterdir()} >= {"audit.csv", "audit.html"}


def test_a_finished_network_is_taken_from_an_older_folder_but_not_for_other_data(tmp_path, monkeypatch):
    def count(*given):
        trained.append(given)
        return kept(*given)

    def without(data):
        return None if data is None else {k: v for k, v in describe(data).items() if k != "contents"}

    trained, kept, describe = [], training._train, training.describe
    data = LabelledData(torch.linspace(0, 1, 600).reshape(300, 2), torch.arange(300) % 2)
    other = replace(data, inputs=data.inputs.index_fill(0, torch.tensor([6]), 9.0))  # not one of 256 rows
    setting = training.Setting("mlp", (2,), 2, None, epochs=1, device="cpu")
    monkeypatch.setattr(training, "_train", count)
    for place, wrote in (("old", without), ("new", describe)):
        monkeypatch.setattr(training, "describe", wrote)
        training.train(setting, "ce", {}, data, out=tmp_path / place)
        monkeypatch.setattr(training, "describe", describe)
        training.train(setting, "ce", {}, data, out=tmp_path / place)
    assert len(trained) == 2
    training.train(setting, "ce", {}, other, out=tmp_path / "new")
    assert len(trained) == 3


def test_a_fold_that_nobody_labelled_is_predicted():
    """Nine labels in 30 rows and ten folds: one has none to be judged by."""
    labels = torch.full((30,), -1).index_copy(0, torch.arange(9), torch.arange(9) % 2)
    data = LabelledData(torch.linspace(0, 1, 60).reshape(30, 2), labels)
    setting = training.Setting("mlp", (2,), 2, None, epochs=1, device="cpu")
    found = training.Folds(setting, data, torch.arange(30) % 10, None, print).all("ce", {})
    assert torch.allclose(found.exp().sum(-1), torch.ones(30, dtype=torch.float64))
