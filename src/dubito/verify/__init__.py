"""Checks of dubito's promises that anyone can run on their own machine, in about a minute.

`dubito verify` runs `CHECKS` and prints number, promise, figure, target and verdict; the tests run the same ones.
A check counts its own cases, so that a figure cannot be met by testing less.
"""

from __future__ import annotations

from . import files, numbers, processes
from ._card import Check, Outcome, Verdict, run

__all__ = ["CHECKS", "Check", "Outcome", "Verdict", "run"]

CHECKS: tuple[Check, ...] = (*numbers.CHECKS, *files.CHECKS, *processes.CHECKS)
