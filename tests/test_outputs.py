"""Files that take the place of others: whole or not at all, whoever else writes there at the same time."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from dubito import _files, checkpoint
from dubito.crowd import CrowdLabels, run
from dubito.data import image_folder, map_npy, read_table
from dubito.errors import DubitoError
from dubito.runs import RunFolder

TABLE = "item,annotator,label\n1,ann,x\n1,bob,x\n2,ann,y\n2,bob,y\n"


@pytest.mark.rel
def test_two_writers_of_one_file_do_not_meet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scorecard 32: another process writes the same file while this one is in the middle of its bytes."""
    path, seen = tmp_path / "predictions.csv", []
    real = _files.write_durable

    def slow(temporary: Path, data: bytes) -> None:
        real(temporary, data[:3])
        monkeypatch.setattr(_files, "write_durable", real)
        _files.replace_file(path, b"the other one, whole")
        seen.append(path.read_bytes())
        with temporary.open("ab") as file:
            file.write(data[3:])

    monkeypatch.setattr(_files, "write_durable", slow)
    _files.replace_file(path, b"mine, whole")
    assert seen == [b"the other one, whole"]
    assert path.read_bytes() == b"mine, whole"
    assert [p.name for p in tmp_path.iterdir()] == ["predictions.csv"]


WRITERS: dict[str, Callable[[Path, Path], object]] = {
    "command": lambda table, out: run(table, out=out.parent),
    "csv": lambda table, out: CrowdLabels.from_long(table).to_csv(out),
    "parquet": lambda table, out: CrowdLabels.from_long(table).to_parquet(out),
}


@pytest.mark.rel
@pytest.mark.parametrize("writer", WRITERS)
def test_a_full_disk_leaves_the_file_that_was_there(
    writer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scorecard 27: the tables of a crowd: the old one stays, nothing lies about, a sentence names the place."""
    table, out = tmp_path / "labels.csv", tmp_path / "out" / "consensus.csv"
    table.write_text(TABLE.replace("item", "task").replace("annotator", "worker"))
    out.parent.mkdir()
    out.write_text("old")

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(_files.os, "replace", refuse)
    with pytest.raises(DubitoError, match=r"cannot write at .*consensus.csv: got the disk is full"):
        WRITERS[writer](table, out)
    assert out.read_text() == "old"
    assert [p.name for p in out.parent.iterdir()] == ["consensus.csv"]


@pytest.mark.rel
@pytest.mark.parametrize("name", ["consensus.tmp", "consensus.csv", ".consensus.csv.tmp"])
def test_planted_links_are_not_followed(name: str, tmp_path: Path) -> None:
    """Scorecard 30: a link where a temporary file or the result would lie leads nowhere."""
    (tmp_path / "t.csv").write_text(TABLE)
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).symlink_to(tmp_path / "mine")
    if name == "consensus.csv":
        with pytest.raises(DubitoError, match="not a plain file"):
            run(tmp_path / "t.csv", out=tmp_path / "out")
    else:
        run(tmp_path / "t.csv", out=tmp_path / "out")
    assert (tmp_path / "mine").read_text() == "mine"


def test_a_place_under_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(DubitoError, match=r"cannot write at .*file/x: .*Not a directory"):
        _files.replace_file(tmp_path / "file" / "x", b"data")


NAMES = ["x" * 5000, "a\0b", "/", "d/" * 1990 + "x", "\udcff"]
ENTRIES: dict[str, Callable[[Path], object]] = {
    "table": lambda p: read_table(p, features=["a"]),
    "crowd": CrowdLabels.from_long,
    "command": run,
    "output of the command": lambda p: run("labels.csv", out=p),
    "images": image_folder,
    "mapped": map_npy,
    "run": lambda p: RunFolder(p, {}).__enter__(),
    "checkpoint": lambda p: checkpoint.save(p / "c", 1, {"m": {}}, {}),
    "latest": checkpoint.load,
    "tables out": lambda p: CrowdLabels.from_long("labels.csv").to_csv(p),
}


@pytest.mark.rel
@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("name", NAMES, ids=["long", "zero byte", "root", "deep", "surrogate"])
def test_names_that_no_system_takes(
    entry: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scorecard 13: too long, too deep, with a zero byte: refused in one sentence, by readers and writers."""
    monkeypatch.chdir(tmp_path)
    Path("labels.csv").write_text(TABLE.replace("item", "task").replace("annotator", "worker"))
    if name == "/" and entry in ("output of the command", "images", "checkpoint"):
        pytest.skip("a folder that is there")
    said = ""
    try:
        ENTRIES[entry](Path(name))
    except DubitoError as error:
        said = str(error)
    assert said or name == NAMES[-1], "only an odd letter may be taken"
    assert "\n" not in said
