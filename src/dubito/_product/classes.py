"""Labels that are measurements, and no classes."""

from __future__ import annotations

from collections.abc import Collection

from ..crowd.command import MOST_CLASSES, MOSTLY_OWN
from ..data._cells import number_of
from ..errors import DubitoError

REMEDY = "name the column of classes with --label, or cut the numbers into ranges with a name each"


def refuse_numbers(classes: Collection[str], items: int, where: str) -> None:
    """Refuse more classes than anyone names: one for nearly every item, or most of them decimal fractions."""
    if len(classes) <= MOST_CLASSES:
        return
    fractions = sum(number_of(name) % 1 != 0 for name in classes if number_of(name) == number_of(name))
    own = len(classes) > MOSTLY_OWN * items
    if own or fractions > len(classes) / 2:
        raise DubitoError(
            f"{'nearly every item has a class of its own: ' if own else ''}these seem to be numbers, not classes",
            where=where,
            got=f"{len(classes)} classes of {items} items",
            remedy=REMEDY,
        )
