"""The papers' figures as SVG and PNG: drawings that need no training, and pictures of result lines.

`draw` writes a picture, `picture` returns it as a matplotlib figure with its caption. A picture of results is made
from result lines and from nothing else.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path

from ...errors import DubitoError, nearest
from .. import item
from ..configs import SIZES
from ..results import Result
from ._style import Drawing, save

__all__ = ["DRAWINGS", "FIGURES", "Drawing", "draw", "picture", "save"]

# Full name of an item -> module that draws it.
FIGURES: dict[str, str] = {
    **{f"collier2020.figure{n}": "sweeps" for n in (1, 2, 6)},
    **{f"collier2020.figure{n}": "segmented" for n in (3, 4)},
    "collier2020.figure5": "hidden_causes",
    **{f"englesson2023.table1-{data}": "noise_rates" for data in ("mnist", "cifar10", "cifar100")},
    **{f"englesson2023.figure{n}": "logistic_normal" for n in (1, 2)},
    "englesson2023.figure3": "regions",
    "englesson2023.figure4": "courses",
    "englesson2023.figure5": "sweeps",
    **{f"englesson2023.figure{n}": "histograms" for n in (6, 7)},
    "lukasik2020.figure1": "smearing",
    "lukasik2020.figure5": "separators",
    **{f"lukasik2020.figure{n}": "sweeps" for n in (2, 6)},
    **{f"lukasik2020.figure{n}": "histograms" for n in (3, 7)},
    **{f"lukasik2020.figure{n}": "projections" for n in (4, 8, 9)},
    "tanno2019.figure1": "schematic",
    **{f"tanno2019.figure{n}": "matrices" for n in (2, 4)},
    "tanno2019.figure5": "courses",
    "tanno2019.figure7": "people",
    **{f"tanno2019.figure{n}": "skills" for n in (3, 6, 9, 10, 11)},
    "tanno2019.figure8": "matrices",
}
# These need no result lines.
DRAWINGS = (
    "collier2020.figure5",
    "englesson2023.figure1",
    "englesson2023.figure2",
    "lukasik2020.figure1",
    "tanno2019.figure1",
    "tanno2019.figure8",
)


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
    other = data is not None and data not in {c.data for c in item(name).make("smoke", None, None)}
    if other and name in DRAWINGS:
        raise DubitoError("this is a drawing; it takes no other data", where=name, got=repr(data))
    module = importlib.import_module(f".{FIGURES[name]}", __name__)
    drawn: Drawing = module.draw(name, results, size, data)
    if not other:
        return drawn
    return drawn._replace(caption=f"{drawn.caption} No value of the paper: other data.")


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
