"""The contract of a loss, as one function that a user can run on a loss of their own."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from .._tensors import as_weights
from ..errors import DubitoError
from ._cases import DTYPES, close, during, extreme_scores, promise, random_scores

TARGETS = ("indices", "distribution", "weights")


@dataclass(frozen=True)
class _Case:
    """A loss with what it can take, and typical inputs for it."""

    loss: Callable[..., Tensor]
    num_classes: int
    targets: str
    largest: float

    def each(self, logits: Tensor, target: Tensor, **options: object) -> Tensor:
        return self.loss(logits, target, reduction="none", **options)

    def logits(self, *leading: int, seed: int = 0) -> Tensor:
        return random_scores(*leading, self.num_classes, seed=seed)

    def labels(self, *leading: int, seed: int = 1) -> Tensor:
        source = torch.Generator().manual_seed(seed)
        return torch.randint(self.num_classes, leading, generator=source)

    def soft(self, *leading: int, seed: int = 2) -> Tensor:
        """A distribution, or any weights where the loss takes them."""
        weights = random_scores(*leading, self.num_classes, seed=seed)
        return weights if self.targets == "weights" else weights.softmax(-1)

    def all_targets(self, *leading: int) -> list[Tensor]:
        return [self.labels(*leading)] + ([] if self.targets == "indices" else [self.soft(*leading)])


def check_loss(
    loss: Callable[..., Tensor],
    *,
    num_classes: int = 5,
    targets: str = "distribution",
    largest: float = 1e30,
    equivariant: bool = True,
    differentiable: bool = True,
    compiled: bool = True,
) -> dict[str, int]:
    """Try every promise that the losses of this library make; AssertionError names the first broken one.

    The loss is called as ``loss(logits, target, *, dim, ignore_index, reduction)``; fix its own parameters with
    `functools.partial`. Promises: finite values and gradients at extreme logits in four precisions, half
    precision computed in float32, any leading shape equals a loop, `dim`, `ignore_index`, a mean over nothing is
    0 with zero gradient, inputs and global generators untouched, index = one-hot, no dependence on the order of
    classes, examples independent, linear in the target (for weights), gradcheck, a compiled graph agrees.

    Arguments:
        loss: the loss to try.
        num_classes: of the trial inputs.
        targets: "indices", "distribution" (also floats that sum to one) or "weights" (any real floats).
        largest: the largest logits to try; less for losses that square them.
        equivariant: whether all classes are treated alike.
        differentiable: whether the gradient is that of the value; not so where a part of it is detached.
        compiled: whether to try `torch.compile` with ``fullgraph=True``.

    Returns:
        How many cases each promise was tried on.

    Example:
        >>> from dubito import gce
        >>> sum(check_loss(gce, compiled=False).values()) > 1000
        True
    """
    if targets not in TARGETS:
        raise DubitoError("unknown kind of targets", expected=" or ".join(TARGETS), got=repr(targets))
    case = _Case(loss, num_classes, targets, largest)
    trials: dict[str, Callable[[_Case], int]] = {
        "finite value and gradient": _finite,
        "half precision is computed in float32": _half,
        "any leading shape equals a loop": _shapes,
        "the class axis may be anywhere": _dim,
        "ignored labels do not count": _ignore,
        "inputs are not changed": _no_mutation,
        "global generators are not touched": _generators,
        "examples are independent": _independent,
    }
    if differentiable:
        trials["gradients are right"] = _gradcheck
    if targets != "indices":
        trials["a class index equals its one-hot weights"] = _one_hot
    if targets == "weights":
        trials["linear in the target"] = _linear
    if equivariant:
        trials["classes are treated alike"] = _equivariant
    if compiled:
        trials["a compiled graph gives the same numbers"] = _compiled
    counts = {}
    for sentence, trial in trials.items():
        with during(sentence):
            counts[sentence] = trial(case)
    return counts


def _value_and_gradient(case: _Case, logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    x = logits.clone().requires_grad_()
    losses = case.each(x, target)
    (gradient,) = torch.autograd.grad(losses.sum(), x)
    return losses.detach(), gradient


def _finite(case: _Case) -> int:
    tried = 0
    for dtype in DTYPES:
        rows = extreme_scores(case.num_classes, dtype, case.largest)
        logits = rows.repeat_interleave(case.num_classes, 0)
        labels = torch.arange(case.num_classes).repeat(len(rows))
        kinds = (
            [labels] if case.targets == "indices" else [labels, as_weights(labels, case.num_classes, dtype)]
        )
        for target in kinds:
            losses, gradient = _value_and_gradient(case, logits, target)
            bad = ~losses.isfinite() | ~gradient.isfinite().all(-1)
            first = f"{dtype}, label {labels[bad][:1].tolist()}, logits {logits[bad][:1].tolist()}"
            promise(not bad.any(), f"finite value and gradient ({first})")
            tried += len(logits)
    return tried


def _half(case: _Case) -> int:
    for dtype in (torch.bfloat16, torch.float16):
        logits, labels = case.logits(64).to(dtype), case.labels(64)
        losses = case.each(logits, labels)
        promise(losses.dtype == torch.float32, f"half precision is computed in float32 (got {losses.dtype})")
        exact = case.each(logits.double(), labels)
        promise(
            close(losses, exact, 1e-4),
            f"half precision is computed in float32 ({dtype} differs from float64)",
        )
    return 128


def _shapes(case: _Case) -> int:
    tried = 0
    for leading in ((), (1,), (7,), (2, 3), (2, 1, 3), (0,), (2, 0)):
        for target in case.all_targets(*leading):
            logits = case.logits(*leading)
            together, gradient = _value_and_gradient(case, logits, target)
            promise(together.shape == leading, f"one loss per example for leading shape {leading}")
            promise(gradient.shape == logits.shape, f"a gradient for leading shape {leading}")
            flat, rows = (
                logits.reshape(-1, case.num_classes),
                target.reshape(-1, *target.shape[len(leading) :]),
            )
            loop = [case.each(x, y) for x, y in zip(flat, rows)]
            single = torch.stack(loop) if loop else together.flatten()
            promise(close(together.flatten(), single, 1e-10), f"leading shape {leading} equals a loop")
            for reduction, value in (("sum", single.sum()), ("mean", single.sum() / max(len(loop), 1))):
                found = case.loss(logits, target, reduction=reduction)
                promise(close(found, value, 1e-10), f"reduction={reduction!r} for leading shape {leading}")
            tried += max(len(loop), 1)
    return tried


def _dim(case: _Case) -> int:
    for target in case.all_targets(2, 4, 3):
        logits = case.logits(2, 4, 3)
        expected = case.each(logits, target)
        for dim in (0, 1, 2, -2):
            y = target.movedim(-1, dim) if target.is_floating_point() else target
            promise(close(case.each(logits.movedim(-1, dim), y, dim=dim), expected, 1e-10), f"dim={dim}")
    return 8


def _ignore(case: _Case) -> int:
    logits, labels = case.logits(9), case.labels(9)
    for index in (-100, -1, 255):
        some = labels.clone()
        some[::2] = index
        found = case.loss(logits, some, ignore_index=index)
        promise(close(found, case.loss(logits[1::2], labels[1::2]), 1e-10), f"ignore_index={index}")
        x = logits.clone().requires_grad_()
        nothing = case.loss(x, torch.full_like(labels, index), ignore_index=index)
        promise(float(nothing.detach()) == 0.0, "the mean over nothing kept is 0")
        (gradient,) = torch.autograd.grad(nothing, x)
        promise((gradient == 0).all(), "the mean over nothing kept has zero gradient")
    return 6


def _no_mutation(case: _Case) -> int:
    for target in case.all_targets(6):
        logits = case.logits(6)
        before = logits.clone(), target.clone(), logits._version, target._version
        _value_and_gradient(case, logits, target)
        case.loss(logits, target)
        same = torch.equal(logits, before[0]) and torch.equal(target, before[1])
        promise(same and (logits._version, target._version) == before[2:], "inputs are not changed")
    return 2


def _generators(case: _Case) -> int:
    before = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()  # type: ignore[index]
    for target in case.all_targets(6):
        _value_and_gradient(case, case.logits(6), target)
    after = torch.get_rng_state(), np.random.get_state()[1], random.getstate()  # type: ignore[index]
    kept = torch.equal(before[0], after[0]) and np.array_equal(before[1], after[1]) and before[2] == after[2]
    promise(kept, "global generators are not touched")
    return 2


def _one_hot(case: _Case) -> int:
    logits, labels = case.logits(50), case.labels(50)
    one_hot = as_weights(labels, case.num_classes, logits.dtype)
    for a, b in zip(_value_and_gradient(case, logits, labels), _value_and_gradient(case, logits, one_hot)):
        promise(close(a, b, 1e-10), "a class index equals its one-hot weights")
    return 50


def _linear(case: _Case) -> int:
    logits, a, b = case.logits(50), case.soft(50, seed=3), case.soft(50, seed=4)
    expected = 2 * case.each(logits, a) - 3 * case.each(logits, b)
    promise(close(case.each(logits, 2 * a - 3 * b), expected, 1e-9), "linear in the target")
    return 50


def _equivariant(case: _Case) -> int:
    tried = 0
    for seed in range(5):
        order = torch.randperm(case.num_classes, generator=torch.Generator().manual_seed(seed))
        for target in case.all_targets(20):
            logits = case.logits(20, seed=seed)
            losses, gradient = _value_and_gradient(case, logits, target)
            moved = target[..., order] if target.is_floating_point() else order.argsort()[target]
            other, other_gradient = _value_and_gradient(case, logits[..., order], moved)
            promise(close(other, losses, 1e-10), "classes are treated alike (value)")
            promise(close(other_gradient, gradient[..., order], 1e-9), "classes are treated alike (gradient)")
            tried += len(losses)
    return tried


def _independent(case: _Case) -> int:
    for target in case.all_targets(8):
        logits = case.logits(8)
        disturbed = logits.clone()
        disturbed[::2] = 1e4 * disturbed[::2]
        before, gradient = _value_and_gradient(case, logits, target)
        after, other = _value_and_gradient(case, disturbed, target)
        promise(close(after[1::2], before[1::2], 1e-12), "examples are independent (value)")
        promise(close(other[1::2], gradient[1::2], 1e-12), "examples are independent (gradient)")
    return 8


def _gradcheck(case: _Case) -> int:
    for target in case.all_targets(4):
        x = case.logits(4, seed=5).requires_grad_()
        torch.autograd.gradcheck(lambda x, y=target: case.each(x, y), x)
    return 8


def _compiled(case: _Case) -> int:
    for target in case.all_targets(6):
        torch.compiler.reset()  # else a changed closure counts as one recompilation too many
        graph = torch.compile(case.each, fullgraph=True, backend="aot_eager")
        logits = case.logits(6)
        x = logits.clone().requires_grad_()
        losses = graph(x, target)
        (gradient,) = torch.autograd.grad(losses.sum(), x)
        for a, b in zip((losses, gradient), _value_and_gradient(case, logits, target)):
            promise(close(a, b, 1e-5), "a compiled graph gives the same numbers")
    return 12
