"""Which row of X the labels of a crowd belong to."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from .crowd import CrowdLabels
from .crowd._grids import cells_of, gaps_of
from .errors import DubitoError

Array = np.ndarray[Any, Any]


def same_items(crowd: CrowdLabels, rows: int) -> None:
    if crowd.num_items != rows:
        raise DubitoError(
            "the crowd has other items than X has rows",
            expected=rows,
            got=crowd.num_items,
            remedy="pass item_ids=, one per row of X, to CrowdLabels",
        )


def aligned(crowd: CrowdLabels, X: Any) -> CrowdLabels:
    """The crowd in the order of the rows of X: of a frame by its index, where that holds the ids of the items."""
    index = list(X.index) if hasattr(X, "index") and hasattr(X, "columns") else []
    if len(index) == crowd.num_items and set(map(str, index)) == set(map(str, crowd.item_ids.tolist())):
        if index == crowd.item_ids.tolist():
            return crowd
        try:
            return crowd.in_order(index)
        except DubitoError:  # 1 and "1"
            pass
    if crowd.rows_in_doubt:
        ids = crowd.item_ids[:3].tolist()
        raise DubitoError(
            "the items are sorted by their ids, which need not be the order of the rows of X",
            got=f"items {', '.join(map(repr, ids))}, ...",
            remedy="pass item_ids=, one per row of X, to CrowdLabels, or a frame with them as its index",
        )
    return crowd


def is_table(y: Any, missing: Any) -> bool:
    """Whether y has a column per annotator; one column is a table if it has gaps."""
    cells = y if hasattr(y, "shape") else np.asarray(y)
    if len(cells.shape) != 2:
        return False
    return cells.shape[1] > 1 or bool(gaps_of(cells_of(cells), missing).any())


def table_classes(y: Any, missing: Any) -> Array | None:
    """The classes of a table with negative ones, where `missing` says that something else is "no label"."""
    cells = np.asarray(y)
    if cells.dtype.kind not in "if" or missing == -1:
        return None
    values = np.unique(cells[~gaps_of(cells, missing)])
    return values.astype(np.int64) if len(values) and values[0] < 0 and (values % 1 == 0).all() else None


def one_annotator(y: Any) -> CrowdLabels:
    """One label per example, all from the same annotator."""
    y = column_or_1d(y, warn=True)
    check_classification_targets(y)
    classes, codes = np.unique(y, return_inverse=True)
    made = CrowdLabels(
        np.arange(len(y)), np.zeros(len(y), np.int64), codes, classes=len(classes), item_ids=np.arange(len(y))
    )
    made.classes = classes
    return made
