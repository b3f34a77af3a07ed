"""The audit hook sees what the tests of hostile files must not find."""

from __future__ import annotations

import os
import pickle
import tempfile
from pathlib import Path

import pytest

from audited import Audited


def test_programs_and_pickles_are_seen(audited: Audited) -> None:
    os.system("true")
    pickle.loads(pickle.dumps(Path))
    assert [line.split()[0] for line in audited.executed] == ["os.system", "pickle.find_class"]
    with pytest.raises(AssertionError, match="os"):
        audited.figures()


def test_writes_outside_are_seen(audited: Audited, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    (tmp_path / "mine").rename(tmp_path / "still mine")
    assert audited.figures() == {"executed": 0, "written_outside": 0}
    with tempfile.NamedTemporaryFile() as file:
        assert f"open {file.name}" in audited.outside
        Path(file.name).read_bytes()
    assert audited.outside[-1] == f"os.remove {file.name}"
    with pytest.raises(AssertionError, match="open"):
        audited.figures()
