"""What a check is, and how a list of them is run."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Outcome:
    """What a check found: the figure as text, and whether it meets the target."""

    figure: str
    passed: bool


@dataclass(frozen=True)
class Check:
    """One line of the scorecard.

    Arguments:
        number: its number in the scorecard (docs/reliability.md).
        promise: what is promised, in a few words.
        target: the figure that has to be met.
        function: gets an empty folder of its own and returns an `Outcome`.
    """

    number: int
    promise: str
    target: str
    function: Callable[[Path], Outcome]


@dataclass(frozen=True)
class Verdict:
    """A check that was run."""

    check: Check
    figure: str
    passed: bool
    seconds: float


def run(checks: Iterable[Check]) -> Iterator[Verdict]:
    """Run the checks one after another; one that raises has failed, and the next one is run.

    Example:
        >>> one = Check(0, "one is one", "equal", lambda folder: Outcome("1", 1 == 1))
        >>> [(v.figure, v.passed) for v in run([one])]
        [('1', True)]
    """
    for check in checks:
        since = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="dubito-verify-") as folder:
            try:
                found = check.function(Path(folder))
            except Exception as error:
                found = Outcome(f"{type(error).__name__}: {error}", False)
        yield Verdict(check, found.figure, found.passed, time.monotonic() - since)
