"""Users' own tables: CSV, TSV, Parquet, data frames; one row per example or per given label."""

from __future__ import annotations

import codecs
import tracemalloc

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from dubito import DubitoError
from dubito.data import read_table

TABLE = "kind,width,height,truth,name\n007,1.5,2,7,a\nNA,2.5,3,None,b\n7,3.5,4,,c\n"


def write(path, text, encoding="utf-8"):
    path.write_bytes(text.encode(encoding) if isinstance(text, str) else text)
    return path


def check(data):
    assert data.classes == ("007", "7", "NA", "None")
    assert data.labels.tolist() == [0, 2, 1]
    assert data.clean.tolist() == [1, 3, -1]
    assert data.inputs.tolist() == [[1.5, 2.0], [2.5, 3.0], [3.5, 4.0]]
    assert list(data.ids) == ["a", "b", "c"]


WANTED = {"label": "kind", "features": ["width", "height"], "clean": "truth", "id": "name"}


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le-bom", "utf-16-be-bom", "utf-32"]
)
def test_csv_in_any_marked_encoding(tmp_path, encoding):
    if encoding.endswith("-bom"):
        mark = codecs.BOM_UTF16_LE if "le" in encoding else codecs.BOM_UTF16_BE
        raw = mark + TABLE.encode(encoding.removesuffix("-bom"))
    else:
        raw = TABLE.encode(encoding)
    check(read_table(write(tmp_path / "t.csv", raw), **WANTED))


def test_separators_quotes_line_ends_and_blank_lines(tmp_path):
    check(read_table(write(tmp_path / "t.tsv", TABLE.replace(",", "\t")), **WANTED))
    check(read_table(write(tmp_path / "t.csv", TABLE.replace(",", ";")), delimiter=";", **WANTED))
    check(read_table(write(tmp_path / "t.csv", TABLE.replace("\n", "\r\n") + "\r\n\r\n"), **WANTED))
    quoted = write(tmp_path / "q.csv", 'kind,x\n"a, b",1\n"say ""hi""",2\n"two\nlines",3\n')
    assert read_table(quoted, label="kind", features=["x"]).classes == ("a, b", 'say "hi"', "two\nlines")


def test_latin_1_is_not_guessed(tmp_path):
    path = write(tmp_path / "t.csv", "label,x\ncafé,1\n", "latin-1")
    with pytest.raises(DubitoError, match=r"not utf-8 text at .*got byte 0xe9.*encoding='latin-1'"):
        read_table(path, features=["x"])
    assert read_table(path, features=["x"], encoding="latin-1").classes == ("café",)
    with pytest.raises(DubitoError, match="unknown encoding"):
        read_table(path, features=["x"], encoding="klingon")


def test_any_script(tmp_path):
    path = write(tmp_path / "t.csv", "标签,x\n猫,1\nكلب,2\nγάτα,3\n")
    assert set(read_table(path, label="标签", features=["x"]).classes) == {"猫", "كلب", "γάτα"}


def test_parquet_and_frame(tmp_path):
    frame = pd.DataFrame(
        {
            "kind": ["007", "NA", "7"],
            "width": [1.5, 2.5, 3.5],
            "height": [2, 3, 4],
            "truth": ["7", "None", None],
            "name": list("abc"),
        }
    )
    frame.to_parquet(tmp_path / "t.parquet")
    check(read_table(tmp_path / "t.parquet", **WANTED))
    check(read_table(frame, **WANTED))
    numbers = pd.DataFrame({"y": [1.0, 2.0, 1.0], "x": [0, 1, 2]})
    assert read_table(numbers, label="y", features=["x"]).classes == ("1", "2")
    categories = pd.DataFrame({"y": pd.Categorical(["b", "a"]), "x": [0, 1]})
    assert read_table(categories, label="y", features=["x"]).labels.tolist() == [1, 0]
    with pytest.raises(
        DubitoError, match=r"no label given at data frame, row 1, column 'y'.*keep_default_na"
    ):
        read_table(pd.DataFrame({"y": ["a", np.nan], "x": [0, 1]}), label="y", features=["x"])


def test_one_row_per_given_label(tmp_path):
    text = "item,who,label,x,gold\nq1,ann,yes,0.5,no\nq2,bob,no,1.5,\nq1,bob,no,9,\n"
    data = read_table(
        write(tmp_path / "c.csv", text), item="item", annotator="who", features=["x"], clean="gold"
    )
    assert [t.tolist() for t in data.crowd] == [[0, 1, 0], [0, 1, 1], [1, 0, 0]]
    assert data.annotators == ("ann", "bob")
    assert data.inputs.tolist() == [[0.5], [1.5]]
    assert data.clean.tolist() == [0, -1]
    assert list(data.ids) == ["q1", "q2"]
    assert data.crowd_labels().annotator.tolist() == [0, 1, 1]
    without = read_table(tmp_path / "c.csv", item="item", annotator="who")
    assert without.inputs.shape == (2, 0)


def test_images_are_decoded_when_asked_for(tmp_path):
    (tmp_path / "photos").mkdir()
    for i in range(3):
        Image.new("RGB", (20, 10 + i), (i * 100, 0, 0)).save(tmp_path / "photos" / f"{i}.png")
    path = write(tmp_path / "t.csv", "file,label\nphotos/0.png,a\nphotos/2.png,b\n")
    data = read_table(path, image="file", size=8)
    assert data.gather(torch.tensor([1]))[0, :, 4, 4].tolist() == [200, 0, 0]
    elsewhere = read_table(
        write(tmp_path / "u.csv", "file,label\n1.png,a\n"), image="file", size=8, images=tmp_path / "photos"
    )
    assert elsewhere.gather(torch.tensor([0])).shape == (1, 3, 8, 8)
    assert list(elsewhere.ids) == ["1.png"]


@pytest.mark.rel
@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (TABLE, {"label": "knid"}, "no such column at .*t.csv, line 1: got 'knid'; did you mean 'kind'"),
        (TABLE, {"features": ["widht"]}, "did you mean 'width'"),
        (TABLE.replace(",", ";"), {}, "separated by ';': give delimiter=';'"),
        ("kind,kind,width,height\n1,2,3,4\n", {}, "column occurs twice"),
        (TABLE + "1,2\n", {}, "wrong number of cells at .*line 5: expected 5, got 2"),
        (TABLE + ",1,2,3,4\n", {}, "no label given at .*line 5, column 'kind'"),
        (TABLE + "1,abc,2,3,4\n", {}, "not a finite number at .*line 5, column 'width': got 'abc'"),
        (TABLE + "1,,2,3,4\n", {}, "line 5, column 'width': got ''; fill in or drop"),
        (TABLE + '1,"1,5",2,3,4\n', {}, "decimal point"),
        (TABLE + "1,inf,2,3,4\n", {}, "not a finite number"),
        (TABLE + "1,1e39,2,3,4\n", {}, "not a finite number"),
        ("kind,width,height\n", {}, "the table has no rows"),
        ("", {}, "no such column"),
        (TABLE + '1,"' + "x" * 200_000, {}, "not a readable table at .*line 5"),
        (TABLE, {"classes": ["7", "NA"]}, "not one of the classes at .*line 2, column 'kind': got '007'"),
        (TABLE, {"item": "name"}, "both item= and annotator="),
        (TABLE, {"features": None}, "no inputs named"),
        (TABLE, {"image": "name"}, "not both"),
    ],
)
def test_errors_name_file_line_column_and_remedy(tmp_path, text, options, message):
    """Scorecard 13: bad tables are refused with their place."""
    path = write(tmp_path / "t.csv", text)
    with pytest.raises(DubitoError, match=message):
        read_table(path, **{"label": "kind", "features": ["width", "height"]} | options)


@pytest.mark.rel
@pytest.mark.parametrize(
    "cell", ["../secret.png", "/etc/passwd", "a/../../b.png", "C:\\x.png", "..\\x.png", ""]
)
def test_paths_stay_inside_the_image_folder(tmp_path, cell):
    """Scorecard 28: a manifest cannot name a file outside its folder."""
    (tmp_path / "in").mkdir()
    Image.new("RGB", (4, 4)).save(tmp_path / "secret.png")
    path = write(tmp_path / "in" / "t.csv", f"file,label\n{cell},a\n" if cell else 'file,label\n"",a\n')
    with pytest.raises(DubitoError, match=r"must lead into the image folder at .*line 2, column 'file'"):
        read_table(path, image="file", size=4)


def test_a_refused_true_label_of_a_crowd_is_named_by_its_line(tmp_path):
    rows = "i,w,label,gold\n1,a,x,x\n1,b,y,x\n1,c,y,x\n2,b,y,neither\n"
    with pytest.raises(
        DubitoError, match=r"not one of the classes at .*line 5, column 'gold': got 'neither'"
    ):
        read_table(write(tmp_path / "t.csv", rows), item="i", annotator="w", clean="gold", classes=["x", "y"])


@pytest.mark.parametrize("encoding", ["utf-8", "utf8", "utf-16-le", "utf-16-be", "utf-32-le"])
def test_a_mark_before_an_encoding_that_was_named(tmp_path, encoding):
    path = write(tmp_path / "t.csv", '\ufeff"label",x\n007,1\nNA,2\n'.encode(encoding))
    data = read_table(path, features=["x"], encoding=encoding)
    assert (data.classes, data.labels.tolist()) == (("007", "NA"), [0, 1])


def test_other_refusals(tmp_path):
    with pytest.raises(DubitoError, match="no such file"):
        read_table(tmp_path / "gone.csv", features=["x"])
    with pytest.raises(DubitoError, match=r"unknown kind of table.*got \.xlsx"):
        read_table(write(tmp_path / "t.xlsx", b"PK"), features=["x"])
    with pytest.raises(DubitoError, match=r"no such image at .*line 2"):
        read_table(write(tmp_path / "t.csv", "file,label\ngone.png,a\n"), image="file")
    with pytest.raises(DubitoError, match=r"no item given at .*line 2"):
        read_table(write(tmp_path / "t.csv", "i,w,label\n ,a,b\n"), item="i", annotator="w")


@pytest.mark.rel
def test_hostile_parquet_and_endless_lines(tmp_path):
    """Scorecard 28: damaged Parquet files and a CSV without line ends."""
    good = tmp_path / "good.parquet"
    pd.DataFrame({"label": ["a"] * 100, "x": range(100)}).to_parquet(good)
    raw = good.read_bytes()
    for damaged in (
        b"",
        b"PAR1",
        raw[:50],
        raw[:-8] + b"\xff\xff\xff\x7fPAR1",
        b"PAR1" + bytes(100) + raw[-8:],
    ):
        path = write(tmp_path / "bad.parquet", damaged)
        with pytest.raises(DubitoError, match="not a readable Parquet file"):
            read_table(path, features=["x"])
    long = write(tmp_path / "long.csv", "label,x" + "," * (1 << 24))
    with pytest.raises(DubitoError, match="line too long"):
        read_table(long, features=["x"])


def test_big_tables_stream(tmp_path):
    rows = 60_000
    path = tmp_path / "big.csv"
    with path.open("w") as f:
        f.write("label,x,long\n")
        f.writelines(f"class {i % 7},{i},{'y' * 300}\n" for i in range(rows))
    tracemalloc.start()
    data = read_table(path, features=["x"])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(data) == rows
    assert peak < path.stat().st_size


def test_digits_that_float32_would_drop_are_told_of_or_kept(tmp_path, caplog):
    path = tmp_path / "t.csv"
    rows = [f"{1_700_000_000 + i},0.1,{0.1 * i},{'ab'[i % 2]}" for i in range(9)]
    path.write_text("\n".join(["time,same,x,label", *rows]))
    features = ["time", "same", "x"]
    assert read_table(path, features=features).inputs.dtype == torch.float32
    assert [r.getMessage() for r in caplog.records] == [
        "t.csv, column 'time': torch.float32 rounds what its numbers differ by"
    ]
    caplog.clear()
    wide = read_table(path, features=features, dtype=torch.float64).inputs
    assert wide[:, 0].tolist() == [1_700_000_000 + i for i in range(9)]
    assert not caplog.records
