"""New data for a trained run: inputs in the form that it knows, with or without labels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ..data import ImageFiles, LabelledData, read_npz
from ..data._rows import chunks
from ..data.tables import _Inputs
from ..errors import DubitoError
from .arrays import bare
from .reading import distinct, kept
from .sources import Source, columns, role


def read_inputs(
    source: Source, path: Path, images: Path | None, delimiter: str | None = None
) -> LabelledData:
    """Inputs alone, of new data in the form that a run was trained on; labels may be missing."""
    if path.is_dir():
        return _folder_inputs(source, path)
    if path.suffix.lower() == ".npz":
        arrays = read_npz(path)
        key = source.inputs if source.inputs in arrays else next((k for k in ("x", "X") if k in arrays), None)
        if key is None:
            raise DubitoError("no array of inputs", where=str(path), expected=source.inputs or "x")
        return from_inputs(arrays[key], path.name)
    return _table_inputs(replace(source, delimiter=delimiter or source.delimiter), path, images)


def from_inputs(x: Any, name: str) -> LabelledData:
    """Arrays without labels."""
    return replace(
        bare(x, name),
        labels=torch.full((len(x),), -1),
        ids=[str(i + 1) for i in range(len(x))],
        classes=(),
    )


def _folder_inputs(source: Source, path: Path) -> LabelledData:
    from ..data.images import SUFFIXES

    if source.size is None:
        raise DubitoError("this run was trained on numbers, not on images", where=str(path))
    files = sorted(
        str(p.relative_to(path))
        for p in path.rglob("*")
        if p.suffix.lower() in SUFFIXES and p.is_file() and not p.name.startswith(".")
    )
    if not files:
        raise DubitoError("no images", where=str(path))
    made = ImageFiles(path, files, source.size, source.mode)
    return kept(LabelledData(made, torch.full((len(files),), -1), ids=files, name=path.name))


def _table_inputs(source: Source, path: Path, images: Path | None) -> LabelledData:
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
    made = _Inputs(
        source.image, None if source.image else list(source.features), root, source.size, torch.float64
    )
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
    if isinstance(inputs, ImageFiles):
        inputs.mode = source.mode
    return kept(LabelledData(inputs, torch.full((len(ids),), -1), ids=distinct(ids), name=path.name))
