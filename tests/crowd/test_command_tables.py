"""`dubito crowd` on tables as people write them: names of columns, spellings, delimiters."""

from __future__ import annotations

import pandas as pd
import pytest
from typer.testing import CliRunner

from dubito.cli import app
from dubito.crowd import run
from dubito.errors import DubitoError


def _said(tmp_path, text, **options):
    path = tmp_path / "said.csv"
    path.write_text(text)
    return run(path, **options)


def test_spellings_of_one_class_are_one(tmp_path):
    """As in all readers: white space, composed letters, a decimal point that a spreadsheet added."""
    path = tmp_path / "labels.csv"
    labels = ["e\u0301 ", "\u00e9", "1", "1.0", " 1"]
    lines = [f"{n},{r},{label}" for n, label in enumerate(labels) for r in "ab"]
    path.write_text("\n".join(["task,worker,label", *lines]), encoding="utf-16")
    assert run(path).crowd.classes.tolist() == ["1", "\u00e9"]


def test_a_column_of_numbers_is_refused(tmp_path):
    path = tmp_path / "labels.csv"
    path.write_text("task,worker,label\n" + "".join(f"{n // 2},{n % 2},{n}\n" for n in range(80)))
    with pytest.raises(DubitoError, match="80 classes of 40 items"):
        run(path)
    with pytest.raises(DubitoError, match="unknown kind of table"):
        run(path.rename(tmp_path / "labels.csv.gz"))


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_spellings_of_one_person_are_one(tmp_path, kind):
    """White space around a name and composed letters make no second person and no second item."""
    frame = pd.DataFrame(
        {
            "task": ["1", "1 ", " \u00e9", "e\u0301"],
            "worker": ["bob", "Zoe\u0308", "bob ", "Zo\u00eb\u00a0"],
            "label": ["x", "y", "y", "x"],
        }
    )
    path = tmp_path / f"labels.{kind}"
    frame.to_csv(path, index=False) if kind == "csv" else frame.to_parquet(path)
    crowd = run(path).crowd
    assert crowd.annotator_ids.tolist() == ["Zo\u00eb", "bob"]
    assert crowd.item_ids.tolist() == ["1", "\u00e9"]
    frame["worker"] = ["bob", "bob ", "bob", "ann"]
    frame.to_csv(path, index=False) if kind == "csv" else frame.to_parquet(path)
    with pytest.raises(DubitoError, match="more than once"):
        run(path)


def test_repeated_labels_are_named_by_line(tmp_path):
    path = tmp_path / "labels.csv"
    path.write_text("task,worker,label\n1,ann,x\n\n1,bob,x\n2,ann,y\n1,bob,y\n")
    said = CliRunner().invoke(app, ["crowd", str(path)])
    error = said.exception
    assert isinstance(error, DubitoError)
    assert error.where == f"{path}, item '1', annotator 'bob', lines 4 and 6"
    assert "--duplicates" in str(error)
    assert CliRunner().invoke(app, ["crowd", str(path), "--duplicates", "last", "--no-files"]).exit_code == 0
    pd.read_csv(path).to_parquet(tmp_path / "labels.parquet")
    with pytest.raises(DubitoError, match=r"labels.parquet, item 1, annotator 'bob', rows 1 and 3"):
        run(tmp_path / "labels.parquet")


def test_columns_with_capitals_or_white_space(tmp_path):
    path = tmp_path / "labels.csv"
    rows = "1,ann,x\n1,bob,x\n2,ann,y\n"
    for head, columns in (
        ("Item,Annotator,LABEL", ("Item", "Annotator", "LABEL")),
        ("item, annotator, label ", ("item", "annotator", "label")),
        (" Item , Annotator,label", ("Item", "Annotator", "label")),
    ):
        path.write_text(f"{head}\n{rows}")
        found = run(path, out=tmp_path / "out")
        assert found.columns == columns
        assert len(found.crowd) == 3
        assert found.files[0].read_text().startswith(f"{columns[0]},{columns[2]},")
    path.write_text(f"Task, who,label\n{rows}")
    assert run(path, annotator="who").columns == ("Task", "who", "label")
    assert run(path, annotator=" who").columns == ("Task", " who", "label")
    path.write_text("Item,item,worker,label\n0,1,ann,x\n0,1,bob,x\n0,2,ann,y\n")
    assert run(path).crowd.num_items == 2  # the name as it is usually written comes first
    path.write_text("item, item,worker,label\n1,0,ann,x\n1,0,bob,x\n2,0,ann,y\n")
    assert run(path).crowd.num_items == 2
    path.write_text("who, item, item ,label\nann,1,0,x\n")
    with pytest.raises(DubitoError, match="occurs twice"):
        run(path, annotator="who")
    frame = pd.DataFrame({"Item ": [1, 1], " Worker": ["ann", "bob"], "label": ["x", "y"]})
    frame.to_parquet(tmp_path / "labels.parquet")
    assert run(tmp_path / "labels.parquet").columns == ("Item", "Worker", "label")


def test_numbers_with_a_sign_are_written_as_they_are(tmp_path):
    rows = "".join(f"{n},{who},{n % 3 - 1}\n" for n in range(6) for who in ("ann", "bob"))
    found = _said(tmp_path, f"task,worker,label\n{rows}", out=tmp_path / "out")
    assert set(pd.read_csv(tmp_path / "out/consensus.csv").label) == {-1, 0, 1}
    assert any("--missing -1" in note for note in found.summary.notes)
    left = _said(tmp_path, f"task,worker,label\n{rows}", missing="-1")
    assert left.crowd.classes.tolist() == ["0", "1"]


@pytest.mark.parametrize("spelled", ["\t", "\\t", "tab"])
def test_a_tab_may_be_spelled(tmp_path, spelled):
    found = _said(tmp_path, "task\tworker\tlabel\n1\tann\tx\n1\tbob\ty\n", delimiter=spelled)
    assert len(found.crowd) == 2


def test_a_table_with_a_column_for_each_annotator_is_told_what_to_become(tmp_path):
    with pytest.raises(DubitoError, match="a row for each label"):
        _said(tmp_path, "item,ann,bob\n1,x,y\n")
