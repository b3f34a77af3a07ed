"""Outlines of objects in a mask: traced along pixel edges, simplified to polygons, filled again."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

# (row, column) of the neighbour, start corner and end corner of the edge shared with it, the object on the right.
_SIDES = (
    ((-1, 0), (0, 0), (0, 1)),
    ((0, 1), (0, 1), (1, 1)),
    ((1, 0), (1, 1), (1, 0)),
    ((0, -1), (1, 0), (0, 0)),
)


def simplified(shape: Array, tolerance: float) -> Array:
    """A binary shape (H, W) redrawn by polygons whose corners are at most `tolerance` pixels off its outlines.

    Example:
        >>> staircase = np.tril(np.ones((6, 6), dtype=bool))
        >>> [bool((simplified(staircase, off) == staircase).all()) for off in (0.0, 2.0)]
        [True, False]
    """
    loops = [_douglas_peucker(loop, tolerance) for loop in outlines(shape)]
    return filled([loop for loop in loops if len(loop) >= 3], shape.shape)


def outlines(shape: Array) -> list[Array]:
    """The closed outlines of a binary shape (H, W), outer ones and holes, as corners (n, 2) in (row, column)."""
    padded = np.pad(shape.astype(bool), 1)
    ways: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for (row, column), start, end in _SIDES:
        beyond = np.roll(padded, (-row, -column), (0, 1))
        for y, x in np.argwhere(padded & ~beyond).tolist():
            ways.setdefault((y + start[0] - 1, x + start[1] - 1), []).append((y + end[0] - 1, x + end[1] - 1))
    loops = []
    while ways:
        first = corner = next(iter(ways))
        loop = []
        while True:
            loop.append(corner)
            following = ways[corner].pop()
            if not ways[corner]:
                del ways[corner]
            corner = following
            if corner == first:
                break
        loops.append(np.array(loop, dtype=np.float64))
    return loops


def filled(loops: list[Array], size: tuple[int, ...]) -> Array:
    """The pixels (H, W) whose centres lie inside an odd number of the polygons."""
    toggles = np.zeros((size[0], size[1] + 1), dtype=np.int64)
    for loop in loops:
        for (y1, x1), (y2, x2) in zip(loop.tolist(), np.roll(loop, -1, 0).tolist()):
            low, high = (y1, y2) if y1 < y2 else (y2, y1)
            rows = np.arange(max(0, int(np.ceil(low - 0.5))), min(size[0], int(np.ceil(high - 0.5))))
            if len(rows):
                across = x1 + (rows + 0.5 - y1) * (x2 - x1) / (y2 - y1)
                at = np.ceil(across - 0.5).clip(0, size[1]).astype(np.int64)
                np.add.at(toggles, (rows, at), 1)
    return np.asarray(toggles.cumsum(1)[:, :-1] % 2 == 1)


def _douglas_peucker(loop: Array, tolerance: float) -> Array:
    """A closed loop with fewer corners: none that were dropped is farther than `tolerance` from what is left."""
    if tolerance <= 0 or len(loop) < 4:
        return loop
    far = int(np.square(loop - loop[0]).sum(-1).argmax())
    closed = np.concatenate([loop, loop[:1]])
    kept = np.zeros(len(closed), dtype=bool)
    kept[[0, far, len(loop)]] = True
    todo = [(0, far), (far, len(loop))]
    while todo:
        a, b = todo.pop()
        if b - a < 2:
            continue
        distance = _to_chord(closed[a + 1 : b], closed[a], closed[b])
        worst = int(distance.argmax())
        if distance[worst] > tolerance:
            middle = a + 1 + worst
            kept[middle] = True
            todo += [(a, middle), (middle, b)]
    return np.asarray(closed[:-1][kept[:-1]])


def _to_chord(points: Array, start: Array, end: Array) -> Array:
    """Distances of points from the stretch between two others."""
    along = end - start
    length = float(along @ along)
    share = ((points - start) @ along / length).clip(0, 1) if length > 0 else np.zeros(len(points))
    return np.asarray(np.sqrt(np.square(points - start - share[:, None] * along).sum(-1)))
