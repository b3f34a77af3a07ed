"""Distillation: against its formula, with smoothing, through a channel, and what gets a gradient."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from dubito import losses
from dubito.channels import FixedTransition

STUDENT = torch.tensor([[2.0, -1.0, 0.5], [0.1, 0.3, -0.2]], dtype=torch.float64)
TEACHER = torch.tensor([[1.0, 0.2, -0.7], [0.4, 2.0, 0.0]], dtype=torch.float64)


def naive(temperature, student_temperature, alpha, T):
    total = 0.0
    for s, t in zip(STUDENT, TEACHER):
        q = (1 - alpha) * (t / temperature).exp() / (t / temperature).exp().sum() + alpha / 3
        p = (s / student_temperature).exp() / (s / student_temperature).exp().sum()
        total -= sum(float(q[k]) * float((T.T @ p)[k].log()) for k in range(3)) / 2
    return total


T = torch.tensor([[0.8, 0.2, 0.0], [0.1, 0.9, 0.0], [0.05, 0.15, 0.8]], dtype=torch.float64)


@pytest.mark.rel
@pytest.mark.parametrize("temperature", [0.7, 1.0, 2.0])
@pytest.mark.parametrize("alpha", [0.0, 0.1])
@pytest.mark.parametrize("student_temperature", [None, 1.0])
@pytest.mark.parametrize("matrix", [None, T])
def test_equals_transcription(temperature, alpha, student_temperature, matrix):
    """Scorecard 1: distillation, teacher smoothed or not, through a channel or not."""
    options = {"temperature": temperature, "smoothing": alpha, "student_temperature": student_temperature}
    expected = naive(
        temperature,
        student_temperature or temperature,
        alpha,
        torch.eye(3, dtype=torch.float64) if matrix is None else T,
    )
    assert float(losses.distillation(STUDENT, TEACHER, channel=matrix, **options)) == pytest.approx(
        expected, rel=1e-10
    )
    if matrix is not None:
        found = losses.distillation(STUDENT, TEACHER, channel=FixedTransition(T), **options)
        assert float(found) == pytest.approx(expected, rel=1e-10)


def test_teacher_gets_no_gradient_and_the_student_the_right_one():
    student, teacher = STUDENT.clone().requires_grad_(), TEACHER.clone().requires_grad_()
    value = losses.distillation(student, teacher, reduction="sum")
    student_gradient, teacher_gradient = torch.autograd.grad(value, [student, teacher], allow_unused=True)
    assert teacher_gradient is None
    torch.testing.assert_close(student_gradient, ((STUDENT / 2).softmax(-1) - (TEACHER / 2).softmax(-1)) / 2)
    torch.autograd.gradcheck(lambda s: losses.distillation(s, TEACHER, channel=T, smoothing=0.1), student)


def test_squared_factor_and_reductions():
    plain = losses.distillation(STUDENT, TEACHER, temperature=3.0, reduction="none")
    squared = losses.distillation(STUDENT, TEACHER, temperature=3.0, squared=True, reduction="none")
    torch.testing.assert_close(squared, 9 * plain)
    assert plain.shape == (2,)
    torch.testing.assert_close(losses.distillation(STUDENT, TEACHER, temperature=3.0), plain.mean())


@pytest.mark.rel
def test_a_certain_teacher_is_a_label():
    """Scorecard 3: a teacher with logits far apart at temperature 1 gives cross-entropy."""
    labels = torch.tensor([1, 0])
    teacher = 1e4 * F.one_hot(labels, 3).double()
    found = losses.distillation(STUDENT, teacher, temperature=1.0)
    torch.testing.assert_close(found, F.cross_entropy(STUDENT, labels))


@pytest.mark.rel
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_extreme_logits_are_finite(dtype):
    """Scorecard 4: distillation at logits of +-1e4, with and without a channel with zeros."""
    rows = 1e4 * torch.tensor([[1, -1, 0], [0, 0, 0], [-1, -1, 1], [1, 1, 1], [1, 1, -1]], dtype=dtype)
    for channel in (None, T):
        student = rows.repeat_interleave(5, 0).requires_grad_()
        value = losses.distillation(student, rows.repeat(5, 1), channel=channel, smoothing=0.1)
        assert bool(value.isfinite())
        assert bool(torch.autograd.grad(value, student)[0].isfinite().all())


def test_images_and_empty_batches():
    student, teacher = torch.randn(2, 2, 3, 4, 5, generator=torch.Generator().manual_seed(0))
    each = losses.distillation(student, teacher, dim=1, reduction="none")
    assert each.shape == (2, 4, 5)
    last = losses.distillation(student.movedim(1, -1), teacher.movedim(1, -1), reduction="none")
    torch.testing.assert_close(each, last)
    assert float(losses.distillation(student[:0], teacher[:0], dim=1)) == 0.0


@pytest.mark.rel
def test_compiled():
    """Scorecard 12: distillation as one graph."""
    graph = torch.compile(losses.distillation, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(
        graph(STUDENT, TEACHER, smoothing=0.1), losses.distillation(STUDENT, TEACHER, smoothing=0.1)
    )
