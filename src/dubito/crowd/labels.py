"""Labels of a crowd as triplets: which item, which annotator, which label."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import DubitoError, nearest
from . import _coding, _grids, _tables
from ._coding import Codes, Ids

DUPLICATES = ("refuse", "first", "last", "keep")


class CrowdLabels:
    """Labels given by several annotators, one row per label: item n, annotator r, label y.

    Nothing here is ever of size items x annotators (`to_dense` is, when asked for).

    Arguments:
        items, annotators: ids, integers or text that is not empty, one per label.
        labels: classes, integers or text, one per label. A negative integer is refused unless it is listed in
            `classes`, for it usually means "missing".
        classes: the classes in the order wanted (a number means 0 to that number); without it, the sorted
            labels. A label outside is refused.
        confidence, time: one finite number per label, carried along.
        item_ids, annotator_ids: complete tables, for items or annotators without any label. They keep their
            place: the posterior of an item without labels is the class prior, the matrix of an annotator
            without labels is the crowd's. Without the tables only those that occur exist, in sorted order.
        duplicates: a second label of one annotator for one item: "refuse" it (names the culprits), keep the
            "first" or the "last", or "keep" all as independent labels.

    Attributes:
        item, annotator, label: int32 code tensors ``(labels,)``.
        item_ids, annotator_ids, classes: arrays that turn a code into an id.
        confidence, time: float64 tensors ``(labels,)`` or None.

    Example:
        >>> crowd = CrowdLabels(["a", "a", "b"], ["ann", "bob", "bob"], ["cat", "dog", "dog"])
        >>> crowd
        CrowdLabels(3 labels, 2 items, 2 annotators, 2 classes)
        >>> crowd.label.tolist(), list(crowd.classes)
        ([0, 1, 1], ['cat', 'dog'])
    """

    item: Tensor
    annotator: Tensor
    label: Tensor
    confidence: Tensor | None
    time: Tensor | None
    _sorted: bool

    def __init__(
        self,
        items: Any,
        annotators: Any,
        labels: Any,
        *,
        classes: Any = None,
        confidence: Any = None,
        time: Any = None,
        item_ids: Any = None,
        annotator_ids: Any = None,
        duplicates: str = "refuse",
    ) -> None:
        columns = [_coding.as_column(v, n) for v, n in zip((items, annotators, labels), _coding.NAMES)]
        _coding.same_length(columns)
        item, self.item_ids = _code(columns[0], item_ids, "item")
        self._sorted = item_ids is None
        annotator, self.annotator_ids = _code(columns[1], annotator_ids, "annotator")
        if classes is None:
            _coding.no_negative(columns[2])
        label, self.classes = _code(columns[2], classes, "class")
        if len(self.classes) == 0:
            raise DubitoError("no classes", remedy="give at least one label or pass classes=[...]")
        extras = [_coding.numbers(v, n, len(item)) for v, n in ((confidence, "confidence"), (time, "time"))]
        self._set(item, annotator, label, extras, duplicates)

    def _set(self, item: Codes, annotator: Codes, label: Codes, extras: list[Any], duplicates: str) -> None:
        kept = self._unique(item, annotator, label, duplicates)
        self.item, self.annotator, self.label = (
            torch.from_numpy(c if kept is None else c[kept]) for c in (item, annotator, label)
        )
        self.confidence, self.time = (
            None if e is None else torch.from_numpy(e if kept is None else e[kept]) for e in extras
        )

    def _unique(
        self, item: Codes, annotator: Codes, label: Codes, duplicates: str
    ) -> np.ndarray[Any, Any] | None:
        if duplicates not in DUPLICATES:
            raise DubitoError(
                "unknown treatment of duplicates",
                got=repr(duplicates),
                remedy=nearest(str(duplicates), DUPLICATES),
            )
        key = item.astype(np.int64) * len(self.annotator_ids) + annotator
        ordered = np.sort(key)
        if duplicates == "keep" or not bool((ordered[1:] == ordered[:-1]).any()):
            return None
        if duplicates == "refuse":
            raise _coding.RepeatedError(key, ordered, self.item_ids, self.annotator_ids)
        if duplicates == "last":
            kept = len(key) - 1 - np.unique(key[::-1], return_index=True)[1]
        else:
            kept = np.unique(key, return_index=True)[1]
        return np.sort(kept)

    def append(
        self,
        items: Any,
        annotators: Any,
        labels: Any,
        *,
        confidence: Any = None,
        time: Any = None,
        duplicates: str = "refuse",
        new_classes: bool = False,
    ) -> CrowdLabels:
        """The same labels and these behind them; `self` is left as it is.

        Codes that were given stay: only the new rows are looked up, new items and annotators are added at
        the end of their tables. A new class is refused unless ``new_classes=True``.

        Example:
            >>> crowd = CrowdLabels([0, 0, 1], ["a", "b", "b"], [0, 1, 1])
            >>> crowd.append([1, 2], ["a", "c"], [1, 0])
            CrowdLabels(5 labels, 3 items, 3 annotators, 2 classes)
        """
        columns = [_coding.as_column(v, n) for v, n in zip((items, annotators, labels), _coding.NAMES)]
        _coding.same_length(columns)
        whole = object.__new__(CrowdLabels)
        item, whole.item_ids = _extend(columns[0], self.item_ids)
        whole._sorted = self._sorted
        annotator, whole.annotator_ids = _extend(columns[1], self.annotator_ids)
        if new_classes:
            _coding.no_negative(columns[2])
            label, whole.classes = _extend(columns[2], self.classes)
        else:
            whole.classes = self.classes
            label = _coding.encode_with(columns[2], self.classes, "class", "pass new_classes=True to add it")
        extras = []
        for old, new, name in ((self.confidence, confidence, "confidence"), (self.time, time, "time")):
            if (old is None) != (new is None) and len(self):
                raise DubitoError(f"{name} must be given for all labels or for none", where="append")
            new = _coding.numbers(new, name, len(item))
            extras.append(new if old is None else np.concatenate([old.cpu().numpy(), new]))
        item, annotator, label = (
            np.concatenate([old.cpu().numpy(), new])
            for old, new in ((self.item, item), (self.annotator, annotator), (self.label, label))
        )
        whole._set(item, annotator, label, extras, duplicates)
        return whole

    def to(self, device: torch.device | str) -> CrowdLabels:
        """The same labels with their codes on another device."""
        return self._with(lambda x: x.to(device))

    def select(self, rows: Tensor) -> CrowdLabels:
        """The labels at these rows (indices or a mask); the tables of ids stay, so codes keep their meaning."""
        return self._with(lambda x: x[rows])

    def in_order(self, item_ids: Any) -> CrowdLabels:
        """The same labels, their items in this order: that of the rows of a table of inputs, say.

        Example:
            >>> crowd = CrowdLabels(["photo2", "photo10"], ["ann", "ann"], [0, 1])
            >>> crowd.item_ids.tolist(), crowd.in_order(["photo2", "photo10"]).item_ids.tolist()
            (['photo10', 'photo2'], ['photo2', 'photo10'])
        """
        order = _coding.fixed_ids(item_ids, "item_ids")
        codes = _coding.encode_with(self.item_ids, order, "item", "add it to item_ids")
        moved = self._with(lambda x: x)
        moved.item = torch.from_numpy(codes)[self.item.long().cpu()].to(self.item.device)
        moved.item_ids, moved._sorted = order, False
        return moved

    @property
    def rows_in_doubt(self) -> bool:
        """Whether rows of inputs may be in another order than the items.

        Ids that were sorted here are in doubt, unless they count the rows or came in that order.
        """
        ids = self.item_ids
        if not self._sorted or (ids.dtype != object and np.array_equal(ids, np.arange(len(ids)))):
            return False
        first = np.unique(self.item.cpu().numpy(), return_index=True)[1]
        return bool((np.diff(first) < 0).any())

    def spelled(self) -> CrowdLabels:
        """The same labels, their classes as the readers of `dubito.data` take them.

        White space around a name is dropped, Unicode composed, "1.0" is "1": spellings of one class become one.

        Example:
            >>> CrowdLabels([0, 0, 1], ["a", "b", "b"], ["1", "1.0 ", "2"]).spelled().classes.tolist()
            ['1', '2']
        """
        from ..data.labels import label_text

        names = [label_text(c) if type(c) is str else c for c in self.classes.tolist()]
        codes, classes = _coding.encode(_coding.as_column(names, "classes"))
        moved = self._with(lambda x: x)
        moved.label, moved.classes = torch.from_numpy(codes)[self.label.long()], classes
        return moved

    def _with(self, move: Any) -> CrowdLabels:
        moved = object.__new__(CrowdLabels)
        moved.item_ids, moved.annotator_ids, moved.classes = self.item_ids, self.annotator_ids, self.classes
        moved._sorted = self._sorted
        moved.item, moved.annotator, moved.label = map(move, (self.item, self.annotator, self.label))
        moved.confidence = None if self.confidence is None else move(self.confidence)
        moved.time = None if self.time is None else move(self.time)
        return moved

    @property
    def num_items(self) -> int:
        """Items, with or without labels."""
        return len(self.item_ids)

    @property
    def num_annotators(self) -> int:
        """Annotators, with or without labels."""
        return len(self.annotator_ids)

    @property
    def num_classes(self) -> int:
        """Classes, used or not."""
        return len(self.classes)

    def labels_per_item(self) -> Tensor:
        """How many labels each item has, ``(items,)``."""
        return torch.bincount(self.item, minlength=self.num_items)

    def labels_per_annotator(self) -> Tensor:
        """How many labels each annotator gave, ``(annotators,)``."""
        return torch.bincount(self.annotator, minlength=self.num_annotators)

    def __len__(self) -> int:
        return self.item.numel()

    def __repr__(self) -> str:
        return (
            f"CrowdLabels({len(self)} labels, {self.num_items} items, "
            f"{self.num_annotators} annotators, {self.num_classes} classes)"
        )

    from_dense = classmethod(_grids.from_dense)
    from_lists = classmethod(_grids.from_lists)
    from_long = classmethod(_tables.from_long)
    to_dense = _grids.to_dense
    to_long = _tables.to_long
    to_csv = _tables.to_csv
    to_parquet = _tables.to_parquet


def _code(column: Ids, ids: Any, name: str) -> tuple[Codes, Ids]:
    if ids is None:
        return _coding.encode(column)
    table = _coding.fixed_ids(ids, "classes" if name == "class" else f"{name}_ids")
    where = "classes" if name == "class" else f"{name}_ids"
    return _coding.encode_with(column, table, name, f"add it to {where} or drop the row"), table


def _extend(column: Ids, ids: Ids) -> tuple[Codes, Ids]:
    codes = _coding.find(column, _coding.lookup(ids))
    fresh = np.flatnonzero(codes < 0)
    if not len(fresh):
        return codes, ids
    new, added = _coding.encode(column[fresh])
    codes[fresh] = new + np.int32(len(ids))
    return codes, _coding.as_ids(ids.tolist() + added.tolist())
