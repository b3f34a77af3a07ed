"""New data for a trained run: inputs in the form that it knows, with or without labels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ..data import ImageFiles, LabelledData, read_npz
from ..data._rows import chunks
from ..data.images import SUFFIXES, _files
from ..data.tables import _Inputs
from ..errors import DubitoError
from .arrays import bare
from .columns import Code, Columns
from .reading import distinct, kept
from .sources import Source, columns, role
from .tasks import Say


def read_inputs(
    source: Source, path: Path, images: Path | None, delimiter: str | None = None, say: Say = lambda _: None
) -> LabelledData:
    """Inputs alone, of new data in the form that a run was trained on; labels may be missing."""
    if path.is_dir():
        return _folder_inputs(source, path)
    if path.suffix.lower() in SUFFIXES:
        raise DubitoError("an image, not a table", where=str(path), remedy="give the folder that it lies in")
    if path.suffix.lower() == ".npz":
        arrays = read_npz(path)
        key = source.inputs if source.inputs in arrays else next((k for k in ("x", "X") if k in arrays), None)
        if key is None:
            raise DubitoError("no array of inputs", where=str(path), expected=source.inputs or "x")
        return from_inputs(arrays[key], path.name)
    return _table_inputs(replace(source, delimiter=delimiter or source.delimiter), path, images, say)


def from_inputs(x: Any, name: str) -> LabelledData:
    """Arrays without labels."""
    return replace(
        bare(x, name),
        labels=torch.full((len(x),), -1),
        ids=[str(i + 1) for i in range(len(x))],
        classes=(),
    )


def _folder_inputs(source: Source, path: Path) -> LabelledData:
    if source.size is None:
        raise DubitoError("this run was trained on numbers, not on images", where=str(path))
    files = sorted(_files(path, "."))
    if not files:
        raise DubitoError("no images", where=str(path))
    made = ImageFiles(path, files, source.size, source.mode)
    return kept(LabelledData(made, torch.full((len(files),), -1), ids=files, name=path.name))


def _table_inputs(source: Source, path: Path, images: Path | None, say: Say) -> LabelledData:
    if source.kind == "arrays":
        raise DubitoError(
            "this run was trained on arrays, and knows no columns",
            where=str(path),
            expected=f"an .npz file with the array {source.inputs!r}",
            got=path.suffix or "no suffix",
        )
    names = columns(path, source.delimiter)
    key = source.item or source.id
    key = key if key in names else None
    root = images or Path(source.images or path.parent)
    coded = Columns(source.codes or [Code(name) for name in source.features], fixed=True)
    made = _Inputs(source.image, None, root, source.size) if source.image else coded
    wanted = [source.image] if source.image else list(source.features)
    for name in wanted:
        role(name, (), names, path, "features", taken=wanted)
    ids: list[str] = []
    seen: set[str] = set()
    for chunk in chunks(
        path, list(dict.fromkeys([*wanted, *([key] if key else [])])), delimiter=source.delimiter
    ):
        rows = []
        for row in range(len(chunk.numbers)):
            name = str(chunk.cells[key][row]).strip() if key else str(len(ids) + 1)
            if source.item is None or name not in seen:  # of a crowd's item the first row counts
                ids.append(name)
                seen.add(name)
                rows.append(row)
        made.add(chunk, rows)
    inputs = made.finish(len(ids), path.name)
    for column, strange in coded.unknown.items():
        some = ", ".join(repr(value)[:30] for value, _ in strange.most_common(4))
        more = ", ..." if len(strange) > 4 else ""
        say(
            f"note: column {column!r}: {strange.total():,} of {len(ids):,} cells count as other ({some}{more})"
        )
    if isinstance(inputs, ImageFiles):
        inputs.mode = source.mode
    return kept(LabelledData(inputs, torch.full((len(ids),), -1), ids=distinct(ids), name=path.name))
