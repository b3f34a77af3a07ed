"""Geometry of the charts: plain numbers that the template draws as SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..errors import DubitoError
from .data import Bin, Curve, Matrix

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 480, 260, 56, 40, 14, 14
MOST_POINTS = 400  # of one curve; longer ones are thinned
SIDE, HEAD = 84, 20  # room for the names of a heat map
MOST_CLASSES = 60  # of a heat map and its table: of more, those that are confused most
TEXT_UP_TO = 14  # classes: above, cells of a heat map carry no numbers (the table does)


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers from low to high.

    Example:
        >>> ticks(0, 1)
        [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    """
    if not high > low:
        high = low + 1
    raw = (high - low) / about
    unit = 10 ** math.floor(math.log10(raw))
    step = next(m * unit for m in (1, 2, 5, 10) if m * unit >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def axes(x: tuple[float, float], y: tuple[float, float]) -> dict[str, Any]:
    """Frame, ticks with their labels, and the maps from data to picture."""

    def across(v: float) -> float:
        return round(LEFT + (v - x[0]) / (x[1] - x[0]) * (WIDTH - LEFT - RIGHT), 2)

    def up(v: float) -> float:
        return round(HEIGHT - BOTTOM - (v - y[0]) / (y[1] - y[0]) * (HEIGHT - BOTTOM - TOP), 2)

    return {
        "width": WIDTH,
        "height": HEIGHT,
        "left": LEFT,
        "right": WIDTH - RIGHT,
        "top": TOP,
        "bottom": HEIGHT - BOTTOM,
        "x_ticks": [(across(t), f"{t:g}") for t in ticks(*x)],
        "y_ticks": [(up(t), f"{t:g}") for t in ticks(*y)],
        "across": across,
        "up": up,
    }


def line_charts(curves: Sequence[Curve]) -> list[dict[str, Any]]:
    """One chart per group of curves."""
    out = []
    for title in dict.fromkeys(str(c.chart) for c in curves):
        group = [c for c in curves if str(c.chart) == title]
        for c in group:
            if len(c.x) != len(c.y):
                raise DubitoError(
                    "a curve needs as many x as y", where=str(c.name), expected=len(c.x), got=len(c.y)
                )
        points = [_points(c) for c in group]
        flat = [p for line in points for p in line]
        if not flat:
            continue
        frame = axes(_span([p[0] for p in flat]), _span([p[1] for p in flat]))
        lines = [
            {
                "name": str(c.name),
                "style": i % 6,
                "points": " ".join(f"{frame['across'](x)},{frame['up'](y)}" for x, y in line),
                "alone": (frame["across"](line[0][0]), frame["up"](line[0][1])) if len(line) == 1 else None,
                "first": line[0][1] if line else None,
                "last": line[-1][1] if line else None,
                "best": (min(p[1] for p in line), max(p[1] for p in line)) if line else None,
            }
            for i, (c, line) in enumerate(zip(group, points))
        ]
        out.append({"title": title, "frame": frame, "lines": lines})
    return out


def _points(curve: Curve) -> list[tuple[float, float]]:
    pairs = [(float(x), float(y)) for x, y in zip(curve.x, curve.y)]
    pairs = [p for p in pairs if math.isfinite(p[0]) and math.isfinite(p[1])]
    step = max(1, -(-len(pairs) // MOST_POINTS))
    kept = pairs[::step]
    return kept if not pairs or kept[-1] == pairs[-1] else [*kept, pairs[-1]]


def _span(values: list[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    room = (high - low) * 0.04 or max(abs(high), 1.0) * 0.05
    return low - room, high + room


def reliability_chart(bins: Sequence[Bin]) -> dict[str, Any] | None:
    """Points at (confidence, accuracy), sized by how many fall into the bin."""
    bins = [b for b in bins if b.count > 0 and math.isfinite(b.confidence) and math.isfinite(b.accuracy)]
    if not bins:
        return None
    frame = axes((0.0, 1.0), (0.0, 1.0))
    most = max(b.count for b in bins)
    dots = [
        (
            frame["across"](b.confidence),
            frame["up"](b.accuracy),
            round(3 + 7 * math.sqrt(b.count / most), 2),
            b,
        )
        for b in bins
    ]
    total = sum(b.count for b in bins)
    gap = sum(b.count * abs(b.confidence - b.accuracy) for b in bins) / total
    return {"frame": frame, "dots": dots, "line": " ".join(f"{x},{y}" for x, y, _, _ in dots), "gap": gap}


def heat_map(matrix: Matrix, name: str) -> dict[str, Any]:
    """Cells of a heat map, and the same numbers for the table; of very many classes those confused most."""
    rows, columns = [str(r) for r in matrix.rows], [str(c) for c in matrix.columns]
    values = [[float(v) for v in row] for row in matrix.values]
    for part in (matrix.values, matrix.low, matrix.high):
        if part is not None and (len(part) != len(rows) or any(len(row) != len(columns) for row in part)):
            raise DubitoError(
                "a matrix needs one row and one column per class",
                where=name,
                expected=f"{len(rows)} x {len(columns)}",
                got=f"{len(part)} x {[len(row) for row in part][:3]}",
            )
    left_out = ""
    if len(rows) == len(columns) > MOST_CLASSES:
        left_out = f"Of {len(rows):,} classes the {MOST_CLASSES} that are confused most."
        kept = _most_confused(values)
        matrix = replace(
            matrix,
            low=None if matrix.low is None else [[matrix.low[i][j] for j in kept] for i in kept],
            high=None if matrix.high is None else [[matrix.high[i][j] for j in kept] for i in kept],
        )
        values = [[values[i][j] for j in kept] for i in kept]
        rows, columns = ([names[i] for i in kept] for names in (rows, columns))
    cell = max(6, min(44, 420 // max(len(columns), 1)))
    upright = any(len(c) > max(cell // 8, 2) for c in columns)
    head = SIDE if upright else HEAD
    cells = [
        {
            "x": SIDE + j * cell,
            "y": head + i * cell,
            "strength": round(min(max(v, 0.0), 1.0) * 0.62, 3) if math.isfinite(v) else 0,
            "text": f"{v:.2f}" if math.isfinite(v) and len(columns) <= TEXT_UP_TO else "",
            "title": f"true {rows[i]}, given {columns[j]}: {short(v)}",
        }
        for i, row in enumerate(values)
        for j, v in enumerate(row)
    ]
    named = max(len(rows), len(columns)) <= 30
    table = [
        (rows[i], [(short(v), _interval(matrix, i, j)) for j, v in enumerate(row)])
        for i, row in enumerate(values)
    ]
    return {
        "title": name,
        "left_out": left_out,
        "cell": cell,
        "width": SIDE + cell * len(columns) + 2,
        "head": head,
        "upright": upright,
        "height": head + cell * len(rows) + 2,
        "cells": cells,
        "columns": columns,
        "rows": rows,
        "table": table,
        "row_names": [(head + (i + 0.5) * cell + 4, cut(r, 11)) for i, r in enumerate(rows) if named],
        "column_names": [(SIDE + (j + 0.5) * cell, cut(c, 11)) for j, c in enumerate(columns) if named],
    }


def _most_confused(values: list[list[float]]) -> list[int]:
    """Rows with the most mass beside the diagonal, theirs and what others send to them, in their own order."""
    K = len(values)
    beside = [
        sum(
            values[i][j] + values[j][i]
            for j in range(K)
            if j != i and math.isfinite(values[i][j] + values[j][i])
        )
        for i in range(K)
    ]
    return sorted(sorted(range(K), key=lambda i: -beside[i])[:MOST_CLASSES])


def cut(text: str, length: int) -> str:
    """The text, or its beginning and an ellipsis.

    Example:
        >>> cut("aeroplane", 5), cut("cat", 5)
        ('aero…', 'cat')
    """
    return text if len(text) <= length else text[: max(length - 1, 0)] + "…"


def _interval(matrix: Matrix, i: int, j: int) -> str:
    if matrix.low is None or matrix.high is None:
        return ""
    return f"{short(matrix.low[i][j])} to {short(matrix.high[i][j])}"


def short(value: Any) -> str:
    """A number for people: three digits after the point below 10, else four figures; a dash where there is none.

    Example:
        >>> short(0.123456), short(1234.5), short(float("nan")), short("text"), short(1234)
        ('0.123', '1234', '–', 'text', '1,234')
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    if not math.isfinite(value):
        return "–"
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.4g}"


def percent(share: float) -> str:
    """A share for people; a dash where there is none. What is not certain is not called so.

    Example:
        >>> percent(0.9854), percent(0.99999), percent(float("nan"))
        ('98.5 %', '> 99.9 %', '–')
    """
    if not math.isfinite(share):
        return "–"
    return "> 99.9 %" if 0.9995 <= share < 1 else f"{100 * share:.1f} %"
