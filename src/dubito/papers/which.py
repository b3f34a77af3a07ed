"""Which method for which noise: the small table that `tools/results_pages.py` computes from the result lines.

The table lies in the package (``which_method.json``), so that a choice of a method can be told what was measured.
One entry is a data set under one noise with one label per item (its rate as the experiment names it; of
class-dependent noise the mean share of wrong labels over classes), with the methods that were run there, best
first, each with its accuracy on clean test labels, Student's 95 % interval over seeds, and its standing: first,
level, in doubt or below.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from importlib import resources
from typing import Any

from .._json import parse_json

TABLE = "which_method.json"
# What an audit calls a kind of noise -> the noise of the experiments that is closest to it.
CLOSEST = {
    "none": ("none",),
    "symmetric": ("resample", "flip_to_other"),
    "pairwise": ("asymmetric", "pair_flip"),
    "class-dependent": ("asymmetric", "class_dependent"),
    "input-dependent": ("natural",),
}


@dataclass(frozen=True)
class Evidence:
    """A method where it was measured.

    Arguments:
        gap: points of accuracy below the first of the place.
        interval: Student's 95 % interval of the accuracy, None with one seed.
    """

    data: str
    noise: str
    rate: float
    method: str
    params: tuple[tuple[str, Any], ...]
    accuracy: float
    interval: tuple[float, float] | None
    seeds: int
    standing: str
    gap: float


@functools.cache
def table() -> tuple[Evidence, ...]:
    """Every measured method at every place."""
    file = resources.files(__package__) / TABLE
    content = parse_json(file.read_text(encoding="utf-8"), TABLE)
    return tuple(_evidence(place, row) for place in content for row in place["methods"])


def evidence(kind: str, rate: float, within: float = 0.15) -> tuple[Evidence, ...]:
    """What was measured under noise of that kind at rates near this one, the nearest rate and the best first.

    Arguments:
        kind: as an audit names it: "none", "symmetric", "pairwise", "class-dependent", "input-dependent".
        within: how far the rate of an experiment may be away.

    Example:
        >>> found = evidence("symmetric", 0.4)
        >>> found[0].standing, found[0].noise
        ('first', 'resample')
    """
    near = [e for e in table() if e.noise in CLOSEST.get(kind, ()) and abs(e.rate - rate) <= within]
    return tuple(sorted(near, key=lambda e: (abs(e.rate - rate), e.data, e.gap)))


def _evidence(place: dict[str, Any], row: dict[str, Any]) -> Evidence:
    bounds = row["interval"]
    return Evidence(
        data=place["data"],
        noise=place["noise"],
        rate=float(place["rate"]),
        method=row["method"],
        params=tuple(sorted(row["params"].items())),
        accuracy=float(row["accuracy"]),
        interval=None if bounds is None else (float(bounds[0]), float(bounds[1])),
        seeds=int(row["seeds"]),
        standing=row["standing"],
        gap=round(float(place["methods"][0]["accuracy"]) - float(row["accuracy"]), 4),
    )
