"""From a source to examples in memory: inputs brought to one scale, labels, names of the items."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .._outliers import bounds
from ..data import ImageFiles, LabelledData, Triplets, image_folder, read_table
from ..data._alike import GROUP
from ..data._rows import chunks
from ..data.labels import Coder
from ..data.tables import examples
from ..errors import DubitoError
from .arrays import minus_one, read_arrays
from .classes import refuse_numbers
from .columns import Code, Columns
from .groups import group_numbers
from .sources import Source

MOST_BYTES = 2 << 30  # images up to this are decoded once and kept; above, whenever a batch needs them
PROBED = 32
LARGEST_SIDE, USUAL_SIDE = 96, 64


@dataclass(frozen=True)
class Scale:
    """Mean and deviation of each feature or channel; features are drawn in by asinh as well."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def apply(self, data: LabelledData, precision: torch.dtype = torch.float64) -> LabelledData:
        """The same examples on this scale, with means and deviations of this precision."""
        if isinstance(data.inputs, Tensor) and data.inputs.dim() == 2:
            mean, std = (torch.tensor(v, dtype=precision) for v in (self.mean, self.std))
            x = (data.inputs.double() - mean) / std
            return replace(data, inputs=torch.asinh(x).float(), mean=None, std=None)
        return data.with_statistics(self.mean, self.std)


def scale_of(data: LabelledData) -> Scale:
    """The scale that brings these examples to mean 0 and deviation 1; what never varies keeps deviation 1.

    All sums are of differences, from the first example and then from the mean, in float64: timestamps differ far
    behind their first digits. Features heed no single value far beyond all others.
    """
    n = len(data)
    rows = (
        torch.arange(n) if isinstance(data.inputs, Tensor) else torch.linspace(0, n - 1, min(n, 512)).long()
    )
    near = _heeded(data)
    first = near(_wide(data, rows[:1])[:, :1])
    mean = (first + _mean(data, rows, lambda x: near(x) - first)).flatten()
    std = _mean(data, rows, lambda x: (near(x) - mean.unsqueeze(1)).square()).flatten().sqrt()
    if not bool(std.isfinite().all()):
        raise DubitoError(
            "numbers too large to be told apart", where=data.name, got=f"{float(mean.abs().max()):.3g}"
        )
    return Scale(
        tuple(mean.tolist()), tuple(torch.where(std > _rounding(data) * mean.abs(), std, 1.0).tolist())
    )


def _heeded(data: LabelledData) -> Callable[[Tensor], Tensor]:
    """Puts the median in the place of features far beyond all others; leaves the channels of images."""
    if not isinstance(data.inputs, Tensor) or data.inputs.dim() != 2:
        return lambda x: x
    whole = data.gather(torch.arange(len(data))).double().numpy()
    low, high, middle = (torch.from_numpy(b).unsqueeze(1) for b in bounds(whole))
    return lambda x: torch.where((x < low) | (x > high), middle, x)


def _wide(data: LabelledData, rows: Tensor) -> Tensor:
    """Features or channels x values, in float64; pixels from 0 to 1."""
    x = data.gather(rows)
    return (x.double() / 255 if x.dtype == torch.uint8 else x.double()).transpose(0, 1).flatten(1)


def _mean(data: LabelledData, rows: Tensor, of: Callable[[Tensor], Tensor]) -> Tensor:
    """The mean of a function of the values, of each feature or channel ``(F, 1)``."""
    total, count = torch.zeros(1, 1, dtype=torch.float64), 0
    for part in rows.split(4096):
        x = of(_wide(data, part))
        total, count = total + x.sum(1, keepdim=True), count + x.shape[1]
    return total / count


def _rounding(data: LabelledData) -> float:
    """The relative deviation up to which numbers differ by rounding alone."""
    wide = isinstance(data.inputs, Tensor) and data.inputs.dtype == torch.float64
    return 16 * torch.finfo(torch.float64 if wide else torch.float32).eps


def read(source: Source) -> tuple[LabelledData, Source]:
    """Examples, with ids; rows without a label have the label -1. The source comes back with its image size."""
    if source.kind == "folder":
        root = Path(source.path)
        data = image_folder(root, size=source.size)
        source = probed(source, root, data.inputs.paths)  # type: ignore[union-attr]
        data = image_folder(root, size=source.size, mode=source.mode)
    elif source.kind == "arrays":
        data = read_arrays(source)
    else:
        data, source = _table(source)
    if data.num_classes < 2:
        raise DubitoError(
            "the labels hold one class, which leaves nothing to learn",
            where=f"{source.path}, {source.label or 'folders'}",
            got=", ".join(data.classes) or "no labels",
            remedy=minus_one(source),
        )
    refuse_numbers(data.classes, len(data), f"{source.path}, {source.label or 'folders'}")
    if source.groups is not None:
        data = replace(data, extra={GROUP: group_numbers(source, data)})
    ids = data.ids if data.ids is not None else [str(i + 1) for i in range(len(data))]
    return replace(kept(data), ids=distinct(ids)), source


def distinct(names: Sequence[str]) -> list[str]:
    """The names, with a number behind those that have occurred before.

    Example:
        >>> distinct(["a", "b", "a"])
        ['a', 'b', 'a (2)']
    """
    taken, counts = set(names), dict.fromkeys(names, 0)
    out = []
    for name in names:
        counts[name] += 1
        new = name
        while counts[name] > 1 and new in taken:  # a name with a number may be there already
            new = f"{name} ({counts[name]})"
            counts[name] += new in taken
        taken.add(new)
        out.append(new)
    return out


def _table(source: Source) -> tuple[LabelledData, Source]:
    if source.image is not None:
        root = Path(source.images or ".")
        head = next(chunks(source.path, [source.image], delimiter=source.delimiter))
        source = probed(source, root, [str(c).strip() for c in head.cells[source.image]])
    people: dict[str, Any] = {"missing": "keep", "id": source.id}
    if source.item is not None:
        people = {"item": source.item, "annotator": source.annotator}
    options = {"label": source.label, "clean": source.clean, "delimiter": source.delimiter, **people}
    if source.image is not None:
        data = read_table(source.path, image=source.image, images=source.images, size=source.size, **options)
    else:
        columns = Columns(source.codes or [Code(name) for name in source.features])
        data = examples(source.path, columns, source.features, **options)
        plain = all(code == Code(code.name) for code in columns.codes)
        source = replace(source, codes=() if plain else tuple(columns.codes))
    if source.item is None and source.annotator is not None:
        data = _one_label_each(data, source)
    if isinstance(data.inputs, ImageFiles):
        data.inputs.mode = source.mode
    return data, source


def _one_label_each(data: LabelledData, source: Source) -> LabelledData:
    """A crowd whose items are the rows: every label has one annotator."""
    assert source.annotator is not None
    who = Coder("annotator")
    for chunk in chunks(source.path, [source.annotator], delimiter=source.delimiter):
        who.extend(chunk.cells[source.annotator], partial(chunk.where, column=source.annotator))
    codes, names = who.finish()
    given = (data.labels >= 0).nonzero().flatten()
    return replace(
        data,
        labels=torch.full_like(data.labels, -1),
        crowd=Triplets(given, codes[given], data.labels[given]),
        annotators=names,
    )


def probed(source: Source, root: Path, paths: Sequence[str]) -> Source:
    """The size and mode that suit the first images: their own if small, square and alike, else 64 x 64."""
    from PIL import Image

    from ..data.images import _FORMATS, inside

    step = max(1, len(paths) // PROBED)
    sizes, grey = set(), True
    for path in [paths[i] for i in range(0, len(paths), step)][:PROBED]:
        try:
            with Image.open(inside(root, path), formats=_FORMATS) as image:
                sizes.add(image.size)
                grey = grey and image.mode in ("1", "L", "I", "I;16", "LA")
        except OSError:
            continue  # told with its place when it is decoded
    alike = len(sizes) == 1 and all(w == h <= LARGEST_SIDE for w, h in sizes)
    size = source.size or (next(iter(sizes))[0] if alike else USUAL_SIDE)
    return replace(source, size=size, mode="L" if grey and sizes else "RGB")


def kept(data: LabelledData) -> LabelledData:
    """Images decoded into memory where they fit."""
    if isinstance(data.inputs, Tensor) or not len(data):
        return data
    one = data.inputs[torch.zeros(1, dtype=torch.int64)]
    if one[0].numel() * len(data) > MOST_BYTES:
        return data
    parts = [data.inputs[rows] for rows in torch.arange(len(data)).split(256)]
    return replace(data, inputs=torch.cat(parts))


def shape_of(data: LabelledData) -> tuple[int, ...]:
    """The shape of one example."""
    if isinstance(data.inputs, Tensor):
        return tuple(data.inputs.shape[1:])
    return tuple(data.gather(torch.zeros(1, dtype=torch.int64)).shape[1:])


def network_for(shape: tuple[int, ...]) -> str:
    """The network that "auto" stands for: a perceptron for numbers and thumbnails, LeNet-5 or a CNN for images."""
    if len(shape) != 3 or math.prod(shape[1:]) < 16 * 16:
        return "mlp"
    return "lenet5" if shape[1] == shape[2] and shape[1] <= 32 else "cnn4"
