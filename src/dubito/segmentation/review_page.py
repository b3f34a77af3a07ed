"""The masks to look at first as files and as a part of the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .._files import replace_file
from .._product.writing import write_csv
from .._report import Suspicion
from ..data import LabelledData
from ..data._masks import resized
from . import outputs, pictures
from .review import Doubted, Region

MOST, EACH = 30, 2  # regions on the page, and of one mask
AROUND = 0.5  # how much of its surroundings a region is shown with, as a share of its sides
COLUMNS = (
    "id",
    "annotator",
    "doubt",
    "iou",
    "wrong",
    "row",
    "column",
    "height",
    "width",
    "given",
    "suggested",
)


def ranked(found: Sequence[Doubted]) -> list[Doubted]:
    """Masks with most doubt first."""
    return sorted(found, key=lambda d: -d.doubt)


def write(out: Path, data: LabelledData, found: Sequence[Doubted], classes: Sequence[str]) -> list[Suspicion]:
    """Write ``review.csv`` and ``doubt/[ANNOTATOR/]NAME.png``; returns what the report lists.

    A row of the table is a mask, with its gravest region. Rows and columns count pixels of the image's file from 0.
    """
    names, rows = data.ids or (), []
    sizes = _sizes(data)
    for d in ranked(found):
        name, person = str(names[d.row]), _person(data, d)
        size = sizes[d.row]
        folder = out / "doubt" if person is None else out / "doubt" / person
        path = folder / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, outputs.grey(resized(d.map.numpy(), size, smooth=False)))
        place: list[Any] = ["", "", "", "", "", ""]
        if d.regions:
            first = d.regions[0]
            place = [*_scaled(first.box, d, size), classes[first.given], classes[first.suggested]]
        rows.append([name, person or "", d.doubt, d.iou, d.wrong, *place])
    write_csv(out / "review.csv", list(COLUMNS), rows)
    return _suspicions(data, found, classes, sizes)


def _suspicions(
    data: LabelledData, found: Sequence[Doubted], classes: Sequence[str], sizes: Mapping[int, Sequence[int]]
) -> list[Suspicion]:
    listed = [(region, d) for d in found for region in d.regions[:EACH]]
    made = []
    for region, d in sorted(listed, key=lambda pair: -pair[0].weight)[:MOST]:
        row, column, height, width = _scaled(region.box, d, sizes[d.row])
        where = f"rows {row} to {row + height - 1}, columns {column} to {column + width - 1}"
        made.append(
            Suspicion(
                f"{(data.ids or ())[d.row]}: {where}",
                classes[region.given],
                classes[region.suggested],
                region.p_wrong,
                annotator=_person(data, d),
                thumbnail=_strip(data, d, region, len(classes)),
            )
        )
    return made


def _strip(data: LabelledData, d: Doubted, region: Region, count: int) -> bytes:
    """The region and what is around it: image, mask, prediction."""
    files: Any = data.inputs
    image = pictures.photo(files.image(d.row if data.rows is None else int(data.rows[d.row])))
    row, column, height, width = region.box
    margin = round(AROUND * max(height, width)) + 4
    place = (
        slice(max(0, row - margin), row + height + margin),
        slice(max(0, column - margin), column + width + margin),
    )
    panels = pictures.beside(image, d.given, d.guess, count)
    return outputs.strip([np.ascontiguousarray(panel[place]) for panel in panels], height=90, widest=160)


def _person(data: LabelledData, d: Doubted) -> str | None:
    return None if d.annotator is None else str(data.annotators[d.annotator])


def _sizes(data: LabelledData) -> dict[int, Sequence[int]]:
    """Height and width of each image's file."""
    files: Any = data.inputs
    rows = range(len(data)) if data.rows is None else data.rows.tolist()
    return {i: files.file_size(row) for i, row in enumerate(rows)}


def _scaled(box: Sequence[int], d: Doubted, size: Sequence[int]) -> list[int]:
    """A box on the network's image in pixels of the file, at least one pixel high and wide."""
    down, across = size[0] / d.map.shape[0], size[1] / d.map.shape[1]
    top, left = int(box[0] * down), int(box[1] * across)
    bottom, right = round((box[0] + box[2]) * down), round((box[1] + box[3]) * across)
    return [top, left, max(1, bottom - top), max(1, right - left)]
