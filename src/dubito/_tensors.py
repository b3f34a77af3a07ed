"""What every loss shares: bring tensors into one shape, weigh by the target, reduce.

Inside the library the class axis is last, a target is either class indices ``(...)`` or class weights
``(..., C)``, and arithmetic happens in float32 at least. Public functions call `prepare` on the way in and
`reduce` on the way out; the mathematics between them is free of checks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor, nn

from .errors import DubitoError

REDUCTIONS = ("mean", "sum", "none")
HALF = (torch.float16, torch.bfloat16)
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def at_least_float32(x: Tensor) -> Tensor:
    """Half precision becomes float32; float32 and float64 stay as they are."""
    return x.float() if x.dtype in HALF else x


class _FromHalf(torch.autograd.Function):
    """Half precision to float32; a gradient too large for half precision becomes the largest number it has."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.float()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.dtype = inputs[0].dtype

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        most = torch.finfo(ctx.dtype).max
        return grads[0].clamp(-most, most).to(ctx.dtype)


def from_half(x: Tensor) -> Tensor:
    """As `at_least_float32`, with a gradient that saturates where half precision would overflow."""
    if x.dtype not in HALF:
        return x
    wide: Tensor = _FromHalf.apply(x)  # type: ignore[no-untyped-call]
    return wide


def full_precision(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """The function with autocast off, which would turn every matrix product inside it to half precision.

    A network may well run in half precision; what integrates, averages or inverts its outputs may not.
    """

    @wraps(function)
    def wide(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        kind = _device_type((*args, *kwargs.values()))
        if not torch.is_autocast_enabled(kind):
            return function(*args, **kwargs)
        with torch.autocast(kind, enabled=False):
            return function(*args, **kwargs)

    return wide


def _device_type(values: Iterable[object]) -> str:
    """Of the first tensor, or of a module's first parameter."""
    for value in values:
        found = next(value.parameters(), None) if isinstance(value, nn.Module) else value
        if isinstance(found, Tensor):
            return found.device.type
    return "cpu"


def checks_values(x: Tensor) -> bool:
    """Whether values may be looked at here: on the CPU, outside a compiled graph and outside `torch.vmap`.

    Reading a value on a GPU would stall it at every step, inside a graph there is no value yet, and under vmap
    there is one for each of the mapped calls.
    """
    return x.device.type == "cpu" and not torch.compiler.is_compiling() and not is_mapped(x)


def is_mapped(x: Tensor) -> bool:
    """Whether `torch.vmap` maps over a tensor, also where `torch.func.grad` or `jvp` inside it wraps it again."""
    functorch = torch._C._functorch
    while functorch.is_functorch_wrapped_tensor(x):
        if functorch.is_batchedtensor(x):
            return True
        x = functorch.get_unwrapped(x)
    return False


def prepare(
    logits: Tensor, target: Tensor, *, dim: int, ignore_index: int, distribution: bool = False
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Class axis last, float32 at least, ignored labels replaced by class 0.

    Arguments:
        logits: any real scores with the classes on axis `dim`.
        target: class indices (the shape of `logits` without `dim`) or float weights (the shape of `logits`).
        distribution: refuse float weights that are negative or do not sum to one.

    Returns:
        (logits, target, kept) with `kept` a boolean mask of the examples that count, None for all.
    """
    check_floating(logits, "logits")
    check_tensor(target, "target")
    if logits.device != target.device:
        raise DubitoError(
            "logits and target are on two devices", got=f"{logits.device} and {target.device}",
            remedy="move one to the other with .to(device)",
        )  # fmt: skip
    check_axis(logits, dim, "logits")
    z = at_least_float32(logits).movedim(dim, -1)
    check_classes(z, "logits")
    if target.is_floating_point():
        # 0 or 1 for a single score is what `binary_cross_entropy` takes.
        if z.shape[-1] == 1 and not distribution:
            raise DubitoError(
                "one score per example cannot tell classes apart: its loss would always be 0",
                where="logits",
                got=tuple(logits.shape),
                remedy="put a column of zeros before it, and pass class indices",
            )
        if target.shape != logits.shape:
            raise DubitoError(
                "a float target must give one weight per class",
                expected=tuple(logits.shape),
                got=tuple(target.shape),
                remedy="pass class indices as integers (target.long())",
            )
        weights = target.to(z.dtype).movedim(dim, -1)
        if distribution:
            check_distribution(target.movedim(dim, -1))
        return z, weights, None
    check_indices(target, z, ignore_index)
    kept = target != ignore_index
    return z, torch.where(kept, target, 0).long(), kept


def check_broadcast(**tensors: object) -> None:
    """Refuse tensors whose shapes do not fit together, by name; whatever is no tensor fits.

    Example:
        >>> check_broadcast(z=torch.zeros(2, 3), temperature=torch.ones(4))
        Traceback (most recent call last):
        dubito.errors.DubitoError: shapes do not fit together: got z (2, 3), temperature (4,)
    """
    shapes = {name: tuple(t.shape) for name, t in tensors.items() if isinstance(t, Tensor)}
    try:
        torch.broadcast_shapes(*shapes.values())
    except RuntimeError:
        got = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise DubitoError("shapes do not fit together", got=got) from None


def check_tensor(x: Any, name: str) -> None:
    """Refuse a list or an array, which have no device and no gradient."""
    if not isinstance(x, Tensor):
        raise DubitoError(
            f"{name} must be a tensor", got=type(x).__name__, remedy=f"pass torch.as_tensor({name})"
        )


def check_floating(x: Tensor, name: str) -> None:
    """Refuse anything but a real floating tensor with at least one axis."""
    check_tensor(x, name)
    if not x.is_floating_point() or x.dim() == 0:
        raise DubitoError(
            f"{name} must be a floating tensor with a class axis", got=f"{x.dtype} of shape {tuple(x.shape)}"
        )


def check_axis(x: Tensor, dim: int, name: str) -> None:
    """Refuse a class axis that a tensor does not have."""
    if not -x.dim() <= dim < x.dim():
        raise DubitoError("no such class axis", where=f"dim={dim}", got=f"{name} of shape {tuple(x.shape)}")


def check_classes(z: Tensor, name: str) -> None:
    """Refuse scores without a single class; `z` has its classes last."""
    if z.shape[-1] == 0:
        raise DubitoError("there are no classes", where=name, got=tuple(z.shape))


def check_indices(target: Tensor, z: Tensor, ignore_index: int) -> None:
    """Refuse class indices of a wrong type or shape, or out of range. `z` has its classes last."""
    if target.dtype == torch.bool or target.is_complex():
        raise DubitoError("class indices must be integers", got=str(target.dtype), remedy="use target.long()")
    if target.shape != z.shape[:-1]:
        raise DubitoError(
            "target does not match logits", expected=tuple(z.shape[:-1]), got=tuple(target.shape)
        )
    if not checks_values(target) or target.numel() == 0:
        return
    bad = (target != ignore_index) & ((target < 0) | (target >= z.shape[-1]))
    expected = f"0 to {z.shape[-1] - 1} or ignore_index={ignore_index}"
    refuse_first(bad, target, "target", "label out of range", expected)


def refuse_first(
    bad: Tensor, values: Tensor, name: str, complaint: str, expected: str, remedy: str | None = None
) -> None:
    """Raise an error about the first value that is `bad`, if any is."""
    if bad.any():
        place = tuple(bad.nonzero()[0].tolist())
        got = values[place].item()
        raise DubitoError(complaint, where=place_in(name, place), expected=expected, got=got, remedy=remedy)


def place_in(name: str, place: Sequence[int]) -> str:
    """A place in a tensor as text: ``name[2, 0]``, and the name alone where the tensor is one number."""
    return f"{name}[{', '.join(map(str, place))}]" if place else name


def check_distribution(weights: Tensor) -> None:
    """Refuse rows that are negative or do not sum to one, as far as their dtype can (classes last)."""
    if not checks_values(weights) or weights.numel() == 0:
        return
    if not bool((weights >= 0).all()):
        raise DubitoError(
            "this loss needs a distribution as target", expected="weights >= 0", got="a negative weight"
        )
    sums = at_least_float32(weights).sum(-1)
    rounding = torch.finfo(weights.dtype).eps  # each weight is off by half of it at most, and so is their sum
    if not torch.allclose(sums, torch.ones_like(sums), atol=max(1e-3, rounding)):
        worst = float(sums.flatten()[(sums - 1).abs().argmax()])
        raise DubitoError(
            "this loss needs a distribution as target", expected="rows that sum to 1", got=worst
        )


def expect(values: Tensor, target: Tensor) -> Tensor:
    """sum_k target_k values_k over the last axis, with 0 times infinity taken as 0.

    `target` is class indices ``(...)`` or weights ``(..., C)``.
    """
    if not target.is_floating_point():
        return values.gather(-1, target.unsqueeze(-1)).squeeze(-1)
    nothing = (target == 0) & values.isinf()
    return (values.masked_fill(nothing, 0.0) * target).sum(-1)


def as_weights(target: Tensor, num_classes: int, dtype: torch.dtype) -> Tensor:
    """Class indices as one-hot weights; weights as they are."""
    if target.is_floating_point():
        return target.to(dtype)
    classes = torch.arange(num_classes, device=target.device)
    return (target.unsqueeze(-1) == classes).to(dtype)


def reduce(losses: Tensor, kept: Tensor | None, reduction: str) -> Tensor:
    """Mean over the kept examples (0 with zero gradient over none), sum, or none (ignored ones give 0)."""
    if reduction not in REDUCTIONS:
        raise DubitoError("unknown reduction", expected=" or ".join(REDUCTIONS), got=repr(reduction))
    if kept is not None:
        losses = torch.where(kept, losses, 0.0)
    if reduction == "none":
        return losses
    if reduction == "sum":
        return losses.sum()
    count = losses.numel() if kept is None else kept.sum()
    return losses.sum() / (count.clamp(min=1) if isinstance(count, Tensor) else max(count, 1))
