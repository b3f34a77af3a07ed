"""Dense tables, frames, CSV and Parquet."""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
import pytest
import torch

from dubito.crowd import CrowdLabels
from dubito.errors import DubitoError


def test_dense_there_and_back(simulate):
    crowd, *_ = simulate(0)
    table = crowd.to_dense()
    assert table.shape == (60, 7)
    back = CrowdLabels.from_dense(table, classes=3)
    assert np.array_equal(back.to_dense(), table)
    gaps = np.where(table < 0, np.nan, table)
    assert np.array_equal(CrowdLabels.from_dense(gaps, classes=3).to_dense(), table)
    assert np.array_equal(CrowdLabels.from_dense(torch.from_numpy(table), classes=3).to_dense(), table)
    assert np.array_equal(crowd.to_dense(missing=-9)[table < 0], np.full((table < 0).sum(), -9))


def test_dense_frames_and_text():
    frame = pd.DataFrame({"ann": ["cat", None], "bob": ["dog", "cat"]}, index=["x", "y"])
    crowd = CrowdLabels.from_dense(frame)
    assert crowd.annotator_ids.tolist() == ["ann", "bob"]
    assert crowd.item_ids.tolist() == ["x", "y"]
    assert len(crowd) == 3
    assert len(CrowdLabels.from_dense([["a", "-"], ["-", "b"]], missing="-")) == 2
    integers = pd.DataFrame(
        {"ann": pd.array([1, None], dtype="Int64"), "bob": pd.array([0, 1], dtype="Int64")}
    )
    assert CrowdLabels.from_dense(integers).to_dense().tolist() == [[1, 0], [-1, 1]]


def test_long_frame_there_and_back():
    frame = pd.DataFrame({"task": ["t2", "t1"], "worker": [5, 6], "label": ["NA", "01"]})
    crowd = CrowdLabels.from_long(frame)
    assert crowd.to_long().equals(frame) or crowd.to_long().values.tolist() == frame.values.tolist()
    renamed = frame.rename(columns={"task": "image", "worker": "who", "label": "said"})
    assert len(CrowdLabels.from_long(renamed, item="image", annotator="who", label="said")) == 2
    with pytest.raises(DubitoError, match="no column 'wroker' at the table; did you mean 'worker'"):
        CrowdLabels.from_long(frame, annotator="wroker")
    with pytest.raises(DubitoError, match="row 1"):
        CrowdLabels.from_long(pd.DataFrame({"task": [1, 2], "worker": [1, 2], "label": ["a", np.nan]}))


def test_csv_there_and_back(tmp_path):
    labels = ["01", "1", "1.0", "NA", "None", "猫, чат", 'say "hi"', "two\nlines", "=1+1"]
    crowd = CrowdLabels(range(9), [f"w{i}" for i in range(9)], labels, confidence=np.arange(9) / 8)
    crowd.to_csv(tmp_path / "labels.csv")
    back = CrowdLabels.from_long(tmp_path / "labels.csv", confidence="confidence")
    assert back.classes[back.label.numpy()].tolist() == labels
    assert back.confidence is not None
    assert crowd.confidence is not None
    assert torch.equal(back.confidence, crowd.confidence)


def test_csv_with_mark_and_other_separators(tmp_path):
    (tmp_path / "a.csv").write_bytes("﻿task,worker,label\r\n1,a,x\r\n\r\n2,b,y\r\n".encode())
    (tmp_path / "a.tsv").write_text("task\tworker\tlabel\n1\ta\tx\n2\tb\ty\n")
    (tmp_path / "b.csv").write_text("task;worker;label\n1;a;x\n2;b;y\n")
    assert len(CrowdLabels.from_long(tmp_path / "a.csv")) == 2
    assert len(CrowdLabels.from_long(str(tmp_path / "a.tsv"))) == 2
    assert len(CrowdLabels.from_long(tmp_path / "b.csv", delimiter=";")) == 2
    with pytest.raises(DubitoError, match='delimiter=";"'):
        CrowdLabels.from_long(tmp_path / "b.csv")


@pytest.mark.rel
def test_bad_files_are_refused_by_line(tmp_path):
    """Scorecard 14: a file's culprit is named with file, line and column."""
    head = "task,worker,label\n"
    cases = {
        "line 3: expected 3, got 2": head + "1,a,x\n2,b\n",
        "empty cell in column 'worker' at .*line 2": head + "1,,x\n",
        "line 1; did you mean 'workers'": "task,workers,label\n1,a,x\n",
        "column 'label' occurs twice": "task,worker,label,label\n1,a,x,y\n",
        "not a CSV file at .*after line 1": head + '1,"a"b,x\n',
        "no column 'task'": "",
    }
    for message, text in cases.items():
        (tmp_path / "bad.csv").write_text(text)
        with pytest.raises(DubitoError, match=message):
            CrowdLabels.from_long(tmp_path / "bad.csv")
    (tmp_path / "bad.csv").write_bytes(head.encode() + b"1,a,\xff\xfe\n")
    with pytest.raises(DubitoError, match="not UTF-8"):
        CrowdLabels.from_long(tmp_path / "bad.csv")
    (tmp_path / "big.csv").write_text(head + "1,a," + "x" * 200_000 + "\n")
    with pytest.raises(DubitoError, match="not a CSV file"):
        CrowdLabels.from_long(tmp_path / "big.csv")
    with pytest.raises(DubitoError, match="no such file"):
        CrowdLabels.from_long(tmp_path / "none.csv")
    (tmp_path / "labels.xlsx").write_text("x")
    with pytest.raises(DubitoError, match="unknown kind"):
        CrowdLabels.from_long(tmp_path / "labels.xlsx")


def test_parquet(tmp_path):
    frame = pd.DataFrame({"task": [3, 1], "worker": ["a", "b"], "label": ["NA", "01"]})
    frame.to_parquet(tmp_path / "labels.parquet")
    crowd = CrowdLabels.from_long(tmp_path / "labels.parquet")
    assert crowd.to_long().values.tolist() == frame.values.tolist()
    with pytest.raises(DubitoError, match="did you mean 'worker'"):
        CrowdLabels.from_long(tmp_path / "labels.parquet", annotator="workr")
    frame.assign(label=["a", None]).to_parquet(tmp_path / "gap.parquet")
    with pytest.raises(DubitoError, match=r"no value in column 'label' at .*row 1"):
        CrowdLabels.from_long(tmp_path / "gap.parquet")
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 nonsense")
    with pytest.raises(DubitoError, match="not a readable Parquet"):
        CrowdLabels.from_long(tmp_path / "bad.parquet")


def test_without_pandas_and_pyarrow(tmp_path, monkeypatch):
    crowd = CrowdLabels([0, 0], [0, 1], [1, 0])
    (tmp_path / "x.parquet").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "pandas", None)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(DubitoError, match=r"dubito\[tables\]"):
        crowd.to_long()
    with pytest.raises(DubitoError, match=r"dubito\[tables\]"):
        CrowdLabels.from_long(tmp_path / "x.parquet")


def test_parquet_there_and_back(tmp_path):
    pytest.importorskip("pyarrow")
    crowd = CrowdLabels([7, 7, 9], ["a", "b", "b"], ["yes", "no", "yes"], time=[1.5, 2.0, 3.0])
    crowd.to_parquet(tmp_path / "labels.parquet", item="image")
    again = CrowdLabels.from_long(tmp_path / "labels.parquet", item="image", time="time")
    assert again.item_ids.tolist() == [7, 9]
    assert again.to_long().equals(crowd.to_long())


def test_blank_cells_are_refused_with_their_place(tmp_path):
    (tmp_path / "a.csv").write_text("task,worker,label\n1,a,x\n2,b, \n")
    with pytest.raises(DubitoError, match=r"empty cell in column 'label' at .*a.csv, line 3"):
        CrowdLabels.from_long(tmp_path / "a.csv")
    frame = pd.DataFrame({"task": [3, 1], "worker": ["a", " "], "label": ["NA", "01"]})
    frame.to_parquet(tmp_path / "a.parquet")
    with pytest.raises(DubitoError, match=r"empty text in column 'worker' at .*a.parquet, row 1"):
        CrowdLabels.from_long(tmp_path / "a.parquet")


def test_gaps_of_a_masked_array():
    table = np.ma.array([[0, 1, 1], [1, 0, 0]], mask=[[0, 0, 1], [0, 1, 0]])
    crowd = CrowdLabels.from_dense(table)
    assert crowd.to_dense().tolist() == [[0, 1, -1], [1, -1, 0]]


def test_gaps_written_as_text():
    frame = pd.DataFrame({"w1": ["cat", "-1"], "w2": ["-1", "cat"]})
    crowd = CrowdLabels.from_dense(frame)
    assert crowd.classes.tolist() == ["cat"]
    assert len(crowd) == 2


def test_a_negative_cell_is_named_by_row_and_column():
    table = np.zeros((80, 9), dtype=int)
    table[70, 5] = -7
    with pytest.raises(DubitoError, match=r"row 70, column 5.*got -7.*missing="):
        CrowdLabels.from_dense(table)


def test_lists_of_different_lengths():
    said = {"a": {"ann": "cat", "bob": "dog"}, "b": [("bob", "cat")], "c": []}
    crowd = CrowdLabels.from_lists(said)
    assert crowd.item_ids.tolist() == ["a", "b", "c"]
    assert crowd.to_dense().tolist() == [[0, 1], [-1, 0], [-1, -1]]
    assert CrowdLabels.from_lists(list(said.values())).to_dense().tolist() == crowd.to_dense().tolist()
    for wrong in ([[0, 1], [1]], [{"ann": 0}, 3], "ab"):
        with pytest.raises(DubitoError, match="labels"):
            CrowdLabels.from_lists(wrong)
    with pytest.raises(DubitoError, match="from_lists"):
        CrowdLabels.from_dense([[0, 1], [1]])


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_rows_without_a_label_are_left_out_when_told(tmp_path, kind):
    frame = pd.DataFrame({"task": [1, 1, 2, 2], "worker": ["a", "b", "a", "b"], "label": [0, -1, 1, -1]})
    path = tmp_path / f"labels.{kind}"
    frame.to_csv(path, index=False) if kind == "csv" else frame.to_parquet(path)
    for missing in (-1, "-1"):
        crowd = CrowdLabels.from_long(path, missing=missing, text=True)
        assert crowd.classes.tolist() == ["0", "1"]
        assert len(crowd) == 2
    twice = pd.concat([frame, frame.iloc[:1]])
    twice.to_csv(tmp_path / "twice.csv", index=False)
    with pytest.raises(DubitoError, match="lines 2 and 6"):
        CrowdLabels.from_long(tmp_path / "twice.csv", missing=-1)
