"""What a reader of one on-disk layout hands over."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor

from ._labelled import LazyInputs, Triplets


@dataclass(frozen=True, eq=False)
class Parts:
    """The contents of one split as found on disk, before names and statistics are added."""

    inputs: Tensor | LazyInputs
    labels: Tensor
    clean: Tensor | None = None
    ids: Sequence[str] | None = None
    crowd: Triplets | None = None
    annotators: tuple[str, ...] = ()
    classes: tuple[str, ...] | None = None
    extra: Mapping[str, Tensor] = field(default_factory=dict)


# Looks for a split below a folder: None if its files are not there, an error if they are there but wrong.
Reader = Callable[[Path, str], Parts | None]
