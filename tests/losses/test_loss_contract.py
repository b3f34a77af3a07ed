"""Every loss against its transcription and against the exported contract; the scorecard counts the cases."""

from __future__ import annotations

import random
from functools import cache, partial

import numpy as np
import pytest
import torch
from naive_losses import LOSSES
from torch.nn import functional as F

from dubito import DubitoError, losses
from dubito._tensors import at_least_float32
from dubito.losses import BODIES, LATENT_BODIES
from dubito.testing import check_loss

# other numbers in a graph that is compiled already
SAME_GRAPH = ("gce-0.1", "gce-1", "truncated_gce-0.2", "bi_tempered-one", "bi_tempered-heavy")


@cache
def counts(name: str) -> dict[str, int]:
    loss, _, options = LOSSES[name]
    return check_loss(loss, compiled=name not in SAME_GRAPH, **options)


@pytest.mark.rel
@pytest.mark.parametrize("name", LOSSES)
def test_contract(name):
    """Scorecard 2, 4, 5, 7, 11, 12, 24: check_loss on each loss."""
    assert min(counts(name).values()) > 0


@pytest.mark.rel
def test_finite_cases_are_many(scorecard):
    """Scorecard 4: at least 2,000 extreme cases over all losses, none of them non-finite."""
    cases = sum(counts(name)["finite value and gradient"] for name in LOSSES)
    scorecard(4, cases=cases, non_finite=0)  # `counts` has raised on the first that is not
    assert cases >= 2000


@pytest.mark.rel
@pytest.mark.parametrize("name", LOSSES)
def test_equals_transcription(name, scorecard):
    """Scorecard 1: relative error below 1e-10 against the equation, for labels and for distributions."""
    worst = 0.0
    loss, naive, options = LOSSES[name]
    source = torch.Generator().manual_seed(7)
    for classes in (2, 3, 6):
        z = 3 * torch.randn(20, classes, generator=source, dtype=torch.float64)
        labels = torch.randint(classes, (20,), generator=source)
        soft = torch.randn(20, classes, generator=source, dtype=torch.float64)
        soft = soft if options.get("targets") == "weights" else soft.softmax(-1)
        for target, weights in ((labels, F.one_hot(labels, classes).double()), (soft, soft)):
            found = loss(z, target, reduction="none").numpy()
            expected = np.array([naive(a, w) for a, w in zip(z.numpy(), weights.numpy())])
            np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)
            # A tempered loss near zero is a difference of numbers near one, in the equation as well.
            worst = max(worst, float((abs(found - expected) / np.maximum(abs(expected), 1e-3)).max()))
    scorecard(1, relative_error=worst)


@pytest.mark.rel
@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.bfloat16, 2e-2), (torch.float16, 5e-3)])
def test_half_precision_by_value(name, dtype, tolerance, scorecard):
    """Scorecard 5: half precision logits against float64 ones that were never rounded.

    The worst of 200 examples, relative to their mean size: a constant that is added to a loss changes no error.
    """
    loss, _, _ = LOSSES[name]
    z = torch.randn(200, 8, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    labels = torch.randint(8, (200,), generator=torch.Generator().manual_seed(4))
    found, exact = loss(z.to(dtype), labels, reduction="none").double(), loss(z, labels, reduction="none")
    error = float((found - exact).abs().max() / exact.abs().mean().clamp(min=1))
    scorecard(5, **{f"{str(dtype).removeprefix('torch.')}_error": error})
    assert error < tolerance


def test_bodies_are_the_losses_on_log_probabilities():
    z = torch.randn(5, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = torch.tensor([0, 1, 2, 3, 0])
    for public, body in BODIES.items():
        assert torch.equal(body(z.log_softmax(-1), y), public(z, y, reduction="none"))
    assert torch.equal(LATENT_BODIES[losses.bi_tempered](z, y), losses.bi_tempered(z, y, reduction="none"))


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("gce", {"q": [0.0, 0.3, 0.7]}),
        ("truncated_gce", {"q": [0.2, 0.3, 0.7], "k": [0.0, 0.2, 0.5]}),
        ("bootstrap", {"beta": [0.2, 0.8, 1.0]}),
        ("bi_tempered", {"t1": [0.5, 1.0, 0.8], "t2": [0.7, 1.0, 1.5]}),
    ],
)
def test_bodies_vectorise_over_hyper_parameters(name, values):
    public = getattr(losses, name)
    body = {**BODIES, **LATENT_BODIES}[public]
    z = torch.randn(3, 6, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64).log_softmax(-1)
    y = torch.tensor([0, 1, 2, 3, 0, 1])

    def total(z, numbers):
        return body(z, y, **numbers).sum()

    numbers = {key: torch.tensor(v, dtype=torch.float64) for key, v in values.items()}
    gradients, sums = torch.func.vmap(torch.func.grad_and_value(total))(z, numbers)
    for run in range(3):
        x = z[run].clone().requires_grad_()
        value = body(x, y, **{key: v[run] for key, v in values.items()}).sum()
        torch.testing.assert_close(sums[run], value.detach(), rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(gradients[run], torch.autograd.grad(value, x)[0], rtol=1e-12, atol=1e-12)


def clipped(logits, target, **options):
    return losses.nll(logits.clamp(-50, 50) ** 3, target, **options)


def in_place(logits, target, **options):
    target.add_(1).sub_(1)
    return losses.nll(logits, target, **options)


def draws(logits, target, **options):
    random.random()
    return losses.nll(logits, target, **options)


def batch_centred(logits, target, dim=-1, **options):
    logits = at_least_float32(logits)
    axes = [a for a in range(logits.dim()) if a != dim % logits.dim()]
    shift = logits.mean(axes, keepdim=True) if axes and logits.numel() else 0.0
    return losses.nll(logits - shift, target, dim=dim, **options)


def nan_at_zero_power(logits, target, dim=-1, **options):
    return losses.nll(logits.softmax(dim).log(), target, dim=dim, **options)


def careless_mean(logits, target, ignore_index=-100, reduction="mean", **options):
    each = losses.nll(logits, target, ignore_index=ignore_index, reduction="none", **options)
    if reduction != "mean":
        return each.sum() if reduction == "sum" else each
    return each.sum() / ((target != ignore_index).sum() if each.numel() else 1)


def favours_first(logits, target, dim=-1, **options):
    weights = torch.ones(logits.shape[dim], dtype=logits.dtype)
    weights[0] = 2.0
    shape = [1] * logits.dim()
    shape[dim] = -1
    return losses.nll(logits * weights.view(shape), target, dim=dim, **options)


def wrong_gradient(logits, target, **options):
    return losses.nll(logits.detach() * 0.5 + logits * 0.5, target, **options)


def squared_target(logits, target, **options):
    return losses.nll(logits, target**2 if target.is_floating_point() else target, **options)


def ungraphable(logits, target, **options):
    return losses.nll(logits * float(logits.detach().sum() > -1e9), target, **options)


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (nan_at_zero_power, "finite value and gradient"),
        (in_place, "inputs are not changed"),
        (draws, "generators"),
        (batch_centred, "loop"),
        (favours_first, "classes are treated alike"),
        (squared_target, "linear in the target"),
        (careless_mean, "mean over nothing kept"),
    ],
)
def test_check_loss_catches(loss, message):
    with pytest.raises(AssertionError, match=message):
        check_loss(loss, targets="indices" if loss is careless_mean else "weights", compiled=False)


@pytest.mark.parametrize("loss", [wrong_gradient, ungraphable, clipped])
def test_check_loss_says_what_it_was_checking(loss):
    with pytest.raises(Exception) as caught:
        check_loss(loss, targets="weights")
    assert any(note.startswith("while checking") for note in caught.value.__notes__)


def test_check_loss_refuses_unknown_targets():
    with pytest.raises(DubitoError, match="unknown kind of targets"):
        check_loss(losses.nll, targets="labels")


@pytest.mark.nightly
@pytest.mark.parametrize("name", LOSSES)
def test_inductor(name, scorecard):
    """Scorecard 12: the inductor backend gives the same numbers."""
    loss, _, _ = LOSSES[name]
    torch.compiler.reset()
    z = torch.randn(16, 5, generator=torch.Generator().manual_seed(0))
    y = torch.randint(5, (16,), generator=torch.Generator().manual_seed(1))
    graph = torch.compile(partial(loss, reduction="none"), fullgraph=True)
    found, wanted = graph(z, y), loss(z, y, reduction="none")
    error = float(((found - wanted).abs() / wanted.abs().clamp(min=1)).max())
    scorecard(12, relative_error=error, graphs=1)
    assert error < 1e-5
