"""Checks of the data before the first step: labels, inputs, weights, annotators (see also `options`, `trial`)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from .._batches import WEIGHT
from .._tensors import refuse_first
from ..data import IGNORED, NONE_GIVEN, LabelledData
from ..errors import DubitoError
from ..model import Model

_CHUNK = 1 << 16


def check_kinds(model: Model, data: LabelledData, name: str) -> None:
    """Refuse anything but a model and a labelled set."""
    if not isinstance(model, Model):
        raise DubitoError(
            "not a model",
            expected="dubito.Model(backbone, head)",
            got=type(model).__name__,
            remedy="for fit() pass compile=True" if hasattr(model, "_orig_mod") else None,
        )
    if not isinstance(data, LabelledData):
        raise DubitoError(
            f"{name} is not a labelled set",
            expected="dubito.data.LabelledData",
            got=type(data).__name__,
            remedy="use LabelledData(inputs, labels), or a reader of dubito.data",
        )


def check_data(model: Model, data: LabelledData, name: str, training: bool) -> None:
    """Refuse labels, inputs and weights that cannot be trained on (`training`) or scored."""
    check_kinds(model, data, name)
    if len(data) == 0:
        raise DubitoError("there is nothing to learn from", where=name, got="0 examples")
    classes = model.num_classes
    check_labels(data.labels, classes, f"{name}.labels")
    if data.clean is not None:
        check_labels(data.clean, classes, f"{name}.clean")
    if data.crowd is not None:
        _check_crowd(model, data, name)
    elif training and getattr(model.channel, "per_annotator", False):
        raise DubitoError(
            "the channel has a matrix per annotator, but the labels are nobody's in particular",
            where=name,
            remedy="give LabelledData crowd=Triplets(item, annotator, label), or use LearnedTransition",
        )
    if not has_labels(data):
        raise DubitoError("no example has a label", where=f"{name}.labels", got="-1 or -100 everywhere")
    _check_inputs(data, name)
    if WEIGHT in data.extra:
        _check_weights(data.extra[WEIGHT], len(data), f"{name}.extra[{WEIGHT!r}]", training)


def has_labels(data: LabelledData) -> bool:
    """Whether there is any label; without one, accuracy would be 0 and likelihood that of a perfect model."""
    given = data.labels if data.crowd is None else data.crowd.label
    return bool((given >= 0).any())


def check_labels(labels: Tensor, classes: int, where: str) -> None:
    """Refuse labels that are not whole numbers from 0 to classes - 1, -1 (none given) or -100 (void)."""
    if not isinstance(labels, Tensor) or labels.is_floating_point() or labels.is_complex():
        raise DubitoError(
            "labels must be whole numbers", where=where, expected="torch.int64", got=kind_of(labels)
        )
    if labels.dtype not in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8):
        raise DubitoError(
            "labels must be whole numbers", where=where, expected="torch.int64", got=labels.dtype
        )
    bad = (labels >= classes) | ((labels < 0) & (labels != NONE_GIVEN) & (labels != IGNORED))
    expected = f"0 to {classes - 1}, or -1 for none"
    remedy = "map labels to class numbers, or give the head more classes"
    refuse_first(bad, labels, where, "label out of range", expected, remedy)


def _check_crowd(model: Model, data: LabelledData, name: str) -> None:
    crowd = data.crowd
    assert crowd is not None
    lengths = {len(part) for part in crowd}
    if len(lengths) != 1 or crowd.item.dim() != 1 or crowd.annotator.dim() != 1 or crowd.label.dim() == 0:
        raise DubitoError(
            "item, annotator and label must be vectors of one length",
            where=f"{name}.crowd",
            got=", ".join(str(tuple(part.shape)) for part in crowd),
        )
    check_labels(crowd.label, model.num_classes, f"{name}.crowd.label")
    per = getattr(model.channel, "per_annotator", False)
    people = int(model.channel.num_annotators) if per else None  # type: ignore[union-attr, arg-type]
    for part, values, limit in (("item", crowd.item, len(data)), ("annotator", crowd.annotator, people)):
        where = f"{name}.crowd.{part}"
        if values.dtype != torch.int64:
            raise DubitoError(f"{part} numbers must be torch.int64", where=where, got=values.dtype)
        bad = (values < 0) if limit is None else (values < 0) | (values >= limit)
        if bad.any():
            place = int(bad.nonzero()[0])
            expected = "0 or more" if limit is None else f"0 to {limit - 1}"
            raise DubitoError(
                f"unknown {part}", where=f"{where}[{place}]", expected=expected, got=int(values[place])
            )


def _check_inputs(data: LabelledData, name: str) -> None:
    if data.rows is not None and len(data.rows):
        low, high = int(data.rows.min()), int(data.rows.max())
        if low < 0 or high >= len(data.inputs):
            raise DubitoError(
                "rows point outside the inputs",
                where=f"{name}.rows",
                expected=f"0 to {len(data.inputs) - 1}",
                got=low if low < 0 else high,
            )
    if data.std is not None and not all(s > 0 for s in data.std):
        raise DubitoError("a standard deviation must be above 0", where=f"{name}.std", got=data.std)
    inputs = data.inputs
    if not isinstance(inputs, Tensor):
        return  # decoded when read: values that are not finite are reported then, with their row
    if inputs.is_complex() or inputs.dim() < 2:
        raise DubitoError(
            "inputs must be real, one row per example",
            where=f"{name}.inputs",
            expected="(N, features) or (N, channels, height, width)",
            got=kind_of(inputs),
        )
    if not inputs.is_floating_point():
        return
    for start in range(0, len(data), _CHUNK):
        part = inputs[start : start + _CHUNK]
        if data.rows is not None:
            part = data.gather(torch.arange(start, min(start + _CHUNK, len(data)), device=data.device))
        if not finite(part):
            row = start + int((~part.isfinite()).flatten(1).any(1).nonzero()[0])
            raise DubitoError(
                "inputs are not finite",
                where=f"{name}.inputs, example {row}",
                expected="numbers",
                got="nan or infinity",
                remedy="impute them or drop the row",
            )


def _check_weights(weight: Tensor, n: int, where: str, training: bool) -> None:
    if not isinstance(weight, Tensor) or not weight.is_floating_point() or weight.shape != (n,):
        raise DubitoError(
            "weights must be one real number per example",
            where=where,
            expected=f"({n},)",
            got=kind_of(weight),
        )
    bad = ~(weight.isfinite() & (weight >= 0))
    if bad.any():
        place = int(bad.nonzero()[0])
        raise DubitoError(
            "a weight must be a number of at least 0", where=f"{where}[{place}]", got=float(weight[place])
        )
    if training and not bool((weight > 0).any()):
        raise DubitoError("all weights are 0, so there is nothing to learn from", where=where)


@contextmanager
def reading(x: Tensor, where: str) -> Iterator[None]:
    """Whatever a network says of inputs that it cannot take becomes one sentence."""
    try:
        yield
    except (DubitoError, torch.OutOfMemoryError):
        raise
    except (RuntimeError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise DubitoError(
            "the model cannot read these inputs",
            where=where,
            got=f"{kind_of(x[:1])} per example: {(str(error).splitlines() or [type(error).__name__])[0][:200]}",
            remedy=_remedy(str(error)),
        ) from error


def _remedy(message: str) -> str:
    """What helps against a message of torch."""
    if "same dtype" in message or "scalar type" in message:
        return (
            "inputs arrive as float32, or as float64 if that is what they are: "
            "give the model that type, and begin with x.long() where it wants whole numbers"
        )
    return "choose a backbone that takes this shape"


def finite(x: Tensor) -> bool:
    """Whether all values are finite. The sum tells first, as it is quicker; but a sum may also overflow."""
    return bool(x.sum().isfinite()) or bool(x.isfinite().all())


def kind_of(value: Any) -> str:
    return (
        f"{value.dtype} of shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
    )
