"""Labels as people write them. The rules, all of them:

1. A label is text. Surrounding white space is dropped and Unicode brought to its composed form (NFC), so two
   spellings of one accent are one class. Upper and lower case differ (a warning is logged when only that differs).
2. Leading zeros count: "007" and "7" are two classes. "NA", "None", "null" and "nan", written as text, are ordinary
   class names.
3. A whole number with a decimal point is that number: "1.0", 1.0 and 1 are the class "1", because spreadsheets and
   data frames add the point by themselves. Other numbers keep their digits: "3.5" is the class "3.5".
4. Nothing is no label: an empty cell, None, NaN and pandas' NA. It is refused with its place unless
   ``missing="keep"``, which gives the label -1.
5. Classes are numbered in the order given; otherwise whole numbers by size and everything else by code point.
"""

from __future__ import annotations

import logging
import math
import re
import unicodedata
from array import array
from collections.abc import Callable, Iterable, Sequence
from numbers import Integral, Real

import numpy as np
import torch
from torch import Tensor

from ..errors import DubitoError, nearest
from ._labelled import NONE_GIVEN

_log = logging.getLogger("dubito")
_POINT_ZERO = re.compile(r"([+-]?(?:0|[1-9][0-9]*))\.0+")
_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]*)")
_MISSING_TYPES = ("NAType", "NaTType")


def label_text(value: object) -> str | None:
    """The class name that a cell stands for, None for no label.

    Example:
        >>> [label_text(v) for v in ("007", " NA ", 1.0, "1.0", True, "", float("nan"))]
        ['007', 'NA', '1', '1', 'True', None, None]
    """
    if value is None or type(value).__name__ in _MISSING_TYPES:
        return None
    if isinstance(value, str):
        text = unicodedata.normalize("NFC", value).strip().strip("\ufeff").strip()
        point = _POINT_ZERO.fullmatch(text)
        return str(int(point[1])) if point else text or None
    if isinstance(value, bytes):
        return label_text(value.decode("utf-8", "replace"))
    if isinstance(value, bool | np.bool_):
        return str(bool(value))
    if isinstance(value, Integral):
        return str(int(value))
    if isinstance(value, Real):
        number = float(value)
        if math.isnan(number):
            return None
        if math.isfinite(number):
            return str(int(number)) if number.is_integer() else repr(number)
    raise _NoLabelError(
        "a label must be text or a number",
        got=f"{type(value).__name__} {value!r}"[:80],
        remedy="write it as text",
    )


class _NoLabelError(DubitoError):
    """A value that is no label, told without its place."""


class Coder:
    """Turns a stream of labels into class numbers; the classes may be fixed beforehand or found.

    Arguments:
        what: what to call a label in messages.
        classes: the only classes there are, in this order.
        missing: "refuse" or "keep" (as -1) what is no label; None: refused, and the caller has no such option.
        like: a coder whose classes this one shares, as observed and true labels do.
    """

    def __init__(
        self,
        what: str = "label",
        classes: Sequence[object] | None = None,
        missing: str | None = None,
        like: Coder | None = None,
    ) -> None:
        if missing not in (None, "refuse", "keep"):
            raise DubitoError(
                "unknown treatment of missing labels", expected="refuse or keep", got=repr(missing)
            )
        self.what, self.missing = what, missing
        self._numbers = array("q")
        self._codes: dict[str, int] = {} if like is None else like._codes
        self._fixed: bool = classes is not None if like is None else like._fixed
        for name in classes or ():
            text = label_text(name)
            if text is None or text in self._codes:
                raise DubitoError("classes must be different names", got=repr(name))
            self._codes[text] = len(self._codes)

    def extend(self, values: Iterable[object], where: Callable[[int], str]) -> None:
        """Take some labels; `where(i)` names the place of the i-th of them."""
        for i, value in enumerate(values):
            try:
                text = label_text(value)
            except _NoLabelError as error:
                raise DubitoError(error.what, where=where(i), got=error.got, remedy=error.remedy) from None
            code = NONE_GIVEN if text is None else self._codes.get(text)
            if text is None and self.missing != "keep":
                remedy = _remedy(self.what, self.missing is not None, where(i))
                raise DubitoError(f"no {self.what} given", where=where(i), remedy=remedy)
            if code is None and text is not None:
                if self._fixed:
                    remedy = nearest(text, self._codes)
                    raise DubitoError("not one of the classes", where=where(i), got=repr(text), remedy=remedy)
                code = self._codes[text] = len(self._codes)
            self._numbers.append(code)  # type: ignore[arg-type]

    def finish(self) -> tuple[Tensor, tuple[str, ...]]:
        """(class numbers, class names); to be called when every coder of these classes has seen its labels."""
        found = list(self._codes)
        names = found if self._fixed else in_order(found)
        warn_of_case(names)
        place = {name: i for i, name in enumerate(names)}
        # The last entry serves -1: no label stays no label.
        final = np.array([place[name] for name in found] + [NONE_GIVEN], np.int64)
        numbers = np.frombuffer(self._numbers, np.int64) if len(self._numbers) else np.zeros(0, np.int64)
        return torch.from_numpy(final[numbers]), tuple(names)


def _remedy(what: str, may_keep: bool, place: str) -> str:
    remedy = 'drop the row, or keep it with missing="keep"' if may_keep else f"drop it, or fill in the {what}"
    if place.startswith("data frame"):
        remedy += "; if the class is called NA, read the file with keep_default_na=False"
    return remedy


def in_order(names: Sequence[str]) -> list[str]:
    """Whole numbers by size, everything else by code point.

    Example:
        >>> in_order(["10", "9"]), in_order(["b10", "b9"])
        (['9', '10'], ['b10', 'b9'])
    """
    if all(_WHOLE.fullmatch(name) and len(name) < 400 for name in names):
        return sorted(names, key=int)
    return sorted(names)


def warn_of_case(names: Sequence[str]) -> None:
    """Log classes that differ in upper and lower case only: usually one class written in two ways."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(name.casefold(), name)
        if other != name:
            _log.warning("the classes %r and %r differ in case only", other, name)
