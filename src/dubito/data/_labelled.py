"""The in-memory set: inputs, observed labels, and the clean labels that only scoring may see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from .._random import permutation
from .._tensors import check_broadcast, check_tensor
from ..errors import DubitoError
from ._positions import counts_of, grouped, positions_of, spread

if TYPE_CHECKING:
    from ..crowd.labels import CrowdLabels

NONE_GIVEN = -1  # no label was given; losses refuse it
IGNORED = -100  # void, not to be scored; losses skip it


class Triplets(NamedTuple):
    """Crowd labels in the long form: parallel int64 vectors, one entry per given label."""

    item: Tensor
    annotator: Tensor
    label: Tensor


class LazyInputs(Protocol):
    """Inputs that are read when asked for: a sequence of decoded examples that is indexed by a tensor."""

    def __len__(self) -> int: ...
    def __getitem__(self, rows: Tensor) -> Tensor: ...


@dataclass(frozen=True, eq=False)
class LabelledData:
    """Examples with labels that deserve doubt.

    A subset shares `inputs` with the whole and keeps only the row numbers, so splitting copies no image.
    A loop that holds the data on its device gathers a batch by position and normalises it there:
    `data.to(device)`, then `data.batch(positions)`.

    Arguments:
        inputs: uint8 images (M, C, H, W), float features (M, F), or an object that decodes rows when indexed.
        labels: observed class indices, (N,) or (N, H, W) for pixels; -1: none given; -100: void.
        clean: true class indices of the same shape, for scoring only; -1 where unknown.
        classes: names of the classes.
        mean, std: per channel or feature; images are scaled to [0, 1] before.
        rows: which row of `inputs` each example is; None: row i is example i.
        ids: a name per example, for reports.
        crowd: labels of several annotators; `item` counts the examples of this set.
        annotators: names of the annotators.
        extra: further per-example tensors (votes, the photo a crop came from); "group" keeps its numbers together.
        name: what to call the set in messages.

    Example:
        >>> data = LabelledData(torch.rand(10, 3), torch.arange(10) % 2, classes=("no", "yes"))
        >>> train, validation = data.split(8, 2, seed=0)
        >>> len(train), len(validation), train.inputs is data.inputs
        (8, 2, True)
    """

    inputs: Tensor | LazyInputs
    labels: Tensor
    clean: Tensor | None = None
    classes: tuple[str, ...] = ()
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    rows: Tensor | None = None
    ids: Sequence[str] | None = None
    crowd: Triplets | None = None
    annotators: tuple[str, ...] = ()
    extra: Mapping[str, Tensor] = field(default_factory=dict)
    name: str = "data"
    _scale: tuple[Tensor, Tensor] | None = field(init=False, repr=False, default=None)

    def __post_init__(self) -> None:
        check_tensor(self.labels, "labels")
        if isinstance(self.inputs, list | tuple | np.ndarray):
            check_tensor(self.inputs, "inputs")
        if self.crowd is not None:
            if not isinstance(self.crowd, Triplets):
                expected = "Triplets(item, annotator, label), three tensors"
                got = type(self.crowd).__name__
                raise DubitoError(
                    "no labels of a crowd", where=f"{self.name}.crowd", expected=expected, got=got
                )
            for part, vector in zip(Triplets._fields, self.crowd):
                check_tensor(vector, f"crowd.{part}")
        if self.labels.dim() == 0:
            raise DubitoError(
                "labels have no axis", where=self.name, expected="one per example", got="a number"
            )
        n = len(self.labels)
        if (self.mean is None) != (self.std is None):
            raise DubitoError("mean and std go together", where=self.name)
        if self.mean is not None and self.std is not None:
            # Made here, once: inside a captured CUDA graph nothing may be copied from the host.
            mean, std = (torch.tensor(v, device=self.device) for v in (self.mean, self.std))
            for part, values in (("mean", mean), ("std", std)):
                if not bool(values.isfinite().all()):
                    raise DubitoError(
                        f"the {part} is not finite", where=f"{self.name}.{part}", got=getattr(self, part)
                    )
            object.__setattr__(self, "_scale", (mean, std))
        parts: dict[str, Sized | None] = {
            "clean": self.clean,
            "rows": self.rows,
            "ids": self.ids,
            **self.extra,
        }
        if self.rows is None:
            parts["inputs"] = self.inputs
        for part, value in parts.items():
            if value is None:
                continue
            count = 0 if isinstance(value, Tensor) and value.dim() == 0 else len(value)
            if count != n:
                got = f"{count} and {n}"
                raise DubitoError(f"{part} and labels differ in length", where=self.name, got=got)
        if self.clean is not None and self.clean.shape != self.labels.shape:
            raise DubitoError(
                "clean labels differ in shape from the observed ones",
                where=self.name,
                expected=tuple(self.labels.shape),
                got=tuple(self.clean.shape),
            )

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def num_classes(self) -> int:
        """Number of classes: of the names, or else one more than the largest label."""
        if self.classes:
            return len(self.classes)
        seen = [t for t in (self.labels, self.clean, self.crowd and self.crowd.label) if t is not None]
        return max((int(t.max()) + 1 for t in seen if t.numel()), default=0)

    @property
    def device(self) -> torch.device:
        """Where the labels live, and the inputs unless they are decoded lazily."""
        return self.labels.device

    def gather(self, positions: Tensor) -> Tensor:
        """The raw inputs of some examples, in that order, straight from the shared store."""
        rows = positions if self.rows is None else self.rows[positions]
        if isinstance(self.inputs, Tensor):
            return self.inputs.index_select(0, rows)
        return _decoded(self.inputs, rows.cpu(), self.name).to(self.device, non_blocking=True)

    def batch(self, positions: Tensor) -> Tensor:
        """The normalised float32 inputs of some examples, on the device that holds the data."""
        return self.normalise(self.gather(positions))

    def normalise(self, x: Tensor) -> Tensor:
        """(x / 255 - mean) / std for uint8 images, (x - mean) / std for floats, as float32 at least."""
        return normalise(x, *(self._scale or (None, None)))

    def subset(self, positions: Tensor | Sequence[int]) -> LabelledData:
        """Some examples, in that order; `inputs` is shared, not copied.

        Arguments:
            positions: numbers of examples, each as often as it is named, or a mask with one boolean per example.
        """
        keep = positions_of(positions, len(self), self.device, self.name)
        on_cpu = keep.tolist() if self.ids is not None else []
        return replace(
            self,
            labels=self.labels[keep],
            clean=None if self.clean is None else self.clean[keep],
            rows=keep if self.rows is None else self.rows[keep],
            ids=None if self.ids is None else type(self.ids)(self.ids[i] for i in on_cpu),  # type: ignore[call-arg]
            crowd=None if self.crowd is None else self._crowd_of(keep),
            extra={k: v[keep] for k, v in self.extra.items()},
        )

    def split(
        self, *sizes: int | float, seed: int, purpose: str = "split", groups: Tensor | None = None
    ) -> tuple[LabelledData, ...]:
        """Disjoint random parts, the same for the same seed.

        Arguments:
            sizes: counts, or fractions of the whole (not both); what is left over is in no part.
            seed: keys the permutation together with `purpose`.
            groups: a group number per example; no group is cut, so the sizes become approximate.
        """
        counts = counts_of(sizes, len(self), self.name)
        if groups is None:
            order = permutation(len(self), seed, purpose=purpose, device=self.device)
        else:
            order, counts = grouped(groups.to(self.device), counts, seed, purpose)
        ends = [0]
        for count in counts:
            ends.append(ends[-1] + count)
        return tuple(self.subset(order[a:b]) for a, b in pairwise(ends))

    def to(self, device: torch.device | str) -> LabelledData:
        """The same set with its tensors on a device; move before splitting, so that parts share one copy."""

        def move(value: Tensor | None) -> Tensor | None:
            return None if value is None else value.to(device)

        return replace(
            self,
            inputs=self.inputs.to(device) if isinstance(self.inputs, Tensor) else self.inputs,
            labels=self.labels.to(device),
            clean=move(self.clean),
            rows=move(self.rows),
            crowd=None if self.crowd is None else Triplets(*(t.to(device) for t in self.crowd)),
            extra={k: v.to(device) for k, v in self.extra.items()},
        )

    def crowd_labels(self) -> CrowdLabels:
        """The labels of several annotators as `dubito.crowd.CrowdLabels`, items and annotators by number."""
        from ..crowd.labels import CrowdLabels

        if self.crowd is None:
            raise DubitoError("this set has one label per example, not a crowd", where=self.name)
        known = len(self.annotators) or int(self.crowd.annotator.max()) + 1
        return CrowdLabels(
            *(t.cpu() for t in self.crowd),
            classes=self.num_classes,
            item_ids=range(len(self)),
            annotator_ids=range(known),
            duplicates="keep",
        )

    def _crowd_of(self, keep: Tensor) -> Triplets | None:
        """The labels of the kept examples, renumbered by position; of an example that is kept twice, twice."""
        if self.crowd is None:
            return None
        order = torch.sort(keep, stable=True).indices
        counts = torch.bincount(keep, minlength=len(self))
        which, copy = spread(counts[self.crowd.item])
        first = (counts.cumsum(0) - counts)[self.crowd.item[which]]
        return Triplets(order[first + copy], self.crowd.annotator[which], self.crowd.label[which])

    def with_labels(self, labels: Tensor, clean: Tensor | None = None) -> LabelledData:
        """The same examples under other observed labels, one each; the clean ones stay unless given.

        The labels of several annotators are left behind: a fit would learn from them, not from these.
        """
        return replace(self, labels=labels, clean=self.clean if clean is None else clean, crowd=None)

    def with_statistics(self, mean: tuple[float, ...] | None, std: tuple[float, ...] | None) -> LabelledData:
        """The same examples under another normalisation; None and None: pixels / 255, features as they are."""
        return replace(self, mean=mean, std=std)


def _decoded(inputs: LazyInputs, rows: Tensor, name: str) -> Tensor:
    """Some inputs that are decoded when asked for, refused unless they come as one tensor."""
    try:
        found: object = inputs[rows]
        got = f"shape {tuple(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
    except (TypeError, ValueError, IndexError) as error:
        found, got = None, str(error)[:200]
    if isinstance(found, Tensor) and len(found) == len(rows):
        return found
    raise DubitoError(
        "inputs that are decoded when asked for must come as one tensor, a row per example",
        where=f"{name}.inputs",
        expected=f"a tensor of length {len(rows)}",
        got=got,
        remedy="index them by a tensor of row numbers, or stack all examples beforehand",
    )


def normalise(x: Tensor, mean: Tensor | None = None, std: Tensor | None = None) -> Tensor:
    """(x / 255 - mean) / std for uint8 images, (x - mean) / std for floats; channels or features on axis 1."""
    y = x.to(torch.float32) / 255 if x.dtype == torch.uint8 else x
    if y.dtype != torch.float64:
        y = y.to(torch.float32)
    if mean is None or std is None:
        return y
    shape = (-1,) + (1,) * (x.dim() - 2)
    check_broadcast(inputs=y, mean=mean.reshape(shape), std=std.reshape(shape))
    return (y - mean.view(shape)) / std.view(shape)
