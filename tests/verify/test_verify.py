"""The checks that users run: each passes here, and the runner tells failures apart."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from dubito import DubitoError, verify
from dubito.verify import Check, Outcome, inputs


@pytest.mark.rel
@pytest.mark.parametrize("check", verify.CHECKS, ids=lambda c: f"{c.number}-{c.function.__name__}")
def test_each_check_passes(check: Check, tmp_path: Path, scorecard: Callable[..., None]) -> None:
    """Scorecard: the checks of `dubito verify`."""
    found = check.function(tmp_path)
    scorecard(check.number)
    assert found.passed, found.figure


def raises(folder: Path) -> Outcome:
    raise RuntimeError("no such luck")


def test_a_check_that_raises_has_failed_and_the_next_one_runs() -> None:
    checks = [
        Check(1, "a", "b", raises),
        Check(2, "a", "b", lambda folder: Outcome("bad", False)),
        Check(3, "a", "b", lambda folder: Outcome(str(len(list(folder.iterdir()))), True)),
    ]
    found = list(verify.run(checks))
    assert [(v.check.number, v.figure, v.passed) for v in found] == [
        (1, "RuntimeError: no such luck", False),
        (2, "bad", False),
        (3, "0", True),
    ]


def test_the_damage_check_can_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dubito import _sealed

    monkeypatch.setattr(_sealed, "_check_digest", lambda *_: None)
    assert not verify.files.damage(tmp_path).passed


def test_the_checks_of_input_can_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(path: Path) -> None:
        (path.parents[1] / "ran").touch()
        raise DubitoError("too late")

    def silent(*_: object) -> None:
        return None

    def loud(*_: object) -> None:
        raise TypeError("from inside")

    (tmp_path / "a").mkdir()
    monkeypatch.setattr(inputs, "read_npy", careless)
    assert "something" in inputs.hostile(tmp_path / "a").figure
    for wrong in (silent, loud):
        monkeypatch.setattr(inputs, "LabelledData", wrong)
        assert not inputs.refused(tmp_path).passed


def test_nothing_is_imported_from_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scorecard 28: files beside which a user happens to work are no modules."""
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "safetensors.py").write_text("raise SystemExit('imported')")
    monkeypatch.chdir(tmp_path / "here")
    found = verify.processes.doubled(tmp_path / "run")
    assert found.passed, found.figure


def test_signals_are_checked_in_the_background_too(tmp_path: Path) -> None:
    """A shell that puts the check in the background has SIGINT ignored from the start."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        found = verify.processes.interrupted(tmp_path / "run")
    finally:
        signal.signal(signal.SIGINT, before)
    assert found.passed, found.figure
