"""Checks of dubito's promises that anyone can run on their own machine, in about a minute.

`dubito verify` runs `CHECKS` and prints number, promise, figure, target and verdict; the tests run the same ones.
Below them stands what was recorded of the longer checks when the release was made (`scorecard`). A check counts its
own cases, so that a figure cannot be met by testing less.
"""

from __future__ import annotations

from . import files, inputs, numbers, processes
from ._card import Check, Outcome, Verdict, run
from .scorecard import recorded_lines

__all__ = ["CHECKS", "Check", "Outcome", "Verdict", "recorded_lines", "run"]

CHECKS: tuple[Check, ...] = (*numbers.CHECKS, *inputs.CHECKS, *files.CHECKS, *processes.CHECKS)
