"""The papers' figures as SVG and PNG: drawings that need no training, and pictures of result lines.

`draw` writes a picture, `picture` returns it as a matplotlib figure with its caption. A picture of results is made
from result lines and from nothing else.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path

from ...errors import DubitoError, nearest
from ..configs import SIZES
from ..results import Result
from ._style import Drawing, save

__all__ = ["FIGURES", "Drawing", "draw", "picture", "save"]

# Full name of an item -> module that draws it.
FIGURES: dict[str, str] = {
    **{f"englesson2023.table1-{data}": "noise_rates" for data in ("mnist", "cifar10", "cifar100")},
}


def picture(
    name: str, results: Sequence[Result] = (), *, size: str = "paper", data: str | None = None
) -> Drawing:
    """A figure and its caption.

    Arguments:
        name: full name of the item, "lukasik2020.figure1".
        results: result lines; drawings need none.
        size: of the runs to show, or of a drawing that is computed on the spot.
        data: another data set than the paper's, where the item takes one.
    """
    if name not in FIGURES:
        raise DubitoError("no picture of that name", got=repr(name), remedy=nearest(name, FIGURES))
    if size not in SIZES:
        raise DubitoError("unknown size", got=repr(size), remedy=nearest(size, SIZES))
    module = importlib.import_module(f".{FIGURES[name]}", __name__)
    drawn: Drawing = module.draw(name, results, size, data)
    return drawn


def draw(
    name: str,
    results: Sequence[Result],
    out: Path | str,
    *,
    size: str = "paper",
    data: str | None = None,
) -> tuple[Path, Path]:
    """Write ``OUT/NAME.svg`` and ``OUT/NAME.png`` and return both paths; see `picture`."""
    return save(picture(name, results, size=size, data=data), Path(out) / name)
