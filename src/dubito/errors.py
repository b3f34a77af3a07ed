"""The one exception that dubito raises on purpose."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

_NOTHING: Any = object()


class DubitoError(ValueError):
    """A bad input, told in one sentence: what, where, expected, got, remedy.

    Arguments:
        what: the complaint, without a full stop.
        where: the place: an index, an annotator, a file and line.
        expected: what would have been right.
        got: what was found instead.
        remedy: what to do about it.

    Example:
        >>> raise DubitoError("label out of range", where="target[3]", expected="0 to 9", got=12,
        ...                   remedy="drop the row or raise num_classes")
        Traceback (most recent call last):
        dubito.errors.DubitoError: label out of range at target[3]: expected 0 to 9, got 12; drop ...
    """

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        expected: object = _NOTHING,
        got: object = _NOTHING,
        remedy: str | None = None,
    ) -> None:
        self.what, self.where, self.remedy = what, where, remedy
        self.expected = None if expected is _NOTHING else expected
        self.got = None if got is _NOTHING else got
        sentence = what if where is None else f"{what} at {where}"
        facts = [
            f"{name} {value}"
            for name, value in (("expected", expected), ("got", got))
            if value is not _NOTHING
        ]
        if facts:
            sentence += ": " + ", ".join(facts)
        if remedy:
            sentence += f"; {remedy}"
        super().__init__(printable(sentence))


class NotFiniteError(DubitoError):
    """A loss, a gradient or a prediction is not finite: how a run that diverged ends."""


def printable(text: str) -> str:
    """One line for a terminal: the names of strangers hold line ends, and what moves a cursor or renames a window.

    Example:
        >>> printable("a\\nb \\x1b[2J c")
        'a b  [2J c'
    """
    return "".join(c if c.isprintable() else " " for c in " ".join(text.splitlines())).rstrip()


MOST, FEW = 60, 12  # names that are listed; of more than that the first few


def nearest(name: object, names: object) -> str:
    """A remedy that names the closest valid spelling, or lists what there is.

    Example:
        >>> nearest("smoth", ["smooth", "gce"])
        "did you mean 'smooth'?"
    """
    known = sorted(str(n) for n in names)  # type: ignore[attr-defined]
    close = get_close_matches(str(name), known, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    shown = ", ".join(known if len(known) <= MOST else [*known[:FEW], f"... ({len(known):,} in all)"])
    return f"choose from {shown}"
