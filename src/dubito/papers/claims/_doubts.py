"""Printed numbers that do not fit the rest of their paper, and the comparisons that rest on them.

The notes of ``paper_tables.json`` say so of each; here they are told by cell, so that statements can be marked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ._parts import At, Part, at


@dataclass(frozen=True)
class Doubt:
    """A printed cell (all that share its fields) and why it is in doubt."""

    cell: At
    why: str

    def concerns(self, part: Part) -> bool:
        """Whether a comparison, or one inside it, takes the cell in."""
        return any(self._holds(cell) for cell in cells(part))

    def _holds(self, cell: At) -> bool:
        same = (cell.item, cell.metric) == (self.cell.item, self.cell.metric)
        return same and set(self.cell.fields) <= set(cell.fields)


DOUBTS: dict[str, tuple[Doubt, ...]] = {
    "lukasik2020": (
        Doubt(
            at("table5", "test_accuracy", data="cifar10", method="distill"),
            "table 5 prints for plain distillation on CIFAR-10 the numbers of undistilled training",
        ),
    ),
    "tanno2019": (
        Doubt(
            at("table1b", "crowd_accuracy", method="gem"),
            "table 1b prints more for GEM than for plain training, though with single labels the two are said to "
            "be the same",
        ),
    ),
}


def cells(part: Any) -> Iterator[At]:
    """The cells of a comparison, in its order."""
    if isinstance(part, At):
        yield part
    elif isinstance(part, tuple):
        for one in part:
            yield from cells(one)
    elif hasattr(part, "__dataclass_fields__"):
        for value in vars(part).values():
            yield from cells(value)
