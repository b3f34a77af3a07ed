"""What a new user stumbles over: names with commas, masks beside images, people who want no names shown."""

from __future__ import annotations

import pandas
import pytest
from product_tables import FAST, NAMES, blobs, crowd_table, dubito, read, single_table, write
from typer.testing import CliRunner

from dubito._product.overview import _names
from dubito.cli import app


def test_names_with_commas_are_told_apart(tmp_path):
    assert _names(("a", "b")) == "a, b"
    assert _names(("apples, red", "pears")) == "apples, red; pears"
    b = blobs(60)
    names = ["apples, red", "pears", "plums"]
    rows = [(*b.x[i], names[b.given[i]]) for i in range(len(b.x))]
    path = write(tmp_path / "fruit.csv", ["width", "height", "label"], rows)
    said = dubito("fit", path, "--out", tmp_path / "run", "--method", "ce", *FAST)
    assert "apples, red; pears; plums" in said
    balance = next(line for line in said.splitlines() if "balance" in line)
    assert balance.count(";") == 2


@pytest.mark.parametrize(("images", "masks"), [("images", "masks"), ("photos", "annotations")])
def test_a_folder_of_masks_is_no_class(tmp_path, images, masks):
    for name in (images, masks):
        (tmp_path / "train" / name).mkdir(parents=True)
    said = dubito("fit", tmp_path / "train", "--out", tmp_path / "run", ok=False)
    assert f"--masks {tmp_path / 'train' / masks}" in said
    assert not (tmp_path / "run").exists()


def test_folders_of_train_and_test_are_no_classes(tmp_path):
    for part in ("Test", "train"):
        for name in ("cat", "dog"):
            (tmp_path / "photos" / part / name).mkdir(parents=True)
    said = dubito("fit", tmp_path / "photos", "--out", tmp_path / "run", ok=False)
    assert f"got Test, train; dubito fit {tmp_path / 'photos' / 'train'}" in said
    assert not (tmp_path / "run").exists()
    for name in ("train", "test"):  # of a railway, perhaps: pictures lie right in them
        (tmp_path / "rail" / name).mkdir(parents=True)
    assert "no images" in dubito("fit", tmp_path / "rail", "--out", tmp_path / "run", ok=False)


def test_a_column_of_free_text_names_what_to_do(tmp_path):
    b = blobs(60)
    rows = [(*b.x[i], f"a remark, number {i}", NAMES[b.given[i]]) for i in range(60)]
    path = write(tmp_path / "t.csv", ["a", "b", "remark", "label"], rows)
    said = dubito("fit", path, "--features", "a,remark", "--out", tmp_path / "run", *FAST, ok=False)
    assert "words that hardly repeat" in said
    assert "column 'remark': got 60 different ones in 60 rows" in said


def test_dates_in_place_of_labels_have_a_row_and_a_remedy(tmp_path):
    b = blobs(60)
    days = pandas.date_range("2024-01-01", periods=60)
    frame = pandas.DataFrame({"a": b.x[:, 0], "label": days})
    frame.to_parquet(tmp_path / "t.parquet")
    said = dubito("fit", tmp_path / "t.parquet", "--out", tmp_path / "run", *FAST, ok=False)
    assert "a label must be text or a number at" in said
    assert "t.parquet, row 1, column 'label': got" in said
    assert said.endswith("write it as text")


def test_checked_labels_are_counted_apart(tmp_path):
    b = blobs(90)
    table = single_table(tmp_path / "labels.csv", b)
    run = tmp_path / "run"
    dubito("fit", table, "--out", run, "--method", "ce", *FAST)
    some = [(r["id"], r["given"]) for r in read(run / "spot_check.csv")][:20]
    gold = write(tmp_path / "gold.csv", ["id", "gold"], some)
    assert "70 labels, besides 20 checked ones, 3 classes" in dubito("audit", run, "--gold", gold)
    assert "of the 70 labels that were not checked are wrong" in dubito("fit", run, "--gold", gold)


def test_anonymised_audits_name_nobody_on_the_terminal_either(tmp_path):
    table = crowd_table(tmp_path / "crowd.csv", blobs(60))
    people = {r["worker"] for r in read(table)}
    run = tmp_path / "run"
    dubito("fit", table, "--out", run, "--method", "trace", *FAST)
    plain, hidden = dubito("audit", run), dubito("audit", run, "--anonymise")
    page = (run / "audit.html").read_text(encoding="utf-8")
    assert all(f"  {name}: " in plain for name in people)
    assert "  annotator 1: " in hidden
    for name in people:
        assert f"  {name}: " not in hidden
        assert f"by {name}," not in hidden
        assert f"ask {name}" not in hidden
        assert f">{name}<" not in page


@pytest.mark.parametrize("words", [("paper",), ("paper", "list"), ("paper", "table")])
def test_papers_have_an_example_too(words):
    said = CliRunner().invoke(app, [*words, "--help"]).output
    assert "dubito paper" in said.split("Example")[-1]
