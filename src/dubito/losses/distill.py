"""Distillation: cross-entropy against a teacher's softened output."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from .._numbers import Number, check_interval
from .._tensors import at_least_float32, check_axis, check_floating, expect, reduce
from ..channels import FixedTransition
from ..errors import DubitoError


def distillation(
    student_logits: Tensor,
    teacher_logits: Tensor,
    *,
    temperature: Number = 2.0,
    student_temperature: Number | None = None,
    smoothing: Number = 0.0,
    channel: Callable[[Tensor], Tensor] | Tensor | None = None,
    squared: bool = False,
    dim: int = -1,
    reduction: str = "mean",
) -> Tensor:
    """Cross-entropy of a student against a teacher's distribution, both softened by a temperature.

        l = - sum_k w_k log p~_k,    w = (1 - alpha) softmax(z_teacher / T) + alpha/L
        log p~ = channel(log softmax(z_student / T))

    There is no term for hard labels, and the teacher gets no gradient. `smoothing` is label smoothing on the
    student; forward correction on the student is a channel, ``FixedTransition(T)`` or the matrix T itself.

    Shapes: both logits ``(..., C)`` with the classes on axis `dim`; the channel sees them last.

    Arguments:
        student_logits, teacher_logits: real scores of the same shape.
        temperature: T > 0; it divides the logits of both.
        student_temperature: T for the student, where it differs (1 softens the teacher alone).
        smoothing: alpha, from 0 to 1.
        channel: maps log p(true) to log p(observed), or a matrix ``T[true, observed]``; None for none.
        squared: multiply by T^2, which keeps the size of gradients when mixing with a loss on labels.
        dim, reduction: as in `nll`.

    Reference:
        lukasik2020 table 5
        Hinton et al. 2015

    Example:
        >>> import torch
        >>> student, teacher = torch.tensor([[2.0, -1.0, 0.5]]), torch.tensor([[1.0, 0.0, 0.0]])
        >>> distillation(student, teacher)
        tensor(1.1446)
    """
    check_interval(temperature, "temperature", 0.0, closed="neither")
    if student_temperature is not None:
        check_interval(student_temperature, "student_temperature", 0.0, closed="neither")
    check_interval(smoothing, "smoothing", 0.0, 1.0)
    check_floating(student_logits, "student_logits")
    check_floating(teacher_logits, "teacher_logits")
    if student_logits.shape != teacher_logits.shape:
        shapes = tuple(student_logits.shape), tuple(teacher_logits.shape)
        raise DubitoError("teacher and student differ in shape", expected=shapes[0], got=shapes[1])
    check_axis(student_logits, dim, "logits")
    student = at_least_float32(student_logits).movedim(dim, -1)
    teacher = at_least_float32(teacher_logits).detach().movedim(dim, -1).to(student.dtype)
    log_p = (student / (temperature if student_temperature is None else student_temperature)).log_softmax(-1)
    if isinstance(channel, Tensor):
        channel = FixedTransition(channel)
    observed = log_p if channel is None else channel(log_p)
    losses = _distillation(observed, teacher, temperature=temperature, smoothing=smoothing)
    return reduce(losses * temperature**2 if squared else losses, None, reduction)


def _distillation(log_p: Tensor, teacher: Tensor, *, temperature: Number, smoothing: Number) -> Tensor:
    weights = (1 - smoothing) * (teacher / temperature).softmax(-1) + smoothing / teacher.shape[-1]
    return -expect(log_p, weights)
