"""Which examples a step sees: order, batches, and the labels that belong to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from inspect import signature
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ._distributed import Ranks
from ._numbers import check_choice
from ._random import permutation
from .data import LabelledData
from .data._positions import spread
from .errors import DubitoError

BATCHINGS = ("epoch", "drop", "stream")
WEIGHT = "weight"  # the key of examples' weights in `LabelledData.extra`


class Batch(NamedTuple):
    """What one step sees.

    Shapes: positions ``(B,)``; x ``(B, ...)``; y ``(B, ...)``, or ``(M,)`` for a crowd with `row` ``(M,)``, the
    example of the batch that each label belongs to, and `annotators` ``(M,)``. A label of -1 was not given.
    `weight` ``(B,)``: how much each example counts, if the data has weights.

    With several processes a batch is one process's part of the step: `examples` and `given` (labels, or examples of
    a crowd) are counts of the whole step, and `ranks` combines the parts.
    """

    positions: Tensor
    x: Tensor
    y: Tensor
    row: Tensor | None = None
    annotators: Tensor | None = None
    weight: Tensor | None = None
    complete: bool = False
    examples: int | None = None
    given: Tensor | int | None = None
    ranks: Ranks = Ranks()

    @property
    def size(self) -> int:
        """Examples of the whole step."""
        return len(self.x) if self.examples is None else self.examples

    @property
    def divisor(self) -> Tensor | int:
        """What a sum over labels is divided by: labels (or pixels) given in the whole step, or examples of a crowd.

        At least 1, so that a step without labels has loss 0.
        """
        if self.given is not None:
            return self.given
        return self.size if self.row is not None else (self.y >= 0).sum().clamp(min=1)


def takes_masks(augment: Callable[..., Any]) -> bool:
    """Whether an augmentation takes masks beside images, and returns both."""
    return "masks" in signature(augment).parameters


def augmented(batch: Batch, augment: Callable[..., Any], *, seed: int, epoch: int) -> Batch:
    """The batch with its inputs augmented, and its masks along with them where `augment` takes ``masks``.

    Several masks of one image are all moved as the image is, since random numbers are keyed by the example.
    """
    keys: dict[str, Any] = {"seed": seed, "epoch": epoch}
    if not takes_masks(augment):
        return batch._replace(x=_like_inputs(augment(batch.x, **keys, index=batch.positions), batch.x))
    if batch.row is None:
        x, y = augment(batch.x, masks=batch.y, **keys, index=batch.positions)
        seen = y >= 0
    else:
        x = augment(batch.x, masks=None, **keys, index=batch.positions)[0]
        y = augment(batch.x[batch.row], masks=batch.y, **keys, index=batch.positions[batch.row])[1]
        seen = y.new_zeros(len(x), *y.shape[1:]).index_add(0, batch.row, (y >= 0).to(y.dtype)) > 0
    given = batch.ranks.sum(seen.sum())
    # Inputs transposed in memory make convolutions slow, and some versions of torch crash in the backward pass.
    x, y = x.contiguous(), y.contiguous()
    return batch._replace(x=x, y=y, complete=False, given=given.clamp(min=1))


def _like_inputs(found: Any, x: Tensor) -> Tensor:
    """Augmented inputs, refused unless there is one for each, of the same type; images may change their size."""
    if isinstance(found, Tensor) and found.dtype == x.dtype and len(found) == len(x):
        return found
    shape = f"{found.dtype} of shape {tuple(found.shape)}" if isinstance(found, Tensor) else None
    raise DubitoError(
        "augment= must return the inputs of the batch, augmented",
        expected=f"{x.dtype} of shape {tuple(x.shape)}",
        got=shape or type(found).__name__,
    )


class Order:
    """The order of examples over a whole run, a function of (seed, step) and nothing else.

    Arguments:
        n: number of examples that an epoch shows.
        batch_size: examples per step, None for all of them.
        batching: ``"epoch"`` ends an epoch with a smaller batch, ``"drop"`` leaves that batch out, and
            ``"stream"`` lets batches run across the end of an epoch, so that all have the same size.
        shown: epoch -> the positions of its `n` examples, in order; None shows all examples in random order.

    Example:
        >>> order = Order(10, 4, "stream", seed=0)
        >>> order.steps(epochs=2), len(order.positions(2))
        (5, 4)
    """

    def __init__(
        self,
        n: int,
        batch_size: int | None,
        batching: str = "epoch",
        *,
        seed: int,
        shown: Callable[[int], Tensor] | None = None,
    ) -> None:
        check_choice(batching, BATCHINGS, "batching")
        self.n, self.size, self.batching, self.seed = n, min(batch_size or n, n), batching, seed
        if n == 0 or self.size < 1:
            raise DubitoError("nothing to train on", got=f"{n} examples in batches of {batch_size}")
        self._shown = shown
        # Steps in one epoch; for a stream, rounded up.
        self.steps_per_epoch = n // self.size if batching == "drop" else -(-n // self.size)
        self._cached: dict[int, Tensor] = {}

    def steps(self, epochs: int) -> int:
        """Steps in `epochs` epochs."""
        if self.batching == "stream":
            return -(-self.n * epochs // self.size)
        return self.steps_per_epoch * epochs

    def smallest(self, steps: int) -> int:
        """Examples of the smallest batch in a run of this many steps."""
        left = self.n % self.size if self.batching == "epoch" else 0
        return left if left and steps >= self.steps_per_epoch else self.size

    def epoch(self, step: int) -> int:
        """The epoch in which a step begins."""
        if self.batching == "stream":
            return step * self.size // self.n
        return step // self.steps_per_epoch

    def ends_epoch(self, step: int) -> bool:
        """Whether the next step begins another epoch."""
        return self.epoch(step + 1) > self.epoch(step)

    def positions(self, step: int) -> Tensor:
        """The examples of a step."""
        if self.batching == "stream":
            first = step * self.size
            epoch, start = divmod(first, self.n)
            here = self._permutation(epoch)[start : start + self.size]
            if len(here) == self.size:
                return here
            return torch.cat([here, self._permutation(epoch + 1)[: self.size - len(here)]])
        start = step % self.steps_per_epoch * self.size
        return self._permutation(self.epoch(step))[start : start + self.size]

    def _permutation(self, epoch: int) -> Tensor:
        if epoch not in self._cached:
            kept = {e: order for e, order in self._cached.items() if e == epoch - 1}
            here = permutation(self.n, self.seed, epoch) if self._shown is None else self._shown(epoch)
            self._cached = {**kept, epoch: here}
        return self._cached[epoch]


class Batches:
    """Gathers batches of a data set; labels of a crowd are found by an index over items, built once."""

    def __init__(self, data: LabelledData, ranks: Ranks = Ranks()) -> None:  # noqa: B008 - frozen
        self.data, self.ranks = data, ranks
        given = data.labels if data.crowd is None else data.crowd.label
        self.complete = bool((given >= 0).all())
        self._weight, self._each = data.extra.get(WEIGHT), data.labels.shape[1:].numel()
        self._sorted: tuple[Tensor, Tensor, Tensor] | None = None
        if data.crowd is not None:
            order = torch.sort(data.crowd.item, stable=True).indices
            counts = torch.bincount(data.crowd.item, minlength=len(data))
            starts = counts.cumsum(0) - counts
            self._sorted = order, starts, counts

    def __call__(self, positions: Tensor) -> Batch:
        """The batch at these positions (of the whole step), normalised, on the data's device."""
        data, everyone = self.data, positions.to(self.data.labels.device)
        positions = self.ranks.share(everyone)
        x = data.batch(positions)
        weight = None if self._weight is None else self._weight[positions]
        size = len(everyone)
        if self._sorted is None or data.crowd is None:
            y = data.labels.index_select(0, positions).long()
            given = self._given(everyone, y)
            return Batch(positions, x, y, None, None, weight, self.complete, size, given, self.ranks)
        order, starts, counts = self._sorted
        many = counts[positions]
        row, nth = spread(many)
        which = order[starts[positions][row] + nth]
        labels, annotators = data.crowd.label[which], data.crowd.annotator[which]
        whole = size if labels.dim() == 1 else self._pixels(everyone)
        return Batch(positions, x, labels, row, annotators, weight, self.complete, size, whole, self.ranks)

    def _given(self, everyone: Tensor, y: Tensor) -> Tensor | int:
        if self.complete:
            return max(1, len(everyone) * self._each)
        whole = y if self.ranks.alone else self.data.labels[everyone]
        return (whole >= 0).sum().clamp(min=1)

    def _pixels(self, everyone: Tensor) -> Tensor:
        """Pixels of the whole step that somebody has labelled."""
        assert self._sorted is not None
        assert self.data.crowd is not None
        order, starts, counts = self._sorted
        found = torch.zeros((), dtype=torch.int64, device=everyone.device)
        for start, count in zip(starts[everyone].tolist(), counts[everyone].tolist()):
            masks = self.data.crowd.label[order[start : start + count]]
            found += (masks >= 0).any(0).sum() if count else 0
        return found.clamp(min=1)

    def all(self, size: int = 1024) -> Iterator[Batch]:
        """Every example once, in order."""
        for start in range(0, len(self.data), size):
            yield self(torch.arange(start, min(start + size, len(self.data)), device=self.data.device))
