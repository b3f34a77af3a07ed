"""Found by calling the program with odd arguments: every fault is one sentence and status 2, never a traceback."""

from __future__ import annotations

import os
import sys

import pytest

from dubito import cli
from dubito.crowd import CrowdLabels
from dubito.data import read_table
from dubito.errors import DubitoError


@pytest.fixture
def main(monkeypatch, capsys):
    """The entry point of the program, with its words; the status and what it said on stderr."""

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["dubito", *map(str, words)])
        with pytest.raises(SystemExit) as left:
            cli.main()
        return left.value.code, capsys.readouterr().err

    return call


@pytest.mark.rel
@pytest.mark.parametrize("delimiter", ["", "auto", "::", "\n", '"', "\0"])
def test_a_delimiter_is_one_character(tmp_path, main, delimiter):
    """Scorecard 13: by the command line and by the functions behind it."""
    path = tmp_path / "t.csv"
    path.write_text("item,annotator,label\n1,ann,x\n2,bob,y\n")
    status, said = main("crowd", path, "--delimiter", delimiter)
    assert status == 2
    assert "expected a delimiter of one character" in said
    assert said.count("\n") == 1
    for read in (lambda: CrowdLabels.from_long(path, delimiter=delimiter),
                 lambda: read_table(path, features=["item"], delimiter=delimiter)):  # fmt: skip
        with pytest.raises(DubitoError, match="one character"):
            read()


@pytest.mark.parametrize("place", ["/", ".", "..", "absent.csv"])
def test_labels_that_are_no_file(main, place):
    status, said = main("crowd", place)
    assert (status, said) == (2, f"dubito: no such file at {place}\n")


@pytest.mark.rel
@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(28, os.strerror(28), "/full/disk"), "at '/full/disk': got No space left on device"),
        (PermissionError(13, os.strerror(13), "a\nb"), r"at 'a\nb': got Permission denied"),
        (OSError("odd"), "refuses: got odd"),
        (MemoryError(), "not enough memory"),
        (DubitoError("wrong", got="a\nb"), "wrong: got a b"),
    ],
)
def test_the_system_may_refuse(main, monkeypatch, error, words):
    """Scorecard 13: a full disk, a folder without permission or no memory, wherever it happens."""

    def refuse():
        raise error

    monkeypatch.setattr(cli, "app", refuse)
    status, said = main()
    assert status == 2
    assert words in said
    assert said.startswith("dubito: ")
    assert said.count("\n") == 1


def test_a_file_that_may_not_be_read(tmp_path, monkeypatch):
    path = tmp_path / "t.csv"
    path.write_text("a,label\n1,x\n")
    real = type(path).open

    def refuse(self, *given, **more):
        if self == path:
            raise PermissionError(13, "Permission denied", str(self))
        return real(self, *given, **more)

    monkeypatch.setattr(type(path), "open", refuse)
    with pytest.raises(DubitoError, match=r"cannot read at .*: got Permission denied"):
        read_table(path, features=["a"])
