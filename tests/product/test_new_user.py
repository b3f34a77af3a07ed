"""What a new user stumbles over: names with commas, masks beside images, people who want no names shown."""

from __future__ import annotations

import pytest
from product_tables import FAST, blobs, crowd_table, dubito, read, single_table, write
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
