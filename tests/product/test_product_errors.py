"""What a user did wrong is said in one sentence with file, line, column and the nearest name."""

from __future__ import annotations

import numpy as np
import pytest
from product_tables import FAST, NAMES, blobs, dubito, read, single_table, write
from typer.testing import CliRunner

from dubito._product.given import Labels, read_probs
from dubito._product.reading import distinct
from dubito.cli import app
from dubito.errors import DubitoError


def fit(path, out, *more):
    return dubito("fit", path, "--out", out, *more, *FAST, ok=False)


def test_columns_and_files_are_named_with_the_nearest(table, tmp_path):
    out = tmp_path / "run"
    assert f"{table}, line 1; did you mean 'label'?" in fit(table, out, "--label", "lable")
    assert "did you mean 'labels.csv'?" in fit(table.with_name("label.csv"), out)
    assert "did you mean 'gce'?" in fit(table, out, "--method", "gcee")
    assert "--annotator" in fit(table, out, "--method", "trace")
    assert "name one: --out RUN" in dubito("fit", table, ok=False)
    assert not out.exists(), "nothing is written before the words make sense"


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--backbone", "lenet6"), "did you mean 'lenet5'?"),
        (("--backbone", "cnn4"), "cnn4"),
        (("--device", "gpu"), "expected auto, cpu or a GPU"),
        (("--epochs", "0"), "--epochs is too small: expected at least 1, got 0"),
        (("--size", "-3"), "--size is too small"),
        (("--folds", "1"), "no such number of folds"),
        (("--delimiter", ";", "--label", "label"), "separated by ','"),
    ],
)
def test_options_are_refused_before_anything_is_trained(table, tmp_path, options, complaint):
    said = dubito("fit", table, "--out", tmp_path / "run", "--method", "ce", *options, ok=False)
    assert complaint in said
    assert "fold 1" not in said
    assert not (tmp_path / "run").exists()


def test_text_of_another_encoding_has_its_line(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes("a,label\n1,x\n2,fünf\n".encode("latin-1"))
    assert f"not UTF-8 text at {path}, line 3" in fit(path, tmp_path / "run")


def test_names_do_not_move_the_cursor(capsys):
    from dubito._product.commands import _say

    _say("class \x1b[2Jgone\nnext \u202eleft \x07fünf")
    assert capsys.readouterr().out == "class  [2Jgone next  left  fünf\n"


def test_labels_given_twice_to_crowd_name_the_option(tmp_path):
    path = tmp_path / "c.csv"
    path.write_text("item,annotator,label\n1,ann,x\n1,ann,y\n2,bob,x\n1,bob,x\n")
    said = dubito("crowd", path, ok=False)
    assert f"{path}, item '1', annotator 'ann'" in said
    assert "--duplicates first" in said
    assert "written" in dubito("crowd", path, "--duplicates", "last")


def test_a_packed_table_is_to_be_unpacked(tmp_path):
    (tmp_path / "t.csv.gz").write_bytes(b"")
    assert "got .gz; unpack it first" in fit(tmp_path / "t.csv.gz", tmp_path / "r")


def test_a_bad_cell_has_a_line_and_a_column(tmp_path):
    path = single_table(tmp_path / "t.csv", blobs(60))
    lines = path.read_text().splitlines()
    lines[41] = lines[41].replace(lines[41].split(",")[1], "wide", 1)
    path.write_text("\n".join(lines) + "\n")
    assert f"not a finite number at {path}, line 42, column 'width': got 'wide'" in fit(path, tmp_path / "r")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "an empty file"),
        ("a,label\n", "no rows"),
        ("a;label\n1;x\n", "--delimiter ';'"),
        ("a,a,label\n1,2,x\n3,4,y\n", "rename one of those called 'a'"),
        ("a,b\n1,2\n", "no column for the label"),
        ("a,label\n1,x\n2,x\n3,x\n4,x\n", "one class"),
        ("a,label\n1,x\n2,y\n", "too few items"),
        ("a,label\n" + "".join(f"{i},{i}.5\n" for i in range(50)), "seem to be numbers"),
        ("note,label\nu,x\nv,y\n", "nothing to learn from"),
        ("task,worker,label\n1,a,x\n1,b,y\n", "dubito crowd"),
    ],
)
def test_tables_that_cannot_be_learned_from(tmp_path, text, complaint):
    path = tmp_path / "t.csv"
    path.write_text(text)
    assert complaint in fit(path, tmp_path / "run")


def test_images_are_missed_by_line(tmp_path):
    path = write(tmp_path / "p.csv", ["file", "label"], [("a.png", "x"), ("b.png", "y")])
    (tmp_path / "a.png").write_bytes(b"")
    assert f"no such image at {path}, line 3, column 'file'" in fit(
        path, tmp_path / "r", "--images", tmp_path
    )
    assert "no such folder of images" in fit(path, tmp_path / "r", "--images", tmp_path / "none")
    assert "no column names files" in fit(path, tmp_path / "r", "--images", tmp_path.parent)


def test_gold_is_checked_line_by_line(trained, tmp_path):
    def told(*rows, head=("id", "gold")):
        return dubito("fit", trained, "--gold", write(tmp_path / "g.csv", head, rows), ok=False)

    assert "line 3, column 'id': got 'row x'" in told(("row 1", "ant"), ("row x", "ant"))
    assert "line 2, column 'gold': got 'bea'; did you mean 'bee'?" in told(("row 1", "bea"))
    assert "two gold classes" in told(("row 1", "ant"), ("row 1", "bee"))
    assert "no checked labels" in told(("row 1", ""))
    assert "no column for the item" in told(("row 1", "ant"), head=("a", "gold"))
    assert "--gold FILE" in dubito("fit", trained, ok=False)


def test_predict_needs_a_run_and_its_columns(trained, tmp_path):
    other = write(tmp_path / "o.csv", ["width", "hight"], [(1, 2)])
    assert "did you mean 'hight'?" in dubito("predict", trained, other, ok=False)
    assert "not a run" in dubito("predict", tmp_path, other, ok=False)


def test_audit_of_anyones_probabilities(table, three, tmp_path):
    rng = np.random.default_rng(0)
    p = 0.9 * np.eye(3)[three.true] + 0.1 * rng.dirichlet(np.ones(3), len(three.true))
    order = rng.permutation(len(p))
    rows = [(f"row {i}", *p[i]) for i in order]
    probs = write(tmp_path / "probs.csv", ["name", *(f"p_{n}" for n in NAMES)], rows)
    said = dubito("audit", table, "--probs", probs, "--out", tmp_path / "a")
    assert "of the labels are wrong" in said or "of the labels show as wrong" in said
    ranked = read(tmp_path / "a" / "audit.csv")
    wrong = {f"row {i}" for i in np.flatnonzero(three.given != three.true)}
    first = {r["id"] for r in ranked[: len(wrong)]}
    assert len(first & wrong) > 0.9 * len(wrong), "rows are matched by id, not by place"
    np.savez(tmp_path / "probs.npz", probs=p)
    dubito("audit", table, "--probs", tmp_path / "probs.npz", "--out", tmp_path / "b")
    assert [r["id"] for r in read(tmp_path / "b" / "audit.csv")] == [r["id"] for r in ranked]


def test_probabilities_must_fit(tmp_path):
    labels = Labels("l.csv", ["x", "y"], ["1", "2"])
    path = write(tmp_path / "p.csv", ["x", "z"], [(0.5, 0.5)])
    with pytest.raises(DubitoError, match="class 'y'"):
        read_probs(path, labels)
    path = write(tmp_path / "p.csv", ["x", "y"], [(0.5, 0.5)])
    with pytest.raises(DubitoError, match="differ in number"):
        read_probs(path, labels)
    path = write(tmp_path / "p.csv", ["id", "x", "y"], [("1", 0.5, "half"), ("2", 0.5, 0.5)])
    with pytest.raises(DubitoError, match=r"line 2, column 'y'"):
        read_probs(path, labels)


def test_a_column_of_free_text_is_named_where_nothing_else_is_left(tmp_path):
    rows = [(f"remark {i}", "xy"[i % 2]) for i in range(40)]
    table = write(tmp_path / "t.csv", ["remark", "label"], rows)
    said = fit(table, tmp_path / "run")
    assert "nothing to learn from" in said
    assert "column 'remark' was left out: words that hardly repeat" in said


def test_a_missing_label_of_a_crowd_is_met_with_a_remedy_of_the_command(tmp_path):
    rows = [(f"i{i // 2}", f"w{i % 2}", "xy"[i % 2], i // 2) for i in range(12)]
    table = write(tmp_path / "c.csv", ["item", "worker", "label", "a"], [*rows, ("i6", "w0", "", 6)])
    said = fit(table, tmp_path / "run")
    assert (
        said.strip() == f"no label given at {table}, line 14, column 'label'; drop it, or fill in the label"
    )


def test_rows_with_ids_are_not_paired_by_their_place(tmp_path):
    labels = write(tmp_path / "l.csv", ["id", "label"], [(f"a{i}", "xy"[i % 2]) for i in range(6)])
    probs = write(tmp_path / "p.csv", ["id", "x", "y"], [(f"b{i}", 0.5, 0.5) for i in range(6)])
    said = dubito("audit", labels, "--probs", probs, "--out", tmp_path / "a", ok=False)
    assert "no id of the labels is one of the probabilities" in said
    assert "'a0'" in said
    assert "'b0'" in said
    unnamed = Labels("l.csv", ["x", "y"] * 3, [str(i + 1) for i in range(6)])
    assert len(read_probs(probs, unnamed)[0]) == 6, "labels without ids have the order of the rows"


def test_rows_of_probabilities_are_told_apart(table, tmp_path):
    labels = Labels("l.csv", ["x", "y"], ["1", "2"])
    rows = [("1", 0.5, 0.5), ("2", 0.5, 0.5), ("1", 0.9, 0.1)]
    path = write(tmp_path / "p.csv", ["id", "x", "y"], rows)
    with pytest.raises(DubitoError, match=r"two rows of probabilities at .*line 4"):
        read_probs(path, labels)
    twice = write(tmp_path / "l.csv", ["id", "label"], [("1", "x"), ("2", "y"), ("1", "y")])
    probs = write(tmp_path / "q.csv", ["x", "y"], [(0.5, 0.5)] * 3)
    assert "no column says who gave them" in dubito("audit", twice, "--probs", probs, ok=False)


@pytest.mark.parametrize(
    ("x", "said"),
    [
        (np.zeros((5, 1)), "the run was trained on other inputs"),
        (np.zeros((5, 3)), "expected (2,), got (3,)"),
        (np.zeros((0, 2)), "there are no items to predict"),
        (np.zeros(5), "inputs have one row per item"),
        (np.array(1.0), "inputs have one row per item"),
    ],
)
def test_arrays_of_another_shape_are_not_predicted(trained, tmp_path, x, said):
    np.savez(tmp_path / "new.npz", x=x)
    out = tmp_path / "p.csv"
    assert said in dubito("predict", trained, tmp_path / "new.npz", "--out", out, ok=False)
    assert not out.exists()


def test_a_runs_own_predictions_are_no_judge_of_its_labels(trained, table):
    said = dubito("audit", table, "--probs", trained / "predictions.csv", ok=False)
    assert "trained on the labels" in said
    assert f"dubito audit {trained}" in said.replace("\n", "")


def test_names_with_a_number_behind_them_stay_apart():
    assert distinct(["a", "a", "a (2)", "a"]) == ["a", "a (3)", "a (2)", "a (4)"]


@pytest.mark.parametrize("command", ["demo", "fit", "predict", "audit", "compare", "crowd", "verify"])
def test_every_command_has_an_example(command):
    result = CliRunner().invoke(app, [command, "--help"])
    assert f"dubito {command}" in result.output.split("Example")[-1]
